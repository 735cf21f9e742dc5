//! What `/metrics` shows: the metrics of core's table, with its help texts and buckets.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use oncebox_core::metrics;

use crate::exit::Failure;

/// Collects the metrics of this process.
pub(crate) fn install() -> Result<PrometheusHandle, Failure> {
    let handle = builder()
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|e| Failure::data(format!("cannot set up metrics: {e}")))?;
    metrics::describe_all();
    // Zero before the first event, and also where no relay runs.
    metrics::relay_published_total().absolute(0);
    Ok(handle)
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let histograms = metrics::ALL.iter().filter(|metric| !metric.buckets.is_empty());
    histograms.into_iter().try_fold(PrometheusBuilder::new(), |builder, metric| {
        builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)
    })
}
