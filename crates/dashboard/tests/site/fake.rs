//! A backend that says what a test wants, and remembers what it was asked to do.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::message::Record;
use oncebox_core::monitor::Monitor;
use oncebox_core::names::{ConsumerName, Tenant};
use oncebox_core::operate::{EventPage, Found, FoundAt, LetterPage, WholePage};
use oncebox_core::store::{
    AuditEntry, AuditFilter, CausedEvents, ConsumerStatus, DeadFilter, DeadGroup, DeadLetter, DeadSummary,
    Duplicates, EventFilter, EventState, Finding, FoundReceipt, OutboxEntry, OutboxStatus, Pause,
    PositionStatus, ShardStatus, StoreStatus, StoredDeadLetter, StoredEvent,
};
use oncebox_dashboard::{
    Action, Answering, Backend, Configured, Located, Look, Outcome, Place, Seen, Sought, Task, TopicKeeps,
    Trouble,
};

/// When everything happens.
pub(crate) const NOW_MS: i64 = 1_767_225_600_000;

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) look: Look,
    pub(crate) letters: Vec<StoredDeadLetter>,
    pub(crate) events: Vec<OutboxEntry>,
    pub(crate) away: bool,
    /// How far letters and events were looked at, if not at all of them.
    pub(crate) looked_until: Option<i64>,
    /// What was done, and by whom.
    pub(crate) done: Mutex<Vec<(Action, String)>>,
}

impl Fake {
    /// Where nothing has happened.
    pub(crate) fn empty() -> Self {
        Self { look: Look { at_ms: NOW_MS, ..Look::default() }, ..Self::default() }
    }

    /// Where the database does not answer.
    pub(crate) fn away() -> Self {
        Self { away: true, ..Self::empty() }
    }

    /// Where searches end early.
    pub(crate) fn looked_until(self, number: i64) -> Self {
        Self { looked_until: Some(number), ..self }
    }

    /// Two consumers, one of which is paused and one of which stands still; dead letters; an outbox with a parked event.
    pub(crate) fn busy() -> Self {
        let mut fake = Self::empty();
        fake.look.status = StoreStatus {
            positions: vec![position("stock", 0), position("stock", 1), position("mail", 0)],
            consumers: vec![ConsumerStatus {
                consumer: "stock".to_owned(),
                dead_letters: 2,
                purged_before_ms: Some(NOW_MS - 86_400_000),
                replayed: 0,
            }],
            receipts_estimate: 1_234_567,
            outbox: OutboxStatus {
                pending: 7,
                oldest: Some(Duration::from_secs(90)),
                delayed: 1,
                held: 2,
                parked: 1,
                shards: vec![ShardStatus {
                    shard: 3,
                    owner: Some("relay-a".to_owned()),
                    epoch: 4,
                    expires_in: Some(Duration::from_secs(7)),
                }],
            },
        };
        fake.look.paused = vec![Pause {
            consumer: "mail".to_owned(),
            since_ms: NOW_MS - 60_000,
            by: "ana".to_owned(),
            reason: Some("the warehouse is being counted".to_owned()),
        }];
        fake.look.configured = vec![Configured {
            consumer: "stock".to_owned(),
            reads: "orders".to_owned(),
            has_offsets: true,
            holds_keys: true,
            keep: Duration::from_secs(7 * 86_400),
            topics: vec![("orders".to_owned(), TopicKeeps::Ever)],
        }];
        let place = Place { consumer: "stock".to_owned(), topic: "orders".to_owned(), partition: 0 };
        let seen =
            Seen { lag: Some(12), age: Some(Duration::from_secs(3)), owner: Some("host-1".to_owned()) };
        fake.look.places = [(place, seen)].into();
        let monitor = Monitor::default();
        let stopped = monitor.register("inbox:stock", "orders/1");
        stopped.stopped("the log was truncated");
        fake.look.loops = monitor.report();
        fake.look.runs = true;
        fake.letters = vec![letter(5, "stock", "order-5"), letter(9, "stock", "order-9")];
        fake.events = vec![event(41)];
        fake
    }
}

