//! The benchmark. Every contestant is a process of its own that reads the same messages into a database of its own; they take
//! turns, round after round, and what counts is the ratio within a round. Run it with `cargo xtask bench`.

mod by_hand;
mod contestant;
mod dashboard;
mod feed;
mod hot_rows;
mod http;
mod measure;
mod neighbours;
mod pair;
mod proxy;
mod relay;
mod report;
mod rounds;
mod rust_handler;
mod server;
mod workload;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "oncebox against one transaction per message written by hand")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all contestants in turn and print the ratios.
    Compare(rounds::Compare),
    /// Compare the relay with a bare producer of the same bytes, and see how soon a consumer has an event.
    Relay(relay::Relay),
    /// Let several partitions update the same few rows.
    HotRows(hot_rows::HotRows),
    /// Give an inbox a slow neighbour in its process.
    Neighbours(neighbours::Neighbours),
    /// Send requests to the daemon and to a handler written by hand.
    Http(http::Http),
    /// Ask the dashboard over a database full of dead letters and receipts, and see what that costs others.
    Dashboard(dashboard::Dashboard),
    /// A contestant: one transaction per request, written by hand.
    HttpByHand(http::Job),
    /// A contestant: one transaction per message, written by hand.
    ByHand(contestant::Job),
    /// A contestant: an oncebox handler in Rust.
    RustHandler(contestant::Job),
    /// A contestant: the receipt, then the effect, without a transaction.
    TwoSteps(contestant::Job),
    /// A contestant: an oncebox inbox in Rust whose handler sends what it writes in groups.
    RustGrouped(contestant::Job),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Compare(compare) => rounds::run(compare).await,
        Command::Relay(args) => relay::run(args).await,
        Command::HotRows(args) => hot_rows::run(args).await,
        Command::Neighbours(args) => neighbours::run(args).await,
        Command::Http(args) => http::run(args).await,
        Command::Dashboard(args) => dashboard::run(args).await,
        Command::HttpByHand(job) => http::run_by_hand(job).await,
        Command::ByHand(job) => by_hand::run(job).await,
        Command::RustHandler(job) => rust_handler::run(job).await,
        Command::TwoSteps(job) => by_hand::run_in_two_steps(job).await,
        Command::RustGrouped(job) => rust_handler::run_grouped(job).await,
    }
}
