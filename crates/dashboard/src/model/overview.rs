//! Whether every message changes the database once, on one page.

use oncebox_core::monitor::LoopReport;
use oncebox_core::store::{Cause, Duplicates, Pause, PositionStatus};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Level, Time};
use crate::backend::Look;
use crate::history::History;
use crate::text::{capped, duration, grouped};

/// A loop that has work and no success for this long is stalled, as `/healthz` has it.
pub(crate) const STALL_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// Everything at one time.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// When it was read.
    pub(crate) at: Time,
    pub(crate) verdict: Verdict,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) outbox: Outbox,
    /// How many receipts there are, as the database estimates it.
    pub(crate) receipts_estimate: u64,
    /// Since when this process remembers rates.
    pub(crate) history_since: Option<Time>,
    /// What is not known, and why.
    pub(crate) notes: Vec<String>,
}

/// In one line, with what it rests on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Verdict {
    pub(crate) level: Level,
    pub(crate) said: String,
    pub(crate) reasons: Vec<Reason>,
}

/// Something that wants attention.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Reason {
    pub(crate) level: Level,
    pub(crate) said: String,
    /// The page that shows more of it.
    pub(crate) page: String,
}

/// How a consumer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// It applies what comes, as far as this process can see.
    Running,
    /// An operator has paused it.
    Paused,
    /// A partition stands still, or a loop of it is in trouble.
    Stopped,
    /// Nobody has ever read for it.
    New,
}

impl State {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::New => "new",
        }
    }
}

/// A pause.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Paused {
    pub(crate) since: Time,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

impl Paused {
    fn of(pause: &Pause) -> Self {
        Self { since: Time(pause.since_ms), by: pause.by.clone(), reason: pause.reason.clone() }
    }
}

/// Duplicates by what made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Causes {
    /// The same record once more, after a process had ended or lost its partition before it could acknowledge.
    pub(crate) redelivered: u64,
    /// The same record once more, because somebody has moved the position or the broker's offset back.
    pub(crate) rewound: u64,
    /// Another record with the same id.
    pub(crate) published_twice: u64,
    /// Nobody can tell, or they were counted before causes were.
    pub(crate) unknown: u64,
}

impl Causes {
    fn of(duplicates: &Duplicates) -> Self {
        Self {
            redelivered: duplicates.of(Cause::Redelivered),
            rewound: duplicates.of(Cause::Rewound),
            published_twice: duplicates.of(Cause::PublishedTwice),
            unknown: duplicates.of(Cause::Unknown),
        }
    }

    /// Those that there were, as they are shown.
    pub(crate) fn shown(self) -> impl Iterator<Item = (Cause, u64)> {
        let counts = [self.redelivered, self.rewound, self.published_twice, self.unknown];
        Cause::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0)
    }
}

/// A consumer in a row.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Consumer {
    pub(crate) consumer: String,
    pub(crate) state: State,
    pub(crate) paused: Option<Paused>,
    /// What it reads; nothing if the configuration does not know it.
    pub(crate) reads: Option<String>,
    /// Messages applied so far, in all processes.
    pub(crate) applied: u64,
    /// In the last minute.
    pub(crate) applied_per_second: Option<f64>,
    /// Copies that changed nothing, in all processes.
    pub(crate) duplicates_suppressed: u64,
    pub(crate) duplicates_per_second: Option<f64>,
    /// The same by cause.
    pub(crate) duplicates_by_cause: Causes,
    /// Messages that are not applied yet, as far as the source says.
    pub(crate) lag: Option<u64>,
    /// How old the oldest of them is, as far as this process knows.
    pub(crate) oldest_unapplied_seconds: Option<f64>,
    /// Until when all partitions are caught up; nothing if one of them never was.
    pub(crate) caught_up_at: Option<Time>,
    /// Counted up to 10,000.
    pub(crate) dead_letters: u64,
    pub(crate) partitions: usize,
    pub(crate) partitions_stopped: usize,
}

/// The outbox in numbers, counted up to 10,000.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Outbox {
    pub(crate) waiting: u64,
    pub(crate) oldest_seconds: Option<f64>,
    pub(crate) delayed: u64,
    pub(crate) held: u64,
    pub(crate) parked: u64,
    /// By this process, in the last minute.
    pub(crate) published_per_second: Option<f64>,
}

impl Overview {
    pub(crate) fn of(look: &Look, history: &History) -> Self {
        let consumers: Vec<Consumer> =
            names(look).iter().map(|name| Consumer::of(look, history, name)).collect();
        let outbox = Outbox::of(look, history);
        Self {
            at: Time(look.at_ms),
            verdict: Verdict::of(look, &consumers, &outbox),
            consumers,
            outbox,
            receipts_estimate: look.status.receipts_estimate,
            history_since: history.since_ms().map(Time),
            notes: look.notes.clone(),
        }
    }
}

