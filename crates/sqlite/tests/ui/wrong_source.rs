use oncebox::Worker;
use oncebox::sqlite::SqliteStore;

// A topic is not a source.
async fn run(worker: Worker<SqliteStore>) -> oncebox::Result {
    worker.run("stock.updates", std::future::pending()).await?;
    Ok(())
}

fn main() {
    let _ = run;
}
