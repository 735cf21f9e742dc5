//! Questions to Kafka: where topics end, whether they exist, how long they keep messages.

use std::collections::HashMap;
use std::time::Duration;

use oncebox_core::config::{Config, InboxConfig, RetentionCheck};
use oncebox_core::{Finding, FindingLevel};
use oncebox_kafka::admin::Admin;

use crate::load;

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(10);

/// Where partitions end, or why that is not known.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    high: HashMap<(String, i32), i64>,
    error: Option<String>,
}

impl Ends {
    pub(crate) fn high(&self, topic: &str, partition: i32) -> Option<i64> {
        self.high.get(&(topic.to_owned(), partition)).copied()
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// Where the topics of the configuration end.
pub(crate) async fn ends(config: &Config) -> Ends {
    let mut ends = Ends::default();
    let Some(kafka) = &config.kafka else { return ends };
    let admin = match load::kafka(kafka).admin(ANSWER) {
        Ok(admin) => admin,
        Err(e) => return Ends { error: Some(e.to_string()), ..ends },
    };
    for inbox in &config.inboxes {
        match admin.lag(&inbox.group, &inbox.topics).await {
            Ok(partitions) => {
                ends.high.extend(partitions.into_iter().map(|p| ((p.topic, p.partition), p.high)));
            }
            Err(e) => return Ends { error: Some(e.to_string()), ..ends },
        }
    }
    ends
}

/// Looks at brokers, topics and their retention. False if no broker answers.
pub(crate) async fn check(config: &Config) -> (Vec<Finding>, bool) {
    let Some(kafka) = &config.kafka else { return (Vec::new(), true) };
    let subject = "kafka".to_owned();
    let asked = match load::kafka(kafka).admin(ANSWER) {
        Ok(admin) => admin.cluster().await.map(|cluster| (admin, cluster)),
        Err(e) => Err(e),
    };
    let (admin, cluster) = match asked {
        Ok(reached) => reached,
        Err(e) => {
            let detail = format!("{e}. Check kafka.brokers and the security properties");
            return (vec![Finding { level: FindingLevel::Error, subject, detail }], false);
        }
    };
    let version = oncebox_kafka::librdkafka_version();
    let detail = format!("{} answers (librdkafka {version})", cluster.brokers.join(", "));
    let mut findings = vec![Finding { level: FindingLevel::Ok, subject, detail }];
    for inbox in &config.inboxes {
        for topic in &inbox.topics {
            findings.push(check_topic(&admin, topic, inbox).await);
        }
    }
    (findings, true)
}

async fn check_topic(admin: &Admin, topic: &str, inbox: &InboxConfig) -> Finding {
    let subject = format!("topic {topic} of {}", inbox.consumer);
    let partitions = match admin.partitions(topic).await {
        Ok(Some(partitions)) => partitions,
        Ok(None) => {
            let detail = "does not exist; create it, or correct inbox.topics".to_owned();
            return Finding { level: FindingLevel::Error, subject, detail };
        }
        Err(e) => return Finding { level: FindingLevel::Error, subject, detail: e.to_string() },
    };
    let (level, detail) = match retention_problem(admin, topic, inbox).await {
        Ok(None) => (FindingLevel::Ok, format!("{partitions} partitions, kept shorter than receipts")),
        Ok(Some(problem)) => (severity(inbox), problem),
        Err(e) => {
            (FindingLevel::Warning, format!("{partitions} partitions; its retention is not known: {e}"))
        }
    };
    Finding { level, subject, detail }
}

fn severity(inbox: &InboxConfig) -> FindingLevel {
    match inbox.retention_check {
        RetentionCheck::Warn => FindingLevel::Warning,
        RetentionCheck::Refuse => FindingLevel::Error,
    }
}

/// Why a message of this topic may come back after its receipt is gone, if it may.
pub(crate) async fn retention_problem(
    admin: &Admin,
    topic: &str,
    inbox: &InboxConfig,
) -> Result<Option<String>, oncebox_kafka::Error> {
    let settings = admin.topic_settings(topic).await?;
    let receipts = humantime::format_duration(inbox.retention);
    let compacted = settings.cleanup_policy.contains("compact");
    Ok(match settings.retention {
        _ if compacted => Some(format!(
            "the topic is compacted and keeps messages for ever, receipts are kept for {receipts}: a rewind further back \
             applies messages again. Set stale = \"park\" to dead-letter those instead"
        )),
        None => Some(format!(
            "the topic keeps messages for ever, receipts are kept for {receipts}: a rewind further back applies messages \
             again. Raise inbox.retention, or set stale = \"park\""
        )),
        Some(kept) if kept > inbox.retention => Some(format!(
            "the topic keeps messages for {}, receipts are kept for {receipts}: a rewind further back applies messages \
             again. Raise inbox.retention to more than that",
            humantime::format_duration(kept)
        )),
        Some(_) => None,
    })
}
