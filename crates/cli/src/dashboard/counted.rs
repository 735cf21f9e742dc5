//! Counters of this process that only its metrics have.

use std::collections::BTreeMap;

use metrics_exporter_prometheus::PrometheusHandle;

/// What the dashboard reads of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Duplicates that the broker said it had delivered before, by consumer.
    pub(super) redelivered: BTreeMap<String, u64>,
    /// Events that the relay has published.
    pub(super) published: Option<u64>,
}

impl Counted {
    pub(super) fn of(metrics: &PrometheusHandle) -> Self {
        Self::read(&metrics.render())
    }

    fn read(page: &str) -> Self {
        let mut counted = Self::default();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            if series == "oncebox_relay_published_total" {
                counted.published = Some(value as u64);
            } else if let Some(labels) = series.strip_prefix("oncebox_redelivered_total{")
                && labels.contains("outcome=\"duplicate\"")
                && let Some(consumer) = label(labels, "consumer")
            {
                counted.redelivered.insert(consumer.to_owned(), value as u64);
            }
        }
        counted
    }
}

/// Names of consumers need no escapes.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    labels.split(&format!("{name}=\"")).nth(1)?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_found_among_the_metrics() {
        let page = "# TYPE oncebox_relay_published_total counter\noncebox_relay_published_total 12\n\n\
                    oncebox_redelivered_total{consumer=\"stock\",outcome=\"duplicate\"} 7\n\
                    oncebox_redelivered_total{consumer=\"stock\",outcome=\"applied\"} 3\n";
        let counted = Counted::read(page);
        assert_eq!(counted.published, Some(12));
        assert_eq!(counted.redelivered, BTreeMap::from([("stock".to_owned(), 7)]));
        assert_eq!(Counted::read(""), Counted::default());
    }
}
