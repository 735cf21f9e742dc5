//! Several partitions that update the same few rows, each in another order, against the same with many rows.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::contestant::{Contestant, Job};
use crate::report::median;
use crate::workload::{self, Topic};
use crate::{measure, server};

const PARTITIONS: i32 = 6;
const FEW: u64 = 20;
const MANY: u64 = 1_000;

#[derive(Debug, Args)]
pub(crate) struct HotRows {
    /// The brokers.
    #[arg(long, env = "ONCEBOX_TEST_KAFKA")]
    brokers: String,
    /// A superuser's URL of the PostgreSQL server.
    #[arg(long, env = "ONCEBOX_TEST_POSTGRES")]
    postgres: String,
    /// The `oncebox` binary.
    #[arg(long)]
    daemon: PathBuf,
    /// Rounds; the median of the ratios counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Records in a round.
    #[arg(long, default_value_t = 200_000)]
    records: u64,
}

pub(crate) async fn run(args: HotRows) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("oncebox-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let run = uuid::Uuid::now_v7().simple().to_string();
    let topic = |rows: u64| format!("bench-hot-{rows}-{run}");
    for rows in [MANY, FEW] {
        let records = args.records;
        // A key of its own for each record, so that every partition meets every row.
        let shape = Topic { partitions: PARTITIONS, rows, keyed_by_row: false, records };
        workload::topic(&args.brokers, &topic(rows), shape).await?;
    }
    let (mut many, mut few) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds {
        for (rows, rates) in [(MANY, &mut many), (FEW, &mut few)] {
            let name = format!("bench_{run}_{round}_{rows}");
            let store = server::database(&args.postgres, &name).await?;
            let job = Job {
                brokers: args.brokers.clone(),
                topic: topic(rows),
                store: store.clone(),
                consumer: name.clone(),
            };
            let measured =
                measure::run(Contestant::Each, &args.daemon, &folder, &job, &store, args.records).await;
            server::drop_database(&args.postgres, &name).await?;
            let measured = measured?;
            eprintln!("round {round}: {rows:>5} rows {:>9.0} records/s", measured.rate);
            rates.push(measured.rate);
        }
    }
    std::fs::remove_dir_all(&folder).ok();
    let ratios = few.iter().zip(&many).map(|(few, many)| few / many);
    println!(
        "\n{PARTITIONS} partitions, `each`, {} records; medians of {} rounds\n",
        args.records, args.rounds
    );
    println!("| rows that all partitions update | records/s | ratio |");
    println!("|---|---|---|");
    let ratio = median(ratios);
    println!("| {MANY} | {:.0} | 1 |", median(many.iter().copied()));
    println!("| {FEW} | {:.0} | {ratio:.2} |", median(few.iter().copied()));
    Ok(())
}
