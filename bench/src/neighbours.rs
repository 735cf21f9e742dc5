//! An inbox alone in its process, against the same inbox beside one that holds its transactions open for two seconds each.

use anyhow::Result;
use clap::Args;

use crate::contestant::Contestant;
use crate::pair::{Case, Setting};
use crate::workload::{self, Topic};

const PARTITIONS: i32 = 6;

#[derive(Debug, Args)]
pub(crate) struct Neighbours {
    #[command(flatten)]
    setting: Setting,
    /// Records in a round.
    #[arg(long, default_value_t = 100_000)]
    records: u64,
}

pub(crate) async fn run(Neighbours { setting, records }: Neighbours) -> Result<()> {
    let topic = format!("bench-neighbours-{}", uuid::Uuid::now_v7().simple());
    let shape = Topic { partitions: PARTITIONS, rows: 1_000, keyed_by_row: true, records };
    workload::topic(&setting.brokers, &topic, shape).await?;
    let case = |name: &str, contestant| Case { name: name.to_owned(), contestant, topic: topic.clone() };
    let cases = [
        case("nobody", Contestant::Each),
        case("an inbox with transactions of two seconds", Contestant::BesideSlow),
    ];
    setting.compare(&format!("{PARTITIONS} partitions, in the same process"), records, cases).await
}
