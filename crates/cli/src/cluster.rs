//! Questions to Kafka: where topics end, whether they exist, how long they keep messages.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use oncebox_config::{Config, InboxConfig, KafkaInbox, RetentionCheck};
use oncebox_core::outbox::check_topic;
use oncebox_core::printable::printable;
use oncebox_core::source::LogId;
use oncebox_core::store::{Finding, FindingLevel, PositionStatus};
use oncebox_kafka::TopicPattern;
use oncebox_kafka::admin::{Admin, Group, Watermarks};

use crate::exit::{Exit, Failure};
use crate::load::Way;

/// How long one question may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The most topics of a pattern that `check` looks at.
const MAX_SHOWN: usize = 100;

/// Which logs there are and where they end, or why that is not known. Two clusters may have topics of the same name, so each
/// consumer is told about those that it reads.
#[derive(Debug, Default)]
pub(crate) struct Logs {
    watermarks: HashMap<(String, String, i32), Watermarks>,
    ids: HashMap<(String, String), LogId>,
    /// By consumer.
    groups: HashMap<String, Group>,
    errors: Vec<String>,
    /// Why it is not known who reads them.
    no_groups: Option<String>,
}

impl Logs {
    /// Where the log behind a position ends.
    pub(crate) fn end(&self, position: &PositionStatus) -> Option<i64> {
        self.watermarks(position).map(|w| w.high)
    }

    /// How many messages there are behind a position.
    pub(crate) fn lag(&self, position: &PositionStatus) -> Option<i64> {
        let Watermarks { low, high, .. } = *self.watermarks(position)?;
        Some((high - position.next_offset.unwrap_or(low).max(low)).max(0))
    }

    /// The log that is there now.
    pub(crate) fn id(&self, position: &PositionStatus) -> Option<&LogId> {
        self.ids.get(&(position.consumer.clone(), position.topic.clone()))
    }

    /// How the group of a consumer is: `Stable`, `Empty` and so on.
    pub(crate) fn state(&self, consumer: &str) -> Option<&str> {
        self.groups.get(consumer).map(|group| group.state.as_str())
    }

    /// Who reads a partition.
    pub(crate) fn owner(&self, position: &PositionStatus) -> Option<&str> {
        let is_here =
            |(topic, partition): &(String, i32)| *topic == position.topic && *partition == position.partition;
        let members = &self.groups.get(&position.consumer)?.members;
        members.iter().find(|member| member.partitions.iter().any(is_here)).map(|member| member.name.as_str())
    }

    pub(crate) fn error(&self) -> Option<String> {
        (!self.errors.is_empty()).then(|| self.errors.join("; "))
    }

    /// What is not known, and why.
    pub(crate) fn unknown(&self) -> Option<String> {
        let nothing = || self.error().map(|error| format!("lag and owners are not known: {error}"));
        let groups = self.no_groups.as_ref();
        nothing().or_else(|| groups.map(|why| format!("who reads which partition is not known: {why}")))
    }

    fn watermarks(&self, position: &PositionStatus) -> Option<&Watermarks> {
        self.watermarks.get(&(position.consumer.clone(), position.topic.clone(), position.partition))
    }
}

/// Also asks who reads them.
pub(crate) async fn logs_and_groups(config: &Config, positions: &[PositionStatus]) -> Logs {
    let mut logs = logs(config, positions).await;
    // Who did not answer the first question is not asked the next one.
    if logs.errors.is_empty()
        && let Err(failure) = ask_groups(config, &mut logs).await
    {
        logs.no_groups = Some(failure.text);
    }
    logs
}

async fn ask_groups(config: &Config, logs: &mut Logs) -> Result<(), Failure> {
    let mut ways: BTreeMap<Way<'_>, Vec<(&InboxConfig, &KafkaInbox)>> = BTreeMap::new();
    for inbox in &config.inboxes {
        if let Some(kafka) = inbox.source.kafka() {
            ways.entry(Way::of(kafka)).or_default().push((inbox, kafka));
        }
    }
    for (way, inboxes) in ways {
        let admin = admin(config, way)?;
        for (inbox, kafka) in inboxes {
            let found = admin.group(&kafka.group).await.map_err(|e| failure(&e))?;
            logs.groups.extend(found.map(|group| (inbox.consumer.to_string(), group)));
        }
    }
    Ok(())
}