/// All consumers that the configuration or the database knows.
pub(crate) fn names(look: &Look) -> Vec<String> {
    let configured = look.configured.iter().map(|one| one.consumer.as_str());
    let stored = look.status.consumers.iter().map(|one| one.consumer.as_str());
    let positions = look.status.positions.iter().map(|one| one.consumer.as_str());
    let paused = look.paused.iter().map(|one| one.consumer.as_str());
    let mut names: Vec<String> =
        configured.chain(stored).chain(positions).chain(paused).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The loops of a consumer's partitions that stand still or fail, with why.
pub(crate) fn troubled<'a>(look: &'a Look, consumer: &str) -> Vec<&'a LoopReport> {
    let of_it = [format!("inbox:{consumer}"), format!("source:{consumer}"), format!("kafka:{consumer}")];
    look.loops.iter().filter(|one| of_it.contains(&one.name) && one.is_unhealthy(STALL_LIMIT)).collect()
}

impl Consumer {
    pub(crate) fn of(look: &Look, history: &History, name: &str) -> Self {
        let positions: Vec<&PositionStatus> =
            look.status.positions.iter().filter(|p| p.consumer == name).collect();
        let active = || positions.iter().filter(|p| !p.retired);
        let seen = || look.places.iter().filter(|(place, _)| place.consumer == name).map(|(_, seen)| seen);
        let pause = look.paused.iter().find(|pause| pause.consumer == name);
        let stopped = troubled(look, name).len();
        let state = match (pause, stopped) {
            (Some(_), _) => State::Paused,
            (None, 1..) => State::Stopped,
            (None, 0) if positions.is_empty() => State::New,
            (None, 0) => State::Running,
        };
        // A queue tells the database only now and then; this process knows what it has done itself.
        let tally = look.tallies.get(name).copied().unwrap_or_default();
        let counted: Duplicates = positions.iter().map(|p| p.duplicates).sum();
        let duplicates = if counted.total() < tally.duplicates.total() { tally.duplicates } else { counted };
        let in_database = look.status.consumers.iter().find(|one| one.consumer == name);
        let caught_up: Option<Vec<i64>> = active().map(|p| p.caught_up_ms).collect();
        let lags: Vec<u64> = seen().filter_map(|seen| seen.lag).collect();
        let ages = seen().filter_map(|seen| seen.age);
        Self {
            consumer: name.to_owned(),
            state,
            paused: pause.map(Paused::of),
            reads: look.configured.iter().find(|one| one.consumer == name).map(|one| one.reads.clone()),
            applied: positions.iter().map(|p| p.applied).sum::<u64>().max(tally.applied),
            applied_per_second: history.rate(name, |counts| counts.applied),
            duplicates_suppressed: duplicates.total(),
            duplicates_per_second: history.rate(name, |counts| counts.duplicates),
            duplicates_by_cause: Causes::of(&duplicates),
            lag: (!lags.is_empty()).then(|| lags.iter().sum()),
            oldest_unapplied_seconds: ages.max().map(|age| age.as_secs_f64()),
            caught_up_at: caught_up.and_then(|times| times.into_iter().min()).map(Time),
            dead_letters: in_database.map_or(0, |one| one.dead_letters),
            partitions: active().count(),
            partitions_stopped: stopped,
        }
    }
}

impl Outbox {
    pub(crate) fn of(look: &Look, history: &History) -> Self {
        let outbox = &look.status.outbox;
        Self {
            waiting: outbox.pending,
            oldest_seconds: outbox.oldest.map(|age| age.as_secs_f64()),
            delayed: outbox.delayed,
            held: outbox.held,
            parked: outbox.parked,
            published_per_second: history.publishing(),
        }
    }
}

