//! Requests that change the database: the daemon against a handler written by hand, with many senders and with one.

mod by_hand;
pub(crate) mod load;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::process::{Child, Command};

pub(crate) use by_hand::{Job, run as run_by_hand};

use crate::report::median;
use crate::server::{self, Postgres, Server};
use load::Load;

/// Where requests go to.
pub(crate) const PATH: &str = "/in/stock";
/// The header with the id.
pub(crate) const ID: &str = "idempotency-key";
/// How many senders there are at once.
const SENDERS: [usize; 2] = [1, 64];
/// How long a contestant may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(crate) struct Http {
    /// A superuser's URL of the PostgreSQL server.
    #[arg(long, env = "ONCEBOX_TEST_POSTGRES")]
    postgres: String,
    /// The `oncebox` binary.
    #[arg(long)]
    daemon: PathBuf,
    /// Rounds; the median of the ratios counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long requests are sent and counted, in seconds; a second before that they are not counted.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The most connections to the database of the handler written by hand.
    #[arg(long, default_value_t = 16)]
    pool: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contestant {
    ByHand,
    Each,
    Batch,
}

impl Contestant {
    const ALL: [Self; 3] = [Self::ByHand, Self::Each, Self::Batch];

    fn name(self) -> &'static str {
        match self {
            Self::ByHand => "one transaction per request, by hand",
            Self::Each => "oncebox run, each",
            Self::Batch => "oncebox run, batch",
        }
    }

    fn start(self, args: &Http, folder: &Path, store: &str, address: SocketAddr) -> Result<Child> {
        let mut command = match self {
            Self::ByHand => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["http-by-hand", "--store", store, "--listen", &address.to_string()]);
                command.args(["--pool", &args.pool.to_string()]);
                command
            }
            Self::Each => daemon(args, folder, store, address, &Postgres::each())?,
            Self::Batch => daemon(args, folder, store, address, &Postgres::batch())?,
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        command.spawn().with_context(|| format!("starting {}", self.name()))
    }
}

fn daemon(args: &Http, folder: &Path, store: &str, address: SocketAddr, handler: &str) -> Result<Command> {
    let config = format!(
        r#"[store]
url = "{store}"

[http]
listen = "{address}"

[[inbox]]
consumer = "stock"
id = "header:{ID}"
http = {{ path = "{PATH}" }}

[inbox.handler]
{handler}
"#
    );
    let file = folder.join("oncebox.toml");
    std::fs::write(&file, config)?;
    let mut command = Command::new(&args.daemon);
    command.args(["run", "--log", "warn", "--config"]).arg(file);
    Ok(command)
}

pub(crate) async fn run(args: Http) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("oncebox-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let run = uuid::Uuid::now_v7().simple().to_string();
    let mut results = Contestant::ALL.map(|contestant| (contestant, Vec::new()));
    for round in 1..=args.rounds {
        for (contestant, runs) in &mut results {
            let name = format!("bench_{run}_{round}_{}", *contestant as u8);
            let store = server::database(&args.postgres, &name).await?;
            let measured = measure(*contestant, &args, &folder, &store).await;
            server::drop_database(&args.postgres, &name).await?;
            let loads = measured?;
            for load in &loads {
                eprintln!("round {round}: {:<38} {load}", contestant.name());
            }
            runs.push(loads);
        }
    }
    std::fs::remove_dir_all(&folder).ok();
    print(&results, &args);
    Ok(())
}

/// One load after another, each with its number of senders.
async fn measure(
    contestant: Contestant,
    args: &Http,
    folder: &Path,
    store: &str,
) -> Result<[Load; SENDERS.len()]> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut process = contestant.start(args, folder, store, address)?;
    tokio::time::timeout(START_LIMIT, load::ready(address))
        .await
        .with_context(|| format!("{} does not start", contestant.name()))?;
    let mut server = Postgres::connect(store).await?;
    let mut loads = SENDERS.map(Load::new);
    let mut wanted = 0;
    for load in &mut loads {
        wanted += load.run(address, Duration::from_secs(args.seconds)).await?;
        let effects = server.effects().await?;
        if effects != wanted {
            bail!("{}: {effects} effects instead of {wanted}", contestant.name());
        }
    }
    process.kill().await?;
    Ok(loads)
}

type Results = [(Contestant, Vec<[Load; SENDERS.len()]>)];

fn print(results: &Results, args: &Http) {
    let base = &results[0].1;
    println!(
        "\n{} s each, {} connections to the database by hand; medians of {} rounds",
        args.seconds, args.pool, args.rounds
    );
    for (nth, senders) in SENDERS.into_iter().enumerate() {
        println!("\n| {senders} connections | requests/s | ratio to by hand | p50 ms | ratio | p99 ms |");
        println!("|---|---|---|---|---|---|");
        for (contestant, runs) in results {
            let of = |value: fn(&Load) -> f64| median(runs.iter().map(|loads| value(&loads[nth])));
            let ratio = |value: fn(&Load) -> f64| {
                median(runs.iter().zip(base).map(|(run, base)| value(&run[nth]) / value(&base[nth])))
            };
            println!(
                "| {} | {:.0} | {:.1} | {:.2} | {:.2} | {:.2} |",
                contestant.name(),
                of(Load::rate),
                ratio(Load::rate),
                of(|load| load.percentile(50)),
                ratio(|load| load.percentile(50)),
                of(|load| load.percentile(99)),
            );
        }
    }
}
