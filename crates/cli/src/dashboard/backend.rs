//! What the dashboard reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_config::{Config, SourceConfig};
use oncebox_core::clock::Clock;
use oncebox_core::inbox::OnFailure;
use oncebox_core::metrics::COUNT_CAP;
use oncebox_core::operate::{EventPage, LetterPage, WholePage, event_page, find, page, whole_page};
use oncebox_core::store::{
    AuditEntry, AuditFilter, DeadFilter, DeadGroup, EventFilter, Finding, StoreError, StoreStatus,
    StoredDeadLetter,
};
use oncebox_dashboard::{
    Action, Answering, Backend, Configured, Located, Look, Outcome, Place, Seen, Sought, Task, TopicKeeps,
    Trouble,
};

use super::counted::Counted;
use super::outside::Outside;
use super::{Process, act};
use crate::cluster::Logs;
use crate::commands::{self, check, old_transactions};
use crate::exit::{Exit, Failure, is_unreachable};
use crate::stores::ConfiguredStore;

/// How often the broker is asked by a process that only looks, and by one that reads from it and knows most of it.
const ASK_LOOKING: Duration = Duration::from_secs(10);
const ASK_RUNNING: Duration = Duration::from_secs(60);
/// So many groups of dead letters are shown, and so many letters of each are counted.
const MAX_GROUPS: u32 = 100;
const GROUP_COUNT_CAP: u64 = 1_000;
/// So long letters and events are looked for that no index finds; the next page goes on.
const SEARCH_LIMIT: Duration = Duration::from_millis(100);
/// A part of an export may take longer: it has more to carry.
const EXPORT_LIMIT: Duration = Duration::from_secs(2);
/// The checks are not cheap.
const CHECKS_FRESH: Duration = Duration::from_secs(30);

pub(super) struct StoreBackend<S> {
    store: S,
    config: Arc<Config>,
    process: Option<Process>,
    outside: Outside,
    checked: tokio::sync::Mutex<Option<(Instant, Vec<Finding>)>>,
}

impl<S: ConfiguredStore> StoreBackend<S> {
    pub(super) fn new(store: S, config: Arc<Config>, process: Option<Process>) -> Self {
        let (outside, checked) = (Outside::default(), tokio::sync::Mutex::default());
        Self { store, config, process, outside, checked }
    }

    async fn look(&self) -> Result<Look, Failure> {
        let status = self.store.status(COUNT_CAP).await?;
        let paused = self.store.paused().await?;
        let every = if self.process.is_some() { ASK_RUNNING } else { ASK_LOOKING };
        let (logs, keeps) = self.outside.last(&self.config, &status.positions, every);
        let mut notes: Vec<String> =
            logs.unknown().map(|unknown| format!("From the broker: {unknown}")).into_iter().collect();
        notes.extend(old_transactions::finding(&self.store, &self.config.store).await?.map(|old| old.detail));
        let mut look = Look {
            at_ms: Clock::system().now_ms(),
            paused,
            configured: configured(&self.config, &keeps),
            places: places(&status, &logs),
            outbox_max_age: self.config.outbox.relay.then_some(self.config.outbox.max_age),
            notes,
            status,
            ..Look::default()
        };
        if let Some(process) = &self.process {
            add_process(&mut look, process);
        }
        Ok(look)
    }

    async fn checks(&self) -> Result<Vec<Finding>, Failure> {
        let mut checked = self.checked.lock().await;
        if let Some((_, found)) = checked.as_ref().filter(|(at, _)| at.elapsed() < CHECKS_FRESH) {
            return Ok(found.clone());
        }
        let found = check::of_store(&self.store, &self.config).await?;
        *checked = Some((Instant::now(), found.clone()));
        Ok(found)
    }
}

fn configured(config: &Config, keeps: &BTreeMap<String, Vec<(String, TopicKeeps)>>) -> Vec<Configured> {
    let one = |inbox: &oncebox_config::InboxConfig| Configured {
        consumer: inbox.consumer.to_string(),
        reads: match &inbox.source {
            SourceConfig::Kafka(kafka) => kafka.topics.join(", "),
            SourceConfig::Rabbitmq(rabbitmq) => format!("queue {}", rabbitmq.queue),
            SourceConfig::Http(http) => format!("POST {}", http.path),
        },
        has_offsets: inbox.source.kafka().is_some(),
        holds_keys: inbox.on_failure == OnFailure::ParkKey,
        keep: inbox.retention,
        topics: keeps.get(inbox.consumer.as_str()).cloned().unwrap_or_default(),
    };
    config.inboxes.iter().map(one).collect()
}

