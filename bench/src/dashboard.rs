//! What the dashboard costs over a database that is full of dead letters and receipts: how long its pages take, and how much of the
//! throughput beside it is left while somebody has the overview open.

mod client;
mod full;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use tokio::process::{Child, Command};

use crate::http::load::{self, Load};
use crate::http::{ID, PATH};
use crate::report::median;
use crate::server::{self, Postgres, Server};
use client::get;
use full::{CONSUMERS, ERRORS, Full};

/// How many senders the throughput is measured with.
const SENDERS: usize = 16;
/// How long the server may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Whoever looks within a second sees the same: a question that should cost something comes later.
const LOOK_IS_OLD: Duration = Duration::from_millis(1_100);
/// As often the script of a page asks for it again.
const REFRESH: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct Dashboard {
    /// A superuser's URL of the PostgreSQL server.
    #[arg(long, env = "ONCEBOX_TEST_POSTGRES")]
    postgres: String,
    /// The `oncebox` binary.
    #[arg(long)]
    daemon: PathBuf,
    /// Dead letters.
    #[arg(long, default_value_t = 1_000_000)]
    letters: i64,
    /// Receipts.
    #[arg(long, default_value_t = 20_000_000)]
    receipts: i64,
    /// How often each page is asked for.
    #[arg(long, default_value_t = 5)]
    asks: usize,
    /// Rounds of the throughput, each with the overview open and without; the median of the ratios counts.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// How long each of them takes, in seconds, without a second before.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

pub(crate) async fn run(args: Dashboard) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("oncebox-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let name = format!("bench_{}", uuid::Uuid::now_v7().simple());
    let measured = measure(&args, &folder, &name).await;
    server::drop_database(&args.postgres, &name).await?;
    std::fs::remove_dir_all(&folder).ok();
    measured
}

async fn measure(args: &Dashboard, folder: &Path, name: &str) -> Result<()> {
    let store = server::database(&args.postgres, name).await?;
    Postgres::store(&store).await?;
    let full = Full { letters: args.letters, receipts: args.receipts };
    full.fill(&store).await?;
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let _daemon = start(args, folder, &store, address)?;
    tokio::time::timeout(START_LIMIT, load::ready(address)).await.context("the daemon does not start")?;
    while get(address, "/").await?.status != 200 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("\n{} dead letters, {} receipts; {} times each\n", args.letters, args.receipts, args.asks);
    pages(args, &full, address).await?;
    throughput(args, address).await
}

/// One that takes requests, with the dashboard in the same process.
fn start(args: &Dashboard, folder: &Path, store: &str, address: SocketAddr) -> Result<Child> {
    let handler = Postgres::each();
    let inbox = |consumer: &str, path: &str| {
        format!(
            "[[inbox]]\nconsumer = \"{consumer}\"\nid = \"header:{ID}\"\nhttp = {{ path = \"{path}\" }}\n[inbox.handler]\n{handler}\n"
        )
    };
    let others: String =
        CONSUMERS.iter().map(|consumer| inbox(consumer, &format!("/in/full/{consumer}"))).collect();
    let config = format!(
        "[store]\nurl = \"{store}\"\n[http]\nlisten = \"{address}\"\n{}{others}",
        inbox("measured", PATH)
    );
    let file = folder.join("oncebox.toml");
    std::fs::write(&file, config)?;
    let mut command = Command::new(&args.daemon);
    command.args(["run", "--log", "warn", "--config"]).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().context("starting the daemon")
}

/// How long each page takes, and each question of the API.
async fn pages(args: &Dashboard, full: &Full, address: SocketAddr) -> Result<()> {
    println!("| page | median ms | slowest ms | KiB |");
    println!("|---|---|---|---|");
    for path in paths(full, &get(address, "/api/v1/openapi.json").await?.body)? {
        let mut took = Vec::new();
        let mut size = 0;
        for _ in 0..args.asks {
            tokio::time::sleep(LOOK_IS_OLD).await;
            let answer = get(address, &path).await?;
            anyhow::ensure!(answer.status == 200, "{path}: {} {}", answer.status, answer.body);
            took.push(answer.took.as_secs_f64() * 1_000.0);
            size = answer.body.len() / 1024;
        }
        let slowest = took.iter().copied().fold(0.0, f64::max);
        println!("| `{path}` | {:.1} | {slowest:.1} | {size} |", median(took.into_iter()));
    }
    Ok(())
}

/// All pages, with filters that find much, little and nothing, and what the description of the API names.
fn paths(full: &Full, description: &str) -> Result<Vec<String>> {
    let (consumer, old) = (CONSUMERS[0], full.letters / 2);
    let mut paths: Vec<String> = ["/", "/dead", "/outbox", "/retention", "/health"].map(str::to_owned).into();
    paths.extend([
        format!("/consumers/{consumer}"),
        format!("/dead?consumer={consumer}"),
        format!("/dead?group={}", full::group(consumer, ERRORS[0])),
        format!("/dead?group={}&error=nothing-like-it", full::group(consumer, ERRORS[0])),
        format!("/dead?before={old}"),
        format!("/dead?id={}", full::message(old)),
        format!("/dead?consumer={}&id={}", full::consumer_of(old), full::message(old)),
        "/dead?id=nobody".to_owned(),
        "/dead?key=nobody".to_owned(),
        "/dead?topic=nothing".to_owned(),
        "/dead?tenant=nobody".to_owned(),
        "/dead?error=nothing-like-it".to_owned(),
        format!("/dead/{old}?payload=show"),
        "/outbox?state=held".to_owned(),
        "/outbox?state=pending".to_owned(),
    ]);
    let description: serde_json::Value = serde_json::from_str(description)?;
    let described = description["paths"].as_object().context("the API is described")?;
    let asked = described.iter().filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path);
    // What is only there after something was done is left out.
    let asked = asked.filter(|path| !path.contains("/jobs/"));
    paths.extend(asked.map(|path| {
        let path = path.replace("{consumer}", consumer).replace("{number}", &old.to_string());
        match path.rsplit('/').next() {
            Some("find") => format!("{path}?id={}", full::message(old)),
            Some("export") => format!("{path}?limit=200"),
            _ => path,
        }
    }));
    Ok(paths)
}