/// The logs behind these positions. A topic that does not exist has none.
pub(crate) async fn logs(config: &Config, positions: &[PositionStatus]) -> Logs {
    let mut logs = Logs::default();
    // Queues and paths stand among the positions too.
    let others = config.inboxes.iter().filter(|inbox| inbox.source.kafka().is_none());
    let others: Vec<&str> = others.flat_map(|inbox| inbox.source.names()).collect();
    let is_topic = |name: &str| check_topic(name).is_ok() && !others.contains(&name);
    let mut wanted: BTreeMap<Way<'_>, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for position in positions.iter().filter(|position| is_topic(&position.topic)) {
        let way = Way::of_consumer(config, &position.consumer);
        if way.leads_somewhere(config) {
            wanted.entry(way).or_default().insert((&position.consumer, &position.topic));
        }
    }
    let several = wanted.len() > 1;
    for (way, read) in wanted {
        if let Err(Failure { text, .. }) = ask(config, way, &read, &mut logs).await {
            logs.errors.push(if several { format!("{}: {text}", way.heading()) } else { text });
        }
    }
    logs
}

/// Asks one cluster about the topics that these consumers read.
async fn ask(
    config: &Config,
    way: Way<'_>,
    read: &BTreeSet<(&str, &str)>,
    logs: &mut Logs,
) -> Result<(), Failure> {
    let admin = admin(config, way)?;
    let topics: BTreeSet<&str> = read.iter().map(|(_, topic)| *topic).collect();
    for topic in &topics {
        let found = admin.watermarks(topic).await.map_err(|e| failure(&e))?.unwrap_or_default();
        for (consumer, _) in read.iter().filter(|(_, read)| read == topic) {
            let place = |w: &Watermarks| ((*consumer).to_owned(), (*topic).to_owned(), w.partition);
            logs.watermarks.extend(found.iter().map(|w| (place(w), *w)));
        }
    }
    let topics: Vec<String> = topics.into_iter().map(str::to_owned).collect();
    let ids = admin.log_ids(&topics).await.map_err(|e| failure(&e))?;
    for (consumer, topic) in read {
        if let Some(id) = ids.get(*topic).cloned().flatten() {
            logs.ids.insert(((*consumer).to_owned(), (*topic).to_owned()), id);
        }
    }
    Ok(())
}

/// A client that asks the cluster.
pub(crate) fn admin(config: &Config, way: Way<'_>) -> Result<Admin, Failure> {
    way.kafka(config)?.admin(ANSWER_TIMEOUT).map_err(|e| failure(&e))
}

/// What it did not answer, or why it cannot even be asked.
pub(crate) fn failure(error: &oncebox_kafka::Error) -> Failure {
    let exit = if error.is_configuration() { Exit::Config } else { Exit::Unreachable };
    Failure { exit, text: printable(&error.to_string()).into_owned() }
}

/// Whether an inbox reads this topic, by its name or by a pattern.
pub(crate) fn reads(inbox: &InboxConfig, topic: &str) -> bool {
    let is_meant = |name: &str| match pattern(inbox, name) {
        Some(pattern) => pattern.matches(topic),
        None => name == topic,
    };
    inbox.source.names().into_iter().any(is_meant)
}

fn pattern(inbox: &InboxConfig, name: &str) -> Option<TopicPattern> {
    inbox.source.kafka().filter(|_| TopicPattern::is_one(name))?;
    // It was read before.
    TopicPattern::new(name).ok()
}

/// The topics that an inbox reads as of now: those of a pattern may become more.
pub(crate) async fn topics(admin: &Admin, read: &KafkaInbox) -> Result<Vec<String>, oncebox_kafka::Error> {
    let mut topics = Vec::new();
    for name in &read.topics {
        match TopicPattern::new(name) {
            Ok(pattern) => topics.extend(admin.matching(pattern).await?),
            Err(_) => topics.push(name.clone()),
        }
    }
    topics.sort_unstable();
    topics.dedup();
    Ok(topics)
}

