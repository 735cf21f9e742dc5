//! Receipts must outlive the messages that may come back.

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox_config::{InboxConfig, KafkaInbox};
use oncebox_core::backoff;
use oncebox_core::monitor::{LoopHandle, Monitor};
use oncebox_kafka::admin::Admin;
use oncebox_kafka::{Kafka, TopicGate, TopicPattern};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::cluster::{retention_problem, topics};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon a topic is seen to keep messages for another time.
const LOOK_INTERVAL: Duration = Duration::from_secs(20);
/// What such an inbox has a problem with.
const KEPT_TOO_SHORT: &str = "retention";
/// The least time between two looks, however many topics are asked about.
const LOOK_REST: Duration = Duration::from_secs(1);
/// How often the topics of a pattern are looked at only to warn.
const PATTERN_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// `retention_check = "warn"`: says it once of each topic that keeps messages longer than receipts are kept. Nobody waits for it.
/// Where there is a pattern it looks again now and then, since there may be new ones.
pub(crate) fn warn_of_all(kafka: &Kafka, inbox: &InboxConfig, read: &KafkaInbox, stop: &CancellationToken) {
    let (kafka, inbox, read, stop) = (kafka.clone(), inbox.clone(), read.clone(), stop.clone());
    tokio::spawn(async move {
        let mut said = BTreeSet::new();
        while !stop.is_cancelled() {
            match look_at_all(&kafka, &inbox, &read).await {
                Ok(looked) => {
                    for problem in looked.iter().filter_map(Looked::named) {
                        if said.insert(problem.clone()) {
                            warn!(consumer = %inbox.consumer, "{problem}");
                        }
                    }
                }
                Err(error) => {
                    warn!(consumer = %inbox.consumer, error, "the retention of the topics is not known");
                }
            }
            if !read.topics.iter().any(|topic| TopicPattern::is_one(topic)) {
                return;
            }
            pause(PATTERN_INTERVAL, &stop).await;
        }
    });
}

/// `retention_check = "refuse"`: an inbox is not started as long as a topic keeps messages longer than receipts are kept, or
/// nobody knows how long: it is no member of its group, so that the process is not ready. A topic that a pattern brings later is
/// not read before it was looked at, and as long as that holds of it; the others are. A topic that is read is not stopped: what is
/// read now has its receipts. The inbox is red instead.
pub(crate) struct Refusal {
    kafka: Kafka,
    inbox: InboxConfig,
    read: KafkaInbox,
    gate: TopicGate,
    health: LoopHandle,
}

impl Refusal {
    pub(crate) fn new(kafka: &Kafka, inbox: &InboxConfig, read: &KafkaInbox, monitor: &Monitor) -> Self {
        let health = monitor.register(format!("retention:{}", inbox.consumer), "");
        let (kafka, inbox, read) = (kafka.clone(), inbox.clone(), read.clone());
        Self { kafka, inbox, read, gate: TopicGate::default(), health }
    }

    /// Through which the source reads.
    pub(crate) fn gate(&self) -> TopicGate {
        self.gate.clone()
    }

    /// Waits until the inbox may start. False if `stop` comes first.
    pub(crate) async fn allows_start(&self, stop: &CancellationToken) -> bool {
        let consumer = &self.inbox.consumer;
        let (mut tries, mut said) = (0, None);
        while !stop.is_cancelled() {
            let wait = match self.look().await {
                Ok(looked) => match in_words(&looked) {
                    None => {
                        for Looked { topic, .. } in &looked {
                            self.gate.open(topic);
                        }
                        if said.is_some() {
                            info!(%consumer, "its topics keep messages no longer than its receipts: starting");
                        }
                        return true;
                    }
                    Some(reason) => {
                        if said.as_ref() != Some(&reason) {
                            error!(%consumer, reason, "not started (retention_check = \"refuse\"); looking again from time to time");
                        }
                        said = Some(reason);
                        LOOK_INTERVAL
                    }
                },
                Err(reason) => {
                    tries += 1;
                    if self.health.failed(&reason) {
                        warn!(%consumer, reason, "the retention of the topics is not known yet; trying again");
                    }
                    backoff::QUESTION.delay(tries)
                }
            };
            pause(wait, stop).await;
        }
        false
    }