/// Requests per second with the overview open, against without.
async fn throughput(args: &Dashboard, address: SocketAddr) -> Result<()> {
    let length = Duration::from_secs(args.seconds);
    let mut ratios = Vec::new();
    let mut rates = [Vec::new(), Vec::new()];
    // What comes first is measured while everything is still cold.
    Load::new(SENDERS).run(address, length).await?;
    for round in 0..args.rounds {
        let mut measured = [0.0; 2];
        // Each goes first every other time.
        for nth in 0..2 {
            let is_open = (round + nth) % 2 == 0;
            let overview = is_open.then(|| tokio::spawn(keep_open(address)));
            let mut load = Load::new(SENDERS);
            load.run(address, length).await?;
            if let Some(overview) = overview {
                overview.abort();
            }
            measured[usize::from(is_open)] = load.rate();
            rates[usize::from(is_open)].push(load.rate());
            eprintln!("round {}: overview open: {is_open:<5} {load}", round + 1);
        }
        ratios.push(measured[1] / measured[0]);
    }
    ratios.sort_by(f64::total_cmp);
    let [without, with] = rates;
    println!("\n{SENDERS} connections, {} s each; medians of {} rounds\n", args.seconds, args.rounds);
    println!("| | requests/s |\n|---|---|");
    println!("| without | {:.0} |", median(without.into_iter()));
    println!("| overview open | {:.0} |", median(with.into_iter()));
    println!(
        "\nratio {:.3}, between {:.3} and {:.3}",
        median(ratios.iter().copied()),
        ratios.first().copied().unwrap_or(f64::NAN),
        ratios.last().copied().unwrap_or(f64::NAN)
    );
    Ok(())
}

/// As a browser does that shows it.
async fn keep_open(address: SocketAddr) -> Result<()> {
    loop {
        get(address, "/").await?;
        tokio::time::sleep(REFRESH).await;
    }
}
