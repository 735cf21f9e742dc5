//! Receipts must outlive the messages that may come back.

use std::time::Duration;

use oncebox_config::{InboxConfig, KafkaInbox, RetentionCheck};
use oncebox_core::backoff;
use oncebox_core::monitor::Monitor;
use oncebox_kafka::Kafka;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::cluster::retention_problem;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Warns if a topic keeps messages longer than receipts are kept. With `retention_check = "refuse"` such an inbox does not
/// start, and it waits until Kafka has told.
pub(crate) async fn allows_start(
    kafka: &Kafka,
    inbox: &InboxConfig,
    read: &KafkaInbox,
    monitor: &Monitor,
    stop: &CancellationToken,
) -> bool {
    if read.retention_check == RetentionCheck::Warn {
        let (kafka, inbox, read) = (kafka.clone(), inbox.clone(), read.clone());
        // Nobody waits for a warning.
        tokio::spawn(async move {
            match problems(&kafka, &inbox, &read).await {
                Ok(problems) => {
                    for problem in problems {
                        warn!(consumer = %inbox.consumer, "{problem}");
                    }
                }
                Err(error) => {
                    warn!(consumer = %inbox.consumer, error, "the retention of the topics is not known");
                }
            }
        });
        return true;
    }
    let health = monitor.register(format!("retention:{}", inbox.consumer), "");
    let mut tries = 0;
    loop {
        match problems(kafka, inbox, read).await {
            Ok(problems) if problems.is_empty() => return true,
            Ok(problems) => {
                let reason = problems.join("; ");
                error!(consumer = %inbox.consumer, reason, "not started (retention_check = \"refuse\")");
                health.stopped(reason);
                stop.cancelled().await;
                return false;
            }
            Err(reason) => {
                tries += 1;
                health.failed(&reason);
                warn!(consumer = %inbox.consumer, reason, "the retention of the topics is not known yet; trying again");
                tokio::select! {
                    () = tokio::time::sleep(backoff::QUESTION.delay(tries)) => {}
                    () = stop.cancelled() => return false,
                }
            }
        }
    }
}

async fn problems(kafka: &Kafka, inbox: &InboxConfig, read: &KafkaInbox) -> Result<Vec<String>, String> {
    let admin = kafka.admin(ANSWER_TIMEOUT).map_err(|e| e.to_string())?;
    let mut problems = Vec::new();
    for topic in &read.topics {
        let found = retention_problem(&admin, topic, inbox).await.map_err(|e| e.to_string())?;
        problems.extend(found.map(|problem| format!("topic {topic}: {problem}")));
    }
    Ok(problems)
}
