//! The queues of RabbitMQ, and the doors of inboxes that take requests.

use oncebox_config::{Config, HttpInbox, InboxConfig, SourceConfig};
use oncebox_core::inbox::OnFailure;
use oncebox_core::store::Finding;
use oncebox_rabbitmq::{Error, Wanted};

use crate::load;

/// Looks at the broker, its queues, and what requests are verified by. False if the broker does not answer.
pub(super) async fn check(config: &Config) -> (Vec<Finding>, bool) {
    let mut findings = doors(config);
    findings.extend(bodies(config));
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
        if let Err(e) = load::rabbitmq_source(&rabbitmq, read, inbox) {
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

/// The inboxes that take requests.
fn requests(config: &Config) -> impl Iterator<Item = (&InboxConfig, &HttpInbox)> {
    config.inboxes.iter().filter_map(|inbox| match &inbox.source {
        SourceConfig::Http(http) => Some((inbox, http)),
        SourceConfig::Kafka(_) | SourceConfig::Rabbitmq(_) => None,
    })
}

/// What is asked for and cannot be: an adopted table does not say what a body was.
fn bodies(config: &Config) -> Vec<Finding> {
    let Some(adopt) = &config.store.adopt else { return Vec::new() };
    let compared = requests(config).filter(|(_, http)| http.compare_body);
    compared
        .map(|(inbox, http)| {
            Finding::warning(
                format!("path {} of {}", http.path, inbox.consumer),
                format!(
                    "a request with a used id and another body gets the answer of the first: {adopt} has no column to compare by. \
                     `compare_body = false` says that this is meant"
                ),
            )
        })
        .collect()
}

fn doors(config: &Config) -> Vec<Finding> {
    requests(config)
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