/// What `check` has found, and how bad it is.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) findings: Vec<Finding>,
    /// No broker answers.
    pub(crate) unreachable: bool,
    /// librdkafka does not take the configuration.
    pub(crate) misconfigured: bool,
}

/// Looks at the brokers of each cluster, at topics and their retention.
pub(crate) async fn check(config: &Config) -> Checked {
    let mut checked = Checked::default();
    let of_inboxes = config.inboxes.iter().filter_map(|inbox| Some((inbox, inbox.source.kafka()?)));
    let mut ways: BTreeMap<Way<'_>, Vec<(&InboxConfig, &KafkaInbox)>> =
        config.kafka.iter().map(|(name, _)| (Way::to(name), Vec::new())).collect();
    for (inbox, read) in of_inboxes {
        ways.entry(Way::of(read)).or_default().push((inbox, read));
    }
    // A cluster whose inboxes all go ways of their own is looked at on those, unless events go there.
    let is_used = |way: &Way<'_>| {
        let relayed = config.outbox.relay && config.outbox.exchange.is_none();
        let events = relayed && *way == Way::of_relay(&config.outbox);
        let others = ways.keys().any(|other| other != way && other.heading() == way.heading());
        events || !way.is_plain() || !others || !ways[way].is_empty()
    };
    for (way, inboxes) in ways.iter().filter(|(way, _)| is_used(way)) {
        look_at(config, *way, inboxes, &mut checked).await;
    }
    checked
}

async fn look_at(
    config: &Config,
    way: Way<'_>,
    inboxes: &[(&InboxConfig, &KafkaInbox)],
    checked: &mut Checked,
) {
    let subject = way.name(inboxes.first().map(|(inbox, _)| &inbox.consumer));
    let asked = match admin(config, way) {
        Ok(admin) => admin.cluster().await.map(|cluster| (admin, cluster)).map_err(|e| failure(&e)),
        Err(failure) => Err(failure),
    };
    let (admin, cluster) = match asked {
        Ok(reached) => reached,
        Err(Failure { exit, text }) => {
            checked.misconfigured |= exit == Exit::Config;
            checked.unreachable |= exit == Exit::Unreachable;
            let section = way.heading();
            let detail = format!("{text}. Check `brokers` and the properties of {section}");
            checked.findings.push(Finding::error(subject, detail));
            return;
        }
    };
    let version = oncebox_kafka::librdkafka_version();
    let detail = format!("{} answers (librdkafka {version})", cluster.brokers.join(", "));
    checked.findings.push(Finding::ok(subject, detail));
    for (inbox, read) in inboxes {
        for topic in &read.topics {
            match TopicPattern::new(topic) {
                Ok(pattern) => checked.findings.extend(look_at_pattern(&admin, pattern, inbox, read).await),
                Err(_) => checked.findings.push(look_at_topic(&admin, topic, inbox, read).await),
            }
        }
    }
}

/// The topics of a pattern. That there is none yet is no mistake.
async fn look_at_pattern(
    admin: &Admin,
    pattern: TopicPattern,
    inbox: &InboxConfig,
    kafka: &KafkaInbox,
) -> Vec<Finding> {
    let subject = format!("topics {} of {}", pattern.as_str(), inbox.consumer);
    let topics = match admin.matching(pattern).await {
        Ok(topics) => topics,
        Err(e) => return vec![Finding::error(subject, e.to_string())],
    };
    if topics.is_empty() {
        return vec![Finding::warning(
            subject,
            "no topic has such a name yet; one that is created is found then",
        )];
    }
    let more = topics.len().saturating_sub(MAX_SHOWN);
    let more = if more > 0 { format!("; {more} of them are not looked at here") } else { String::new() };
    let detail = format!("{} topics have such a name{more}", topics.len());
    let mut findings = vec![Finding::ok(subject, detail)];
    for topic in topics.iter().take(MAX_SHOWN) {
        findings.push(look_at_topic(admin, topic, inbox, kafka).await);
    }
    findings
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
