//! Several partitions that update the same few rows, each in another order, against the same with many rows.

use anyhow::Result;
use clap::Args;

use crate::contestant::Contestant;
use crate::pair::{Case, Setting};
use crate::workload::{self, Topic};

const PARTITIONS: i32 = 6;
const FEW: u64 = 20;
const MANY: u64 = 1_000;

#[derive(Debug, Args)]
pub(crate) struct HotRows {
    #[command(flatten)]
    setting: Setting,
    /// Records in a round.
    #[arg(long, default_value_t = 200_000)]
    records: u64,
}

pub(crate) async fn run(HotRows { setting, records }: HotRows) -> Result<()> {
    let run = uuid::Uuid::now_v7().simple().to_string();
    let case = |rows: u64| Case {
        name: rows.to_string(),
        contestant: Contestant::Each,
        topic: format!("bench-hot-{rows}-{run}"),
    };
    let cases = [case(MANY), case(FEW)];
    for (case, rows) in cases.iter().zip([MANY, FEW]) {
        // A key of its own for each record, so that every partition meets every row.
        let shape = Topic { partitions: PARTITIONS, rows, keyed_by_row: false, records };
        workload::topic(&setting.brokers, &case.topic, shape).await?;
    }
    setting.compare(&format!("rows that all {PARTITIONS} partitions update"), records, cases).await
}
