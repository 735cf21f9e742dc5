//! Two cases on PostgreSQL, in turns, round after round; what counts is the ratio of the second to the first.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::contestant::{Contestant, Job};
use crate::report::median;
use crate::{measure, server};

/// Where to run, and how often.
#[derive(Debug, Args)]
pub(crate) struct Setting {
    /// The brokers.
    #[arg(long, env = "ONCEBOX_TEST_KAFKA")]
    pub(crate) brokers: String,
    /// A superuser's URL of the PostgreSQL server.
    #[arg(long, env = "ONCEBOX_TEST_POSTGRES")]
    postgres: String,
    /// The `oncebox` binary.
    #[arg(long)]
    daemon: PathBuf,
    /// Rounds; the median of the ratios counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// One of the two.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) contestant: Contestant,
    pub(crate) topic: String,
}

impl Setting {
    /// Lets both read so many records, each time into a database of its own, and prints the table. `heading` says what the names of the
    /// cases are.
    pub(crate) async fn compare(&self, heading: &str, records: u64, cases: [Case; 2]) -> Result<()> {
        let folder = std::env::temp_dir().join(format!("oncebox-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let run = uuid::Uuid::now_v7().simple().to_string();
        let mut rates = [Vec::new(), Vec::new()];
        for round in 1..=self.rounds {
            for (at, (case, rates)) in cases.iter().zip(&mut rates).enumerate() {
                let name = format!("bench_{run}_{round}_{at}");
                let store = server::database(&self.postgres, &name).await?;
                let job = Job {
                    brokers: self.brokers.clone(),
                    topic: case.topic.clone(),
                    store: store.clone(),
                    consumer: name.clone(),
                };
                let measured =
                    measure::run(case.contestant, &self.daemon, &folder, &job, &store, records).await;
                server::drop_database(&self.postgres, &name).await?;
                let rate = measured?.rate;
                eprintln!("round {round}: {:<45} {rate:>9.0} records/s", case.name);
                rates.push(rate);
            }
        }
        std::fs::remove_dir_all(&folder).ok();
        let ratio = median(rates[1].iter().zip(&rates[0]).map(|(second, first)| second / first));
        println!("\n`each`, {records} records; medians of {} rounds\n", self.rounds);
        println!("| {heading} | records/s | ratio |");
        println!("|---|---|---|");
        println!("| {} | {:.0} | 1 |", cases[0].name, median(rates[0].iter().copied()));
        println!("| {} | {:.0} | {ratio:.2} |", cases[1].name, median(rates[1].iter().copied()));
        Ok(())
    }
}