    /// Looks again until `stop`: somebody may change a topic, and a pattern may bring new ones.
    pub(crate) async fn watch(&self, stop: &CancellationToken) {
        let consumer = &self.inbox.consumer;
        let mut said = None;
        loop {
            let asked = self.wait(stop).await;
            if stop.is_cancelled() {
                return;
            }
            match self.look().await {
                Ok(looked) => {
                    let (read, new) = looked.into_iter().partition(|topic| self.gate.is_open(&topic.topic));
                    self.decide(new);
                    let problem = in_words(&read);
                    match &problem {
                        Some(reason) if said.as_ref() != Some(reason) => {
                            error!(%consumer, reason, "its receipts are kept too short (retention_check = \"refuse\"); it would not start again");
                        }
                        None if said.is_some() => info!(%consumer, "its receipts are kept long enough again"),
                        _ => {}
                    }
                    said = problem;
                }
                // A topic stands still for it.
                Err(reason) if asked => {
                    if self.health.failed(&reason) {
                        warn!(%consumer, reason, "the retention of a new topic is not known yet; trying again");
                    }
                }
                // What is not known is no news: the source itself says it if no broker answers.
                Err(_) => {}
            }
        }
    }

    /// Until the next look. True if a topic is asked about.
    async fn wait(&self, stop: &CancellationToken) -> bool {
        pause(LOOK_REST, stop).await;
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = self.gate.asked() => true,
            () = tokio::time::sleep(LOOK_INTERVAL) => false,
        }
    }

    /// Which of the topics that are not read yet may be.
    fn decide(&self, topics: Vec<Looked>) {
        let consumer = &self.inbox.consumer;
        for Looked { topic, problem } in topics {
            match problem {
                Some(problem) => {
                    if self.gate.refuse(&topic, format!("{problem} (retention_check = \"refuse\")")) {
                        error!(%consumer, topic, problem, "the topic is not read (retention_check = \"refuse\"); looking again from time to time");
                    }
                }
                None => {
                    self.gate.open(&topic);
                    info!(%consumer, topic, "a topic that keeps messages no longer than receipts: reading it");
                }
            }
        }
    }

    /// What is wrong, which is shown until it is mended.
    async fn look(&self) -> Result<Vec<Looked>, String> {
        let looked = look_at_all(&self.kafka, &self.inbox, &self.read).await?;
        self.health.idle();
        match in_words(&looked) {
            Some(reason) => {
                self.health.problem(KEPT_TOO_SHORT, format!("{reason} (retention_check = \"refuse\")"));
            }
            None => self.health.over(KEPT_TOO_SHORT),
        }
        Ok(looked)
    }
}

async fn pause(wait: Duration, stop: &CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = tokio::time::sleep(wait) => {}
    }
}

/// A topic, and why receipts are kept too short for it, if they are.
struct Looked {
    topic: String,
    problem: Option<String>,
}

impl Looked {
    fn named(&self) -> Option<String> {
        self.problem.as_ref().map(|problem| format!("topic {}: {problem}", self.topic))
    }
}

fn in_words(looked: &[Looked]) -> Option<String> {
    let problems: Vec<String> = looked.iter().filter_map(Looked::named).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

async fn look_at_all(kafka: &Kafka, inbox: &InboxConfig, read: &KafkaInbox) -> Result<Vec<Looked>, String> {
    // Made and dropped off the runtime: both may take their time.
    let kafka = kafka.clone();
    let made = tokio::task::spawn_blocking(move || kafka.admin(ANSWER_TIMEOUT)).await;
    let admin = made.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    let looked = look_at_each(&admin, inbox, read).await;
    admin.close();
    looked
}

async fn look_at_each(admin: &Admin, inbox: &InboxConfig, read: &KafkaInbox) -> Result<Vec<Looked>, String> {
    let mut looked = Vec::new();
    for topic in topics(admin, read).await.map_err(|e| e.to_string())? {
        let problem = retention_problem(admin, &topic, inbox).await.map_err(|e| e.to_string())?;
        looked.push(Looked { topic, problem });
    }
    Ok(looked)
}