fn position(consumer: &str, partition: i32) -> PositionStatus {
    PositionStatus {
        consumer: consumer.to_owned(),
        topic: "orders".to_owned(),
        partition,
        next_offset: Some(1_000),
        log: None,
        caught_up_ms: Some(NOW_MS - 5_000),
        retired: false,
        epoch: 3,
        starts: 0,
        applied: 900,
        duplicates: Duplicates::stored(100, 60, 0, 30),
        updated_at_ms: NOW_MS - 2_000,
    }
}

pub(crate) fn letter(number: i64, consumer: &str, id: &str) -> StoredDeadLetter {
    let mut record = Record::at("orders", 0, number * 10);
    record.key = Some(Bytes::from_static(b"key-of-a-customer"));
    record.payload = Some(Bytes::from_static(b"{\"iban\":\"DE00 secret\"}"));
    record.headers.push("traceparent", Some(Bytes::from_static(b"00-secret-value")));
    StoredDeadLetter {
        number,
        consumer: consumer.to_owned(),
        letter: DeadLetter {
            tenant: Tenant::new("acme").unwrap(),
            message_id: Some(id.to_owned()),
            record,
            error: "no such article".to_owned(),
            attempts: 5,
        },
        failed_at_ms: NOW_MS - 120_000,
        edit: None,
    }
}

pub(crate) fn event(seq: i64) -> OutboxEntry {
    OutboxEntry {
        event: StoredEvent {
            seq,
            id: uuid::Uuid::from_u128(7),
            topic: "invoice.mail".into(),
            key: Some(Bytes::from_static(b"key-of-a-customer")),
            payload: Some(Bytes::from_static(b"{}")),
            headers: oncebox_core::message::Headers::new(),
            created_at_ms: NOW_MS - 300_000,
            deliver_at_ms: None,
            causation_id: Some("order-1".to_owned()),
            attempts: 20,
        },
        shard: 3,
        consumer: Some("stock".to_owned()),
        tenant: None,
        state: EventState::Parked,
        state_at_ms: Some(NOW_MS - 30_000),
        error: Some("410 Gone".to_owned()),
    }
}

fn summary(stored: &StoredDeadLetter) -> DeadSummary {
    let record = &stored.letter.record;
    DeadSummary {
        number: stored.number,
        consumer: stored.consumer.clone(),
        tenant: stored.letter.tenant.as_str().to_owned(),
        message_id: stored.letter.message_id.clone(),
        topic: record.topic.to_string(),
        partition: record.partition,
        offset: record.offset,
        key: record.key.as_ref().map(|key| key.to_vec()),
        payload_bytes: record.payload.as_ref().map(|payload| payload.len() as u64),
        error: stored.letter.error.clone(),
        attempts: stored.letter.attempts,
        failed_at_ms: stored.failed_at_ms,
        edited: stored.edit.is_some(),
    }
}

impl Fake {
    /// The newest letters that a filter means.
    fn meant(&self, filter: &DeadFilter) -> Vec<StoredDeadLetter> {
        let is_meant = |one: &&StoredDeadLetter| {
            filter.before.is_none_or(|before| one.number < before)
                && filter.consumer.as_ref().is_none_or(|consumer| *consumer == one.consumer)
                && filter.message_id.as_ref().is_none_or(|id| Some(id) == one.letter.message_id.as_ref())
                && filter.failed_from_ms.is_none_or(|from| one.failed_at_ms >= from)
        };
        assert!(filter.newest_first, "people want the newest first");
        self.letters.iter().rev().filter(is_meant).take(filter.limit as usize).cloned().collect()
    }

    fn answer<T: Send + 'static>(&self, answer: T) -> Answering<'_, T> {
        let away = self.away;
        Box::pin(async move {
            if away { Err(Trouble::Away("connection <refused>".to_owned())) } else { Ok(answer) }
        })
    }
}

