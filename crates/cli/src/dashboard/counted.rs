//! Counters of this process that only its metrics have.

use metrics_exporter_prometheus::PrometheusHandle;

/// What the dashboard reads of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
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
            }
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_is_found_among_the_metrics() {
        let page = "# TYPE oncebox_relay_published_total counter\noncebox_relay_published_total 12\n\n\
                    oncebox_redelivered_total{consumer=\"stock\",outcome=\"applied\"} 3\n";
        let counted = Counted::read(page);
        assert_eq!(counted.published, Some(12));
        assert_eq!(Counted::read(""), Counted::default());
    }
}