impl Verdict {
    fn of(look: &Look, consumers: &[Consumer], outbox: &Outbox) -> Self {
        let mut reasons = Vec::new();
        let mut add = |level, said: String, page: String| reasons.push(Reason { level, said, page });
        for one in consumers {
            let name = &one.consumer;
            let page = format!("/consumers/{}", crate::html::segment(name));
            match one.state {
                State::Stopped => add(Level::Wrong, format!("{name} stands still or fails"), page.clone()),
                State::Paused => add(Level::Look, format!("{name} is paused"), page.clone()),
                State::Running | State::New => {}
            }
            if one.dead_letters > 0 {
                let letters = if one.dead_letters == 1 { "dead letter" } else { "dead letters" };
                let page = format!("/dead?consumer={}", crate::html::segment(name));
                add(Level::Look, format!("{} {letters} of {name}", capped(one.dead_letters)), page);
            }
        }
        let others = look.loops.iter().filter(|one| {
            let of_a_consumer = ["inbox:", "source:", "kafka:"].iter().any(|kind| one.name.starts_with(kind));
            !of_a_consumer && one.is_unhealthy(STALL_LIMIT)
        });
        for one in others {
            add(Level::Wrong, format!("{} has a problem", one.name), "/health".to_owned());
        }
        if outbox.parked > 0 {
            let events = if outbox.parked == 1 { "event was" } else { "events were" };
            add(
                Level::Look,
                format!("{} {events} given up", capped(outbox.parked)),
                "/outbox?state=parked".to_owned(),
            );
        }
        let (oldest, limit) = (look.status.outbox.oldest.unwrap_or_default(), look.outbox_max_age);
        if limit.is_some_and(|limit| oldest > limit) {
            add(
                Level::Wrong,
                format!("the oldest event waits for {}", duration(oldest)),
                "/outbox".to_owned(),
            );
        }
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.level));
        let level = reasons.iter().map(|reason| reason.level).max().unwrap_or(Level::Ok);
        let said = match (level, reasons.len()) {
            (Level::Ok, _) => all_well(consumers),
            (Level::Look, 1) => "One thing wants a look".to_owned(),
            (Level::Look, number) => format!("{number} things want a look"),
            (Level::Wrong, 1) => "One thing is wrong".to_owned(),
            (Level::Wrong, number) => {
                let wrong = reasons.iter().filter(|reason| reason.level == Level::Wrong).count();
                format!(
                    "{wrong} of {number} things that want a look {} wrong",
                    if wrong == 1 { "is" } else { "are" }
                )
            }
        };
        Self { level, said, reasons }
    }
}

fn all_well(consumers: &[Consumer]) -> String {
    let applied: u64 = consumers.iter().map(|one| one.applied).sum();
    let suppressed: u64 = consumers.iter().map(|one| one.duplicates_suppressed).sum();
    match (consumers.len(), applied) {
        (0, _) => "Nothing has happened yet".to_owned(),
        (_, 0) => "All is well; nothing was applied yet".to_owned(),
        _ => format!(
            "Every message changed the database once: {} applied, {} duplicates suppressed",
            grouped(applied),
            grouped(suppressed)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::position;
    use oncebox_core::monitor::Monitor;
    use oncebox_core::store::{ConsumerStatus, StoreStatus};

    fn look() -> Look {
        let positions = vec![position("stock", 0, 90, 10), position("stock", 1, 10, 0)];
        Look { status: StoreStatus { positions, ..StoreStatus::default() }, ..Look::default() }
    }

    fn overview(look: &Look) -> Overview {
        Overview::of(look, &History::default())
    }

    #[test]
    fn all_is_well_until_something_is_not() {
        let seen = overview(&look());
        assert_eq!(seen.verdict.level, Level::Ok);
        assert_eq!(
            seen.verdict.said,
            "Every message changed the database once: 100 applied, 10 duplicates suppressed"
        );
        assert_eq!(overview(&Look::default()).verdict.said, "Nothing has happened yet");
    }

    #[test]
    fn duplicates_are_told_by_cause_of_all_partitions() {
        let mut look = look();
        look.status.positions[0].duplicates = Duplicates::stored(10, 4, 0, 5);
        look.status.positions[1].duplicates = Duplicates::stored(2, 0, 2, 0);
        let causes = Causes { redelivered: 4, rewound: 2, published_twice: 5, unknown: 1 };
        let seen = overview(&look).consumers.remove(0);
        assert_eq!((seen.duplicates_suppressed, seen.duplicates_by_cause), (12, causes));
        let words: Vec<_> =
            causes.shown().map(|(cause, count)| format!("{count} {}", cause.in_words())).collect();
        assert_eq!(words.join(", "), "4 redelivered, 2 rewound, 5 published twice, 1 of unknown cause");
    }

    #[test]
    fn dead_letters_want_a_look_and_what_stands_still_is_wrong() {
        let mut look = look();
        let dead = ConsumerStatus {
            consumer: "stock".to_owned(),
            dead_letters: 3,
            purged_before_ms: None,
            replayed: 0,
        };
        look.status.consumers = vec![dead];
        let seen = overview(&look).verdict;
        assert_eq!((seen.level, seen.reasons[0].page.as_str()), (Level::Look, "/dead?consumer=stock"));
        let monitor = Monitor::default();
        let stopped = monitor.register("inbox:stock", "orders/1");
        stopped.stopped("a gap");
        look.loops = monitor.report();
        let seen = overview(&look);
        assert_eq!(seen.verdict.level, Level::Wrong);
        assert_eq!(seen.verdict.said, "1 of 2 things that want a look is wrong");
        assert_eq!((seen.consumers[0].state, seen.consumers[0].partitions_stopped), (State::Stopped, 1));
    }

    #[test]
    fn a_partition_that_was_never_caught_up_says_so_for_its_consumer() {
        let mut look = look();
        assert_eq!(overview(&look).consumers[0].caught_up_at, Some(Time(0)));
        look.status.positions[1].caught_up_ms = None;
        assert_eq!(overview(&look).consumers[0].caught_up_at, None);
    }
}
