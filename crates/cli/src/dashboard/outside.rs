//! What only the broker knows: where logs end, who reads them, how long topics keep messages. Asked beside the pages, so that a
//! broker that does not answer holds up nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oncebox_config::{Config, InboxConfig, KafkaInbox};
use oncebox_core::store::PositionStatus;
use oncebox_dashboard::TopicKeeps;

use crate::cluster::{self, Logs};
use crate::load::Way;

/// How often the retention of topics is asked for.
const KEEPS_EVERY: Duration = Duration::from_secs(5 * 60);
/// Of an inbox so many topics are looked at.
const MAX_TOPICS: usize = 50;

/// How long the topics of each consumer keep messages.
type Keeps = BTreeMap<String, Vec<(String, TopicKeeps)>>;

/// What was answered last.
#[derive(Clone, Default)]
pub(super) struct Outside(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    logs: Arc<Logs>,
    keeps: Arc<Keeps>,
    asked: Option<Instant>,
    /// How many positions it was asked about.
    asked_about: usize,
    asked_keeps: Option<Instant>,
    is_asking: bool,
}

impl Outside {
    /// What was answered last. Asks again, for next time, if that is longer ago than `every`, or there are other positions.
    pub(super) fn last(
        &self,
        config: &Arc<Config>,
        positions: &[PositionStatus],
        every: Duration,
    ) -> (Arc<Logs>, Arc<Keeps>) {
        let mut state = self.lock();
        let is_due =
            state.asked.is_none_or(|asked| asked.elapsed() >= every) || state.asked_about != positions.len();
        let has_kafka = config.inboxes.iter().any(|inbox| inbox.source.kafka().is_some());
        if has_kafka && is_due && !state.is_asking {
            state.is_asking = true;
            state.asked_about = positions.len();
            let wants_keeps = state.asked_keeps.is_none_or(|asked| asked.elapsed() >= KEEPS_EVERY);
            tokio::spawn(self.clone().ask(Arc::clone(config), positions.to_vec(), wants_keeps));
        }
        (Arc::clone(&state.logs), Arc::clone(&state.keeps))
    }

    async fn ask(self, config: Arc<Config>, positions: Vec<PositionStatus>, wants_keeps: bool) {
        let asked = super::blocking(move || async move {
            let logs = cluster::logs_and_groups(&config, &positions).await;
            let keeps = if wants_keeps { Some(keeps(&config).await) } else { None };
            Ok((logs, keeps))
        });
        let asked = asked.await;
        let mut state = self.lock();
        state.is_asking = false;
        state.asked = Some(Instant::now());
        if let Ok((logs, keeps)) = asked {
            state.logs = Arc::new(logs);
            if let Some(keeps) = keeps {
                state.keeps = Arc::new(keeps);
                state.asked_keeps = Some(Instant::now());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keeps(config: &Config) -> Keeps {
    let mut keeps = Keeps::new();
    for inbox in &config.inboxes {
        if let Some(read) = inbox.source.kafka() {
            keeps.insert(inbox.consumer.to_string(), of_inbox(config, inbox, read).await);
        }
    }
    keeps
}

/// What is not answered is left out.
async fn of_inbox(config: &Config, inbox: &InboxConfig, read: &KafkaInbox) -> Vec<(String, TopicKeeps)> {
    let mut found = Vec::new();
    let Ok(admin) = cluster::admin(config, Way::of(read)) else { return found };
    let topics = cluster::topics(&admin, read).await.unwrap_or_default();
    for topic in topics.into_iter().take(MAX_TOPICS) {
        match admin.topic_settings(&topic).await {
            Ok(settings) => {
                let compacted = settings.cleanup_policy.contains("compact");
                let keeps =
                    settings.retention.filter(|_| !compacted).map_or(TopicKeeps::Ever, TopicKeeps::For);
                found.push((topic, keeps));
            }
            Err(error) => {
                tracing::debug!(consumer = %inbox.consumer, topic, %error, "the settings of a topic are not known");
                break;
            }
        }
    }
    found
}
