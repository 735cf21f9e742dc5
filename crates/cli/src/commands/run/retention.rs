//! Receipts must outlive the messages that may come back.

use oncebox_core::Monitor;
use oncebox_core::config::InboxConfig;
use oncebox_kafka::Kafka;
use tokio_util::sync::CancellationToken;

pub(crate) async fn allows_start(
    _kafka: &Kafka,
    _inbox: &InboxConfig,
    _monitor: &Monitor,
    _stop: &CancellationToken,
) -> bool {
    true
}