fn places(status: &StoreStatus, logs: &Logs) -> BTreeMap<Place, Seen> {
    let place = |position: &oncebox_core::store::PositionStatus| {
        let place = Place {
            consumer: position.consumer.clone(),
            topic: position.topic.clone(),
            partition: position.partition,
        };
        let lag = logs.lag(position).and_then(|lag| u64::try_from(lag).ok());
        (place, Seen { lag, age: None, owner: logs.owner(position).map(str::to_owned) })
    };
    status.positions.iter().map(place).collect()
}

/// What this process knows better, because it reads there.
fn add_process(look: &mut Look, process: &Process) {
    for lag in process.monitor.lags() {
        let place =
            Place { consumer: lag.consumer.clone(), topic: lag.topic.to_string(), partition: lag.partition };
        let seen = look.places.entry(place).or_default();
        seen.lag = lag.messages.or(seen.lag);
        seen.age = Some(lag.age);
        seen.owner.get_or_insert_with(|| "this process".to_owned());
    }
    let counted = Counted::of(&process.metrics);
    look.loops = process.monitor.report();
    look.tallies = process.monitor.tallies();
    look.published = counted.published;
    look.runs = true;
}

/// How the dashboard says it.
pub(super) fn trouble(failure: Failure) -> Trouble {
    match failure.exit {
        Exit::Unreachable => Trouble::Away(failure.text),
        Exit::Usage | Exit::Negative => Trouble::Refused(failure.text),
        Exit::Config | Exit::Data => Trouble::Failed(failure.text),
    }
}

fn store_trouble(error: StoreError) -> Trouble {
    if is_unreachable(&error) {
        Trouble::Away(Failure::from(error).text)
    } else {
        Trouble::Failed(Failure::from(error).text)
    }
}

impl<S: ConfiguredStore> Backend for StoreBackend<S> {
    fn look(&self) -> Answering<'_, Look> {
        Box::pin(async { self.look().await.map_err(trouble) })
    }

    fn checks(&self) -> Answering<'_, Vec<Finding>> {
        Box::pin(async { self.checks().await.map_err(trouble) })
    }

    fn dead_letters(&self, filter: DeadFilter) -> Answering<'_, LetterPage> {
        Box::pin(async move { page(&self.store, &filter, SEARCH_LIMIT).await.map_err(store_trouble) })
    }

    fn whole_letters(&self, filter: DeadFilter) -> Answering<'_, WholePage> {
        Box::pin(async move { whole_page(&self.store, &filter, EXPORT_LIMIT).await.map_err(store_trouble) })
    }

    fn find(&self, sought: Sought) -> Answering<'_, Located> {
        Box::pin(async move {
            let asked = commands::find::asked(&self.store, &self.config, sought.consumer.as_ref()).await;
            let consumers = asked.map_err(store_trouble)?;
            let found = find(&self.store, &consumers, sought.tenant.as_ref(), &sought.id).await;
            let all_tenants = !commands::find::has_tenants(&self.config, sought.tenant.as_ref());
            Ok(Located { found: found.map_err(store_trouble)?, all_tenants })
        })
    }

    fn dead_groups(&self, consumer: Option<String>) -> Answering<'_, Vec<DeadGroup>> {
        Box::pin(async move {
            let groups = self.store.dead_groups(consumer.as_deref(), MAX_GROUPS, GROUP_COUNT_CAP).await;
            let mut groups = groups.map_err(store_trouble)?;
            groups.sort_by_key(|group| std::cmp::Reverse(group.last_ms));
            Ok(groups)
        })
    }

    fn audit(&self, filter: AuditFilter) -> Answering<'_, Vec<AuditEntry>> {
        Box::pin(async move { self.store.actions(&filter).await.map_err(store_trouble) })
    }

    fn dead_letter(&self, number: i64) -> Answering<'_, Option<StoredDeadLetter>> {
        Box::pin(async move { self.store.dead_letter(number).await.map_err(store_trouble) })
    }

    fn events(&self, filter: EventFilter) -> Answering<'_, EventPage> {
        Box::pin(async move { event_page(&self.store, &filter, SEARCH_LIMIT).await.map_err(store_trouble) })
    }

    fn act(&self, action: Action, task: Task) -> Answering<'static, Outcome> {
        let config = Arc::clone(&self.config);
        Box::pin(async move { act::act(config, action, task).await.map_err(trouble) })
    }
}
