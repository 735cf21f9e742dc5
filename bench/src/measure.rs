//! Runs one contestant once and measures it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::contestant::{Contestant, Job};
use crate::server::{Server, on_server};
use crate::workload;

/// What one run showed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// Records per second, by the database's own clock, from the first transaction to the last.
    pub(crate) rate: f64,
    /// The most memory the process held, in MiB.
    pub(crate) resident_mib: f64,
    /// CPU seconds of the process per 10,000 records.
    pub(crate) cpu_per_10k: f64,
}

/// Applies all `records` of the topic with one contestant, from start to the last effect.
pub(crate) async fn run(
    contestant: Contestant,
    daemon: &Path,
    folder: &Path,
    job: &Job,
    direct_store: &str,
    records: u64,
) -> Result<Run> {
    on_server!(direct_store, S => run_on::<S>(contestant, daemon, folder, job, direct_store, records).await)
}

async fn run_on<S: Server>(
    contestant: Contestant,
    daemon: &Path,
    folder: &Path,
    job: &Job,
    direct_store: &str,
    records: u64,
) -> Result<Run> {
    let mut process = contestant.start(daemon, folder, job)?;
    let pid = process.id().context("the contestant has no pid")?;
    let mut server = S::connect(direct_store).await?;
    let wanted = i64::try_from(workload::unique(records))?;
    let limit = Instant::now() + Duration::from_secs(300);
    let mut seen = Usage::default();
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(usage) = Usage::of(pid) {
            seen = usage;
        }
        if let Some(status) = process.try_wait()? {
            bail!("{} ended with {status}", contestant.name());
        }
        // Only when it may be done the table is counted.
        let far = server.at_most().await?;
        if far >= wanted {
            let done = server.effects().await?;
            if done == wanted {
                break;
            }
            if done > wanted {
                bail!("{}: {done} effects instead of {wanted}", contestant.name());
            }
        }
        if Instant::now() > limit {
            bail!("{} is not done after five minutes ({far} of {wanted})", contestant.name());
        }
    }
    process.kill().await?;
    let applied = server.applied().await?;
    let rate = records as f64 * applied.effects as f64 / wanted as f64 / applied.seconds;
    Ok(Run {
        rate,
        resident_mib: seen.peak_kib as f64 / 1_024.0,
        cpu_per_10k: seen.cpu_seconds / (records as f64 / 10_000.0),
    })
}

#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    cpu_seconds: f64,
    peak_kib: u64,
}

impl Usage {
    fn of(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Fields 14 and 15 (user and system ticks), counted behind the name, which may contain spaces.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        Some(Self {
            // Linux reports ticks of a hundredth of a second on every common platform.
            cpu_seconds: ticks as f64 / 100.0,
            peak_kib: peak.trim().trim_end_matches(" kB").trim().parse().ok()?,
        })
    }
}
