//! One partition that is driven by hand, as the thread of a source would drive it.

use std::time::{Duration, Instant};

use oncebox_core::inbox::StartPolicy;
use oncebox_core::message::Record;
use oncebox_core::source::{Intake, Known, OnAnswer, OpenStream, Stream, start_at};

/// How long anything may take that takes milliseconds.
const WAIT_LIMIT: Duration = Duration::from_secs(40);

/// Partition 0 of a topic, taken over by the engine. It belongs to this process until it is closed, or until somebody else
/// takes it over.
///
/// [`TestInbox`](crate::TestInbox) is the simple way; this is for tests that say themselves which offset comes when, and who
/// owns the partition.
#[derive(Debug)]
pub struct Partition {
    /// The engine's side of it.
    pub stream: Stream,
}

impl Partition {
    /// Takes over the partition and starts it where a broker would that still has everything, with this offset committed.
    ///
    /// # Panics
    /// If it cannot be taken over or started.
    pub async fn open(intake: &Intake, topic: &str, committed: Option<i64>) -> Self {
        let partition = Self::acquire(intake, topic, None).await;
        let stored = partition.stream.acquired().unwrap_or_default();
        let known = Known { stored, committed, log: None, low: 0, high: i64::MAX };
        match start_at(known, StartPolicy::Group) {
            Ok(start) => partition.stream.start(start),
            Err(e) => panic!("{topic}/0 cannot be started: {e}"),
        }
        partition
    }

    /// Takes over the partition and leaves it to the test where it starts.
    ///
    /// # Panics
    /// If it cannot be taken over.
    pub async fn acquire(intake: &Intake, topic: &str, on_answer: Option<OnAnswer>) -> Self {
        let mut open = OpenStream::new(topic, 0);
        open.on_answer = on_answer;
        let stream = intake.open(open);
        eventually("the position is acquired", || stream.acquired().is_some()).await;
        Self { stream }
    }

    /// Hands over records.
    ///
    /// # Panics
    /// If one of them is not taken.
    pub fn push(&self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            let place = record.coordinates();
            assert!(self.stream.push(record), "{place} is not taken");
        }
    }

    /// Waits until everything below this offset is settled, and nothing above it.
    ///
    /// # Panics
    /// If that does not happen.
    pub async fn settled(&self, next: i64) {
        eventually(&format!("settled up to {next}"), || self.stream.settled() == Some(next)).await;
    }

    /// Gives the partition back, as a process does that is told to stop.
    ///
    /// # Panics
    /// If the work in flight does not end.
    pub async fn close(&self) {
        self.stream.close();
        let stream = self.stream.clone();
        let closed = tokio::task::spawn_blocking(move || stream.wait_closed(WAIT_LIMIT)).await;
        assert!(closed.is_ok_and(|closed| closed), "the work in flight does not end");
    }
}

/// Waits for something to become true.
///
/// # Panics
/// If it does not.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
