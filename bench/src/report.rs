//! The table at the end.

use crate::contestant::Contestant;
use crate::measure::Run;

/// Medians, and the median of the ratios within a round.
pub(crate) fn print(results: &[(Contestant, Vec<Run>)], round_trip_us: u64) {
    let Some((_, base)) = results.iter().find(|(c, _)| *c == Contestant::ByHand) else { return };
    println!(
        "\nround trip to the database: loopback + {round_trip_us} us; medians of {} rounds\n",
        base.len()
    );
    println!("| contestant | records/s | ratio to by hand | resident MiB | CPU s per 10,000 |");
    println!("|---|---|---|---|---|");
    for (contestant, runs) in results {
        let ratio = median(runs.iter().zip(base).map(|(run, base)| run.rate / base.rate));
        println!(
            "| {} | {:.0} | {ratio:.1} | {:.0} | {:.2} |",
            contestant.name(),
            median(runs.iter().map(|r| r.rate)),
            median(runs.iter().map(|r| r.resident_mib)),
            median(runs.iter().map(|r| r.cpu_per_10k)),
        );
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