impl Backend for Fake {
    fn look(&self) -> Answering<'_, Look> {
        self.answer(self.look.clone())
    }

    fn checks(&self) -> Answering<'_, Vec<Finding>> {
        self.answer(vec![
            Finding::ok("schema", "version 12"),
            Finding::warning("durability", "fsync is off: turn it on"),
        ])
    }

    fn dead_letters(&self, filter: DeadFilter) -> Answering<'_, LetterPage> {
        let letters: Vec<_> = self.meant(&filter).iter().map(summary).collect();
        let next = letters.last().filter(|_| letters.len() >= filter.limit as usize).map(|last| last.number);
        self.answer(LetterPage { letters, next: next.or(self.looked_until) })
    }

    fn whole_letters(&self, filter: DeadFilter) -> Answering<'_, WholePage> {
        let letters = self.meant(&filter);
        let next = letters.last().filter(|_| letters.len() >= filter.limit as usize).map(|last| last.number);
        self.answer(WholePage { letters, next })
    }

    fn find(&self, sought: Sought) -> Answering<'_, Located> {
        let at = |letter: &StoredDeadLetter| FoundAt {
            consumer: ConsumerName::new(letter.consumer.clone()).unwrap(),
            tenant: letter.letter.tenant.clone(),
            receipt: Some(FoundReceipt { processed_at_ms: Some(letter.failed_at_ms) }),
            letters: vec![summary(letter)],
        };
        let of_id =
            |letter: &&StoredDeadLetter| letter.letter.message_id.as_deref() == Some(sought.id.as_str());
        let caused = |entry: &&OutboxEntry| entry.event.causation_id.as_deref() == Some(sought.id.as_str());
        let found = Found {
            at: self.letters.iter().filter(of_id).map(at).collect(),
            events: CausedEvents {
                events: self.events.iter().filter(caused).cloned().collect(),
                looked_at_all: false,
            },
            traces: vec!["4bf92f3577b34da6a3ce929d0e0e4736".to_owned()],
            asked: vec![ConsumerName::new("stock").unwrap()],
        };
        self.answer(Located { found, all_tenants: sought.tenant.is_some() })
    }

    fn dead_groups(&self, _: Option<String>) -> Answering<'_, Vec<DeadGroup>> {
        let group = |letter: &StoredDeadLetter| DeadGroup {
            group: "stock-abc".to_owned(),
            consumer: letter.consumer.clone(),
            error: letter.letter.error.clone(),
            letters: 2,
            keys: 1,
            first_ms: letter.failed_at_ms,
            last_ms: letter.failed_at_ms,
            newest: letter.number,
        };
        self.answer(self.letters.last().map(group).into_iter().collect())
    }

    fn audit(&self, _: AuditFilter) -> Answering<'_, Vec<AuditEntry>> {
        let entry = |letter: &StoredDeadLetter| AuditEntry {
            number: 1,
            at_ms: NOW_MS - 9_000,
            ended_at_ms: None,
            who: "cli:ana".to_owned(),
            action: "replay".to_owned(),
            consumer: Some("stock".to_owned()),
            parameters: serde_json::json!({ "error": letter.letter.error }),
            result: Some(serde_json::json!({ "applied": 3 })),
            error: None,
        };
        self.answer(self.letters.last().map(entry).into_iter().collect())
    }

    fn dead_letter(&self, number: i64) -> Answering<'_, Option<StoredDeadLetter>> {
        self.answer(self.letters.iter().find(|letter| letter.number == number).cloned())
    }

    fn events(&self, filter: EventFilter) -> Answering<'_, EventPage> {
        let is_meant = |one: &&OutboxEntry| filter.state.is_none_or(|state| state == one.state);
        let events = self.events.iter().filter(is_meant).cloned().collect();
        self.answer(EventPage { events, next: self.looked_until })
    }

    fn act(&self, action: Action, task: Task) -> Answering<'static, Outcome> {
        self.done.lock().unwrap().push((action, task.by));
        Box::pin(async { Ok(Outcome::done(1, "It is done")) })
    }
}
