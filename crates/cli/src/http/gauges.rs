//! The gauges that are worked out when somebody asks. What is gone since is not shown any more.

use std::collections::BTreeMap;
use std::fmt::Write;

use oncebox_core::metrics::{
    LAG_SECONDS, LOOP_LAST_SUCCESS_AGE_SECONDS, LOOPS_UNHEALTHY, Metric, PARTITION_LAG_MESSAGES,
};
use oncebox_core::monitor::{ConsumerLag, Monitor};

use super::health::STALL_LIMIT;

/// A process with more partitions shows the first of them, by consumer, topic and number: each is a series that somebody
/// stores. Their sum is in `oncebox_lag_messages`.
const SHOWN_PARTITIONS: usize = 1_000;

/// Appends them to the page, as Prometheus wants them.
pub(super) fn render(monitor: &Monitor, page: &mut String) {
    let lags = monitor.lags();
    let consumers = lags.chunk_by(|a, b| a.consumer == b.consumer);
    let seconds =
        consumers.map(|of_one| (vec![of_one[0].consumer.clone()], ConsumerLag::of(of_one).age.as_secs_f64()));
    family(page, &LAG_SECONDS, seconds);
    let messages = lags.iter().take(SHOWN_PARTITIONS).filter_map(|lag| {
        let labels = vec![lag.consumer.clone(), lag.topic.to_string(), lag.partition.to_string()];
        Some((labels, lag.messages? as f64))
    });
    family(page, &PARTITION_LAG_MESSAGES, messages);
    let mut loops: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for report in monitor.report() {
        let unhealthy = report.is_unhealthy(STALL_LIMIT);
        let (age, bad) = loops.entry(report.name).or_default();
        *age = age.max(report.age.as_secs_f64());
        *bad += f64::from(u8::from(unhealthy));
    }
    let ages = loops.iter().map(|(name, (age, _))| (vec![name.clone()], *age));
    family(page, &LOOP_LAST_SUCCESS_AGE_SECONDS, ages);
    family(page, &LOOPS_UNHEALTHY, loops.iter().map(|(name, (_, bad))| (vec![name.clone()], *bad)));
}

fn family(page: &mut String, metric: &Metric, series: impl Iterator<Item = (Vec<String>, f64)>) {
    let Metric { name, help, labels, .. } = metric;
    // Writing into a text does not fail.
    writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge").ok();
    for (values, value) in series {
        let pairs: Vec<String> = labels
            .iter()
            .zip(&values)
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        writeln!(page, "{name}{{{}}} {value}", pairs.join(",")).ok();
    }
    page.push('\n');
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_is_gone_has_no_gauge() {
        let monitor = Monitor::default();
        let gone = monitor.register("purge", "");
        let stays = monitor.register("odd\"name\\", "");
        stays.idle();
        let mut page = String::new();
        render(&monitor, &mut page);
        assert!(page.contains("oncebox_loop_last_success_age_seconds{loop=\"purge\"} "), "{page}");
        assert!(page.contains("{loop=\"odd\\\"name\\\\\"} 0\n"), "{page}");
        assert!(page.contains("# TYPE oncebox_lag_seconds gauge\n"), "{page}");
        assert!(page.contains("oncebox_loops_unhealthy{loop=\"purge\"} 0\n"), "{page}");
        gone.stopped("for good");
        let mut page = String::new();
        render(&monitor, &mut page);
        assert!(page.contains("oncebox_loops_unhealthy{loop=\"purge\"} 1\n"), "{page}");
        drop(gone);
        let mut page = String::new();
        render(&monitor, &mut page);
        assert!(!page.contains("purge"), "{page}");
    }
}
