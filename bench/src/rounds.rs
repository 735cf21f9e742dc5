//! Contestants take turns, round after round.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::contestant::{Contestant, Job};
use crate::feed::{Feed, is_rabbitmq};
use crate::measure::{self, Run};
use crate::{proxy, report, server};

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The brokers of Kafka, or the URL of RabbitMQ.
    #[arg(long, env = "ONCEBOX_TEST_KAFKA")]
    brokers: String,
    /// A superuser's URL of the server, `postgres://…`, `mysql://…` or `mongodb://…`.
    #[arg(long, env = "ONCEBOX_TEST_POSTGRES")]
    server: String,
    /// The `oncebox` binary.
    #[arg(long)]
    daemon: PathBuf,
    /// Rounds; the median of the ratios counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Records for the fast contestants; those that wait for a round trip per message get a twentieth. 300,000, and 100,000 for
    /// queues, which are filled for each run.
    #[arg(long)]
    records: Option<u64>,
    /// A network round trip between the contestants and the database, in microseconds.
    #[arg(long, default_value_t = 0)]
    round_trip_us: u64,
}

pub(crate) async fn run(args: Compare) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("oncebox-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let run = uuid::Uuid::now_v7().simple().to_string();
    let fast_records = args.records.unwrap_or(if is_rabbitmq(&args.brokers) { 100_000 } else { 300_000 });
    let slow_records = (fast_records / 20).max(1_000);
    let feed = Feed::prepare(&args.brokers, &run, [fast_records, slow_records]).await?;
    let between = match args.round_trip_us {
        0 => None,
        us => Some(proxy::start(server_address(&args.server)?, Duration::from_micros(us) / 2)?),
    };

    let contestants = feed.contestants(&args.server);
    let mut results: Vec<(Contestant, Vec<Run>)> = contestants.iter().map(|c| (*c, Vec::new())).collect();
    for round in 1..=args.rounds {
        for (contestant, runs) in &mut results {
            let records = match *contestant {
                contestant if contestant.is_slow() => slow_records,
                // Its statements wait for a round trip each.
                Contestant::RustHandler if between.is_some() => slow_records,
                _ => fast_records,
            };
            let name = format!("bench_{run}_{round}_{}", *contestant as u8);
            let topic = feed.filled(&name, records).await?;
            let direct = server::database(&args.server, &name).await?;
            let store = match between {
                Some(address) => through(&direct, &address.to_string())?,
                None => direct.clone(),
            };
            let job = Job { brokers: args.brokers.clone(), topic, store, consumer: name.clone() };
            let measured = measure::run(*contestant, &args.daemon, &folder, &job, &direct, records).await;
            server::drop_database(&args.server, &name).await?;
            feed.done(&name).await?;
            let measured = measured?;
            eprintln!("round {round}: {:<38} {:>9.0} records/s", contestant.name(), measured.rate);
            runs.push(measured);
        }
    }
    std::fs::remove_dir_all(&folder).ok();
    report::print(&results, args.round_trip_us);
    Ok(())
}

fn server_address(url: &str) -> Result<std::net::SocketAddr> {
    let authority =
        url.split("://").nth(1).and_then(|rest| rest.split('/').next()).context("no host in the URL")?;
    let host = authority.rsplit('@').next().unwrap_or(authority);
    host.to_socket_addrs()?.next().with_context(|| format!("{host} does not resolve"))
}

fn through(url: &str, address: &str) -> Result<String> {
    let (scheme, rest) = url.split_once("://").context("no scheme in the URL")?;
    let (authority, path) = rest.split_once('/').context("no database in the URL")?;
    let user = authority.rsplit_once('@').map_or(String::new(), |(user, _)| format!("{user}@"));
    Ok(format!("{scheme}://{user}{address}/{path}"))
}
