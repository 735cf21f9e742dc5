//! The first lines of `oncebox run`: what it is, what reads what, and when it is ready.

use std::path::Path;
use std::time::Duration;

use oncebox_config::{Config, HandlerConfig, InboxConfig, SourceConfig};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cluster;
use crate::http::Readiness;
use crate::load::Way;
use crate::versions;

/// Nobody waits longer for the number of partitions: without it the line is true, too.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it looks whether all sources are members of their groups.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Before anything else.
pub(super) fn first_line(file: &Path, config: &Config) {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    info!("oncebox {}, configuration {}, store {:?}", versions::long(), file.display(), config.store.kind);
}

/// What reads what; then, once that is so, that all is ready. None of the loops waits for it.
pub(super) async fn announce(config: Config, ready: Readiness, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = say(&config, &ready) => {}
    }
}

async fn say(config: &Config, ready: &Readiness) {
    let sinks = sinks(config);
    for inbox in &config.inboxes {
        let partitions = partitions(config, inbox).await;
        info!("{}", line(inbox, partitions, &sinks));
    }
    if config.outbox.relay {
        info!("relay: outbox → {}", sinks.join(", "));
    }
    for webhook in &config.webhooks {
        let what = if webhook.copy { "copies of " } else { "" };
        info!("webhook: {what}{} → {}", webhook.topics.join(", "), webhook.url.origin());
    }
    for sweep in &config.sweeps {
        let every = humantime::format_duration(sweep.every);
        info!("sweep {}: every {every} → outbox, topic {}", sweep.sweep.name, sweep.sweep.topic);
    }
    while ready.missing().is_some() {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    info!("ready");
}

/// How many partitions the topics have together, if the broker says so in time.
async fn partitions(config: &Config, inbox: &InboxConfig) -> Option<usize> {
    let read = inbox.source.kafka()?;
    let count = async {
        let admin = cluster::admin(config, Way::of(read)).ok()?;
        let mut sum = 0;
        for topic in cluster::topics(&admin, read).await.ok()? {
            sum += admin.partitions(&topic).await.ok()??;
        }
        Some(sum)
    };
    tokio::time::timeout(ANSWER_TIMEOUT, count).await.ok()?
}

fn line(inbox: &InboxConfig, partitions: Option<usize>, sinks: &[String]) -> String {
    let mut line = format!("{} ← ", inbox.consumer);
    match &inbox.source {
        SourceConfig::Kafka(kafka) => {
            let partitions = match partitions {
                Some(1) => "1 partition".to_owned(),
                Some(number) => format!("{number} partitions"),
                None => "partitions not known yet".to_owned(),
            };
            line.push_str(&format!("{}, group {}, {partitions}", kafka.topics.join(", "), kafka.group));
        }
        SourceConfig::Rabbitmq(rabbitmq) => line.push_str(&format!("queue {}", rabbitmq.queue)),
        SourceConfig::Http(http) => line.push_str(&format!("POST {}", http.path)),
    }
    let (number, what, emits) = match &inbox.handler {
        HandlerConfig::Sql(handler) => {
            let steps = handler.steps();
            let emits = steps.iter().any(|step| step.sql.source().contains("oncebox_emit"));
            (steps.len(), "statement", emits)
        }
        HandlerConfig::Operations(operations) => {
            let list = operations.list();
            (list.len(), "operation", list.iter().any(|one| one.contains("\"emit\"")))
        }
    };
    line.push_str(&format!(", {number} {what}{}", if number == 1 { "" } else { "s" }));
    if emits {
        line.push_str(" → outbox");
        if !sinks.is_empty() {
            line.push_str(&format!(" → {}", sinks.join(", ")));
        }
    }
    line
}

/// Where events go; nowhere without a relay.
fn sinks(config: &Config) -> Vec<String> {
    let mut sinks: Vec<String> = Vec::new();
    if !config.outbox.relay {
        return sinks;
    }
    let kafka = Way::of_relay(&config.outbox).leads_somewhere(config) && config.outbox.exchange.is_none();
    sinks.extend(kafka.then(|| "Kafka".to_owned()));
    if config.outbox.exchange.is_some() || !config.outbox.routes.is_empty() {
        sinks.push("RabbitMQ".to_owned());
    }
    for origin in config.webhooks.iter().map(|webhook| webhook.url.origin()) {
        if !sinks.contains(&origin) {
            sinks.push(origin);
        }
    }
    sinks
}
