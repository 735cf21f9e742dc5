//! The life of one process: it takes over the partition, gets what is not acknowledged, and stops or dies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::message::Record;
use oncebox_core::source::{Answer, Answered};
use oncebox_core::store::{DeadFilter, InboxStore};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, timeout};

use crate::crash::{CrashPoint, Life};
use crate::delivered::{Delivered, End};
use crate::inbox::TestInbox;
use crate::log::Log;
use crate::message::TestMessage;
use crate::partition::Partition;

/// How often a look is taken at what nobody is told of: a partition that stands still.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How many dead letters are looked through at once.
const PAGE: u32 = 1000;

/// What a process has come to.
struct Outcome {
    answers: HashMap<i64, Answer>,
    stands_still: Option<String>,
}

impl<S: InboxStore> TestInbox<S> {
    /// Appends the messages to the topic and lets a process read it. Says what became of all it has read, in the order of the
    /// topic.
    pub(crate) async fn run(
        &self,
        topic: &Arc<str>,
        messages: &[&TestMessage],
        crash: Option<CrashPoint>,
    ) -> Vec<Delivered> {
        let new: Vec<Record> = messages.iter().map(|message| message.record(&self.identity)).collect();
        let mut logs = self.logs.lock().await;
        self.process.begin(crash);
        self.notes.clear();
        let (answer, mut answers) = unbounded_channel();
        let on_answer = move |answered: &[Answered]| {
            for one in answered {
                // Who does not listen any more has seen enough.
                answer.send(one.clone()).ok();
            }
        };
        let partition = Partition::acquire(&self.intake, topic, Some(Box::new(on_answer))).await;
        let stored = partition.stream.acquired().unwrap_or_default();
        let log = logs.entry(Arc::clone(topic)).or_insert_with(|| Log::going_on_at(stored.next_offset));
        log.append(new);
        let start = match log.start(stored) {
            Ok(start) => start,
            Err(e) => panic!("the position in {topic} is not where this test has left it: {e}"),
        };
        let read = log.from(start.offset).to_vec();
        // Before the start, so that what comes at once is one batch.
        partition.push(read.clone());
        partition.stream.log_ends_at(log.end(), Instant::now());
        partition.stream.start(start);

        let outcome = self.outcome(&partition, &read, &mut answers).await;
        partition.close().await;
        if !self.has_died()
            && let Some(next) = partition.stream.settled()
        {
            log.acknowledge(next);
        }
        let mut delivered = Vec::with_capacity(read.len());
        for record in &read {
            let end = self.end(record, &outcome).await;
            delivered.push(Delivered {
                place: self.place(record),
                end,
                failed: self.notes.of(record.offset),
            });
        }
        delivered
    }

    fn has_died(&self) -> bool {
        matches!(self.process.life(), Life::Dead { .. })
    }

    /// Waits until all is settled, or nothing more happens.
    async fn outcome(
        &self,
        partition: &Partition,
        read: &[Record],
        settled: &mut UnboundedReceiver<Answered>,
    ) -> Outcome {
        let mut answers = HashMap::new();
        let deadline = Instant::now() + self.patience;
        loop {
            let stands_still = if self.has_died() { None } else { self.stands_still(partition) };
            while let Ok(one) = settled.try_recv() {
                answers.insert(one.delivery, one.answer);
            }
            if answers.len() == read.len() || self.has_died() || stands_still.is_some() {
                return Outcome { answers, stands_still };
            }
            if Instant::now() > deadline {
                self.give_up(read, &answers);
            }
            if let Ok(Some(one)) = timeout(LOOK_EVERY, settled.recv()).await {
                answers.insert(one.delivery, one.answer);
            }
        }
    }

    fn stands_still(&self, partition: &Partition) -> Option<String> {
        let alarm =
            || self.monitor.report().into_iter().find_map(|report| report.problems.into_iter().next());
        partition.stream.stopped().map(str::to_owned).or_else(alarm)
    }

    fn give_up(&self, read: &[Record], answers: &HashMap<i64, Answer>) -> ! {
        let open: Vec<String> = read
            .iter()
            .filter(|record| !answers.contains_key(&record.offset))
            .map(|record| {
                let failed = self.notes.of(record.offset);
                let last = failed.last().map_or("no try has ended", |failed| &failed.error);
                format!("  {} (failed {} times; {last})", self.place(record), failed.len())
            })
            .collect();
        let troubles: Vec<String> =
            self.monitor.report().into_iter().filter_map(|report| report.error).collect();
        panic!("not settled after {:?}:\n{}\n{}", self.patience, open.join("\n"), troubles.join("\n"));
    }

    async fn end(&self, record: &Record, outcome: &Outcome) -> End {
        match outcome.answers.get(&record.offset) {
            Some(Answer::Applied) => End::Applied,
            Some(Answer::Duplicate) => End::Duplicate,
            Some(Answer::Filtered) => End::Filtered,
            Some(Answer::Parked) => End::Parked { reason: self.dead_letter(record).await },
            Some(other) => panic!("{}: {other:?} is nothing that this kit knows", self.place(record)),
            None => match (self.process.life(), &outcome.stands_still) {
                (Life::Dead { at, applies }, _) => End::Crashed { at, applies: applies > 0 },
                (_, Some(reason)) => End::StandsStill { reason: reason.clone() },
                (_, None) => panic!("{}: nobody knows what became of it", self.place(record)),
            },
        }
    }

    /// Why the record was given up.
    async fn dead_letter(&self, record: &Record) -> String {
        let mut filter = DeadFilter {
            consumer: Some(self.consumer.as_str().to_owned()),
            topic: Some(record.topic.to_string()),
            limit: PAGE,
            ..DeadFilter::default()
        };
        loop {
            let page = match self.store.dead_letters(&filter).await {
                Ok(page) => page,
                Err(e) => panic!("the dead letters cannot be read: {e}"),
            };
            if let Some(summary) = page.iter().find(|letter| letter.offset == record.offset) {
                // The whole text; a summary cuts it.
                let whole = self.store.dead_letter(summary.number).await.ok().flatten();
                return whole.map_or_else(|| summary.error.clone(), |stored| stored.letter.error);
            }
            match page.last() {
                Some(last) => filter.after = last.number,
                None => panic!("{} was given up, and there is no dead letter of it", self.place(record)),
            }
        }
    }

    fn place(&self, record: &Record) -> String {
        match self.identity.identify(record.clone()) {
            Ok(message) => format!("{} at {}", message.id(), record.coordinates()),
            Err(_) => record.coordinates(),
        }
    }
}
