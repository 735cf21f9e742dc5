//! Spans, from whoever records them to the collector.

use oncebox_config::TelemetryConfig;
use oncebox_core::telemetry::Telemetry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::exit::Failure;
use crate::load;

/// What sends spans while the daemon runs; nothing without `[telemetry]`.
pub(super) struct Exporting {
    telemetry: Telemetry,
    running: Option<(JoinHandle<()>, CancellationToken)>,
}

impl Exporting {
    pub(super) fn start(config: Option<&TelemetryConfig>) -> Result<Self, Failure> {
        let Some(config) = config else {
            return Ok(Self { telemetry: Telemetry::default(), running: None });
        };
        let exporter = load::exporter(config).map_err(|e| Failure::config(format!("telemetry.otlp: {e}")))?;
        let telemetry =
            Telemetry::new(exporter.recorder()).sample(config.sample).message_ids(config.message_ids);
        info!("spans go to {}", exporter.collector());
        let stop = CancellationToken::new();
        let running = tokio::spawn(exporter.run(stop.clone()));
        Ok(Self { telemetry, running: Some((running, stop)) })
    }

    pub(super) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Sends what is left, for a bounded time.
    pub(super) async fn finish(self) {
        if let Some((running, stop)) = self.running {
            stop.cancel();
            // It cannot fail in a way that anybody could mend.
            running.await.ok();
        }
    }
}
