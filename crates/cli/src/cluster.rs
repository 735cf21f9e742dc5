//! Questions to Kafka: where topics end, whether they exist, how long they keep messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use oncebox_config::{Config, InboxConfig, KafkaInbox, RetentionCheck};
use oncebox_core::outbox::check_topic;
use oncebox_core::printable::printable;
use oncebox_core::source::LogId;
use oncebox_core::store::{Finding, FindingLevel, PositionStatus};
use oncebox_kafka::admin::{Admin, Watermarks};

use crate::exit::{Exit, Failure};
use crate::load;

/// How long one question may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Which logs there are and where they end, or why that is not known.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    watermarks: HashMap<(String, i32), Watermarks>,
    ids: BTreeMap<String, Option<LogId>>,
    error: Option<String>,
}

impl Logs {
    /// Where the log of a partition ends.
    pub(crate) fn end(&self, topic: &str, partition: i32) -> Option<i64> {
        self.watermarks.get(&(topic.to_owned(), partition)).map(|w| w.high)
    }

    /// How many messages there are behind a position.
    pub(crate) fn lag(&self, position: &PositionStatus) -> Option<i64> {
        let Watermarks { low, high, .. } =
            *self.watermarks.get(&(position.topic.clone(), position.partition))?;
        Some((high - position.next_offset.unwrap_or(low).max(low)).max(0))
    }

    /// The log that is there now.
    pub(crate) fn id(&self, topic: &str) -> Option<&LogId> {
        self.ids.get(topic)?.as_ref()
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// The logs behind these topics. One that does not exist has none.
pub(crate) async fn logs(config: &Config, topics: impl IntoIterator<Item = String>) -> Logs {
    let mut logs = Logs::default();
    // Queues and paths stand among the positions too.
    let others = config.inboxes.iter().filter(|inbox| inbox.source.kafka().is_none());
    let others: Vec<&str> = others.flat_map(|inbox| inbox.source.names()).collect();
    let is_topic = |name: &String| check_topic(name).is_ok() && !others.contains(&name.as_str());
    let topics: BTreeSet<String> = topics.into_iter().filter(is_topic).collect();
    if config.kafka.is_some()
        && !topics.is_empty()
        && let Err(failure) = ask(config, topics.into_iter().collect(), &mut logs).await
    {
        logs.error = Some(failure.text);
    }
    logs
}

async fn ask(config: &Config, topics: Vec<String>, logs: &mut Logs) -> Result<(), Failure> {
    let admin = admin(config)?;
    for topic in &topics {
        let found = admin.watermarks(topic).await.map_err(|e| unreachable(&e))?.unwrap_or_default();
        logs.watermarks.extend(found.into_iter().map(|w| ((topic.clone(), w.partition), w)));
    }
    logs.ids = admin.log_ids(&topics).await.map_err(|e| unreachable(&e))?;
    Ok(())
}

/// A client that asks the cluster of the configuration.
pub(crate) fn admin(config: &Config) -> Result<Admin, Failure> {
    let kafka = config.kafka.as_ref().ok_or_else(|| Failure::config("[kafka] is missing"))?;
    load::kafka(kafka).admin(ANSWER_TIMEOUT).map_err(|e| unreachable(&e))
}

/// What it did not answer.
pub(crate) fn unreachable(error: &oncebox_kafka::Error) -> Failure {
    Failure { exit: Exit::Unreachable, text: printable(&error.to_string()).into_owned() }
}

/// Looks at brokers, topics and their retention. False if no broker answers.
pub(crate) async fn check(config: &Config) -> (Vec<Finding>, bool) {
    let Some(kafka) = &config.kafka else { return (Vec::new(), true) };
    let subject = "kafka";
    let asked = match load::kafka(kafka).admin(ANSWER_TIMEOUT) {
        Ok(admin) => admin.cluster().await.map(|cluster| (admin, cluster)),
        Err(e) => Err(e),
    };
    let (admin, cluster) = match asked {
        Ok(reached) => reached,
        Err(e) => {
            let detail = format!("{e}. Check kafka.brokers and the security properties");
            return (vec![Finding::error(subject, detail)], false);
        }
    };
    let version = oncebox_kafka::librdkafka_version();
    let detail = format!("{} answers (librdkafka {version})", cluster.brokers.join(", "));
    let mut findings = vec![Finding::ok(subject, detail)];
    for inbox in &config.inboxes {
        let Some(kafka) = inbox.source.kafka() else { continue };
        for topic in &kafka.topics {
            findings.push(look_at_topic(&admin, topic, inbox, kafka).await);
        }
    }
    (findings, true)
}

async fn look_at_topic(admin: &Admin, topic: &str, inbox: &InboxConfig, kafka: &KafkaInbox) -> Finding {
    let subject = format!("topic {topic} of {}", inbox.consumer);
    let partitions = match admin.partitions(topic).await {
        Ok(Some(partitions)) => partitions,
        Ok(None) => {
            return Finding::error(subject, "does not exist; create it, or correct inbox.topics");
        }
        Err(e) => return Finding::error(subject, e.to_string()),
    };
    let (level, detail) = match retention_problem(admin, topic, inbox).await {
        Ok(None) => (FindingLevel::Ok, format!("{partitions} partitions, kept shorter than receipts")),
        Ok(Some(problem)) => (severity(kafka), problem),
        Err(e) => {
            (FindingLevel::Warning, format!("{partitions} partitions; its retention is not known: {e}"))
        }
    };
    Finding { level, subject, detail }
}

fn severity(kafka: &KafkaInbox) -> FindingLevel {
    match kafka.retention_check {
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
