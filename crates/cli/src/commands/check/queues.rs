//! The queues of RabbitMQ, and the doors of inboxes that take requests.

use oncebox_config::{Config, SourceConfig};
use oncebox_core::inbox::OnFailure;
use oncebox_core::store::Finding;
use oncebox_rabbitmq::{Error, Wanted};

use crate::load;

/// Looks at the broker, its queues, and what requests are verified by. False if the broker does not answer.
pub(super) async fn check(config: &Config) -> (Vec<Finding>, bool) {
    let mut findings = doors(config);
    let Some(rabbitmq) = &config.rabbitmq else { return (findings, true) };
    let rabbitmq = match load::rabbitmq(rabbitmq) {
        Ok(rabbitmq) => rabbitmq,
        Err(e) => {
            findings.push(Finding::error("rabbitmq", e.to_string()));
            return (findings, true);
        }
    };
    let mut reached = true;
    for inbox in &config.inboxes {
        let SourceConfig::Rabbitmq(read) = &inbox.source else { continue };
        let subject = format!("queue {} of {}", read.queue, inbox.consumer);
        if let Err(e) = load::rabbitmq_source(&rabbitmq, read, &inbox.identity) {
            findings.push(Finding::error(&subject, e.to_string()));
        }
        let in_order = read.key.is_some() || inbox.on_failure == OnFailure::ParkKey;
        let wanted = Wanted { crash_limit: inbox.crash_limit, in_order };
        match rabbitmq.queue_state(&read.queue).await {
            Ok(state) => findings.extend(state.findings(&subject, wanted)),
            Err(e) => {
                reached &= matches!(e, Error::NoQueue(_));
                findings.push(Finding::error(subject, e.to_string()));
            }
        }
    }
    (findings, reached)
}

fn doors(config: &Config) -> Vec<Finding> {
    let requests = config.inboxes.iter().filter_map(|inbox| match &inbox.source {
        SourceConfig::Http(http) => Some((inbox, http)),
        SourceConfig::Kafka(_) | SourceConfig::Rabbitmq(_) => None,
    });
    requests
        .map(|(inbox, http)| {
            let subject = format!("path {} of {}", http.path, inbox.consumer);
            match (load::http_inbox(http), &http.verify) {
                (Err(e), _) => Finding::error(subject, e.to_string()),
                (Ok(_), Some(_)) => Finding::ok(subject, "requests are verified"),
                (Ok(_), None) => Finding::warning(
                    subject,
                    "requests are not verified: whoever reaches the address can send them. Set `verify`",
                ),
            }
        })
        .collect()
}
