//! A topic whose receiver does not answer, or answers for a part only, leaves the places of its sink to the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::sink::{Delivery, OutgoingEvent, Sink};
use oncebox::{Backoff, BoxError, RetryPolicy};
use tokio::sync::watch;

use crate::fixture::{Fixture, Notes, Running, eventually};

const QUICK: RetryPolicy = RetryPolicy {
    attempts: u32::MAX,
    backoff: Backoff::new(Duration::from_millis(20), Duration::from_millis(200)),
};

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|key| format!("k{key}")).collect()
}

/// Does not answer for one topic until it is told to.
struct Stuck {
    notes: Notes,
    topic: &'static str,
    answers: watch::Receiver<bool>,
    waiting: watch::Sender<usize>,
}

impl Sink for Stuck {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        if events[0].topic() == self.topic {
            self.waiting.send_modify(|waiting| *waiting += 1);
            self.answers.clone().wait_for(|answers| *answers).await?;
        }
        events.iter().for_each(|event| self.notes.take(event));
        Ok(vec![Delivery::Delivered; events.len()])
    }

    fn concurrency(&self) -> usize {
        3
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_gets_no_answer_does_not_hold_all_places() {
    let fixture = Fixture::new().await;
    let notes = Notes::default();
    let (answer, answers) = watch::channel(false);
    let (waiting, waits) = watch::channel(0);
    let keys = keys(200);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    fixture.emit("stuck", &keys, 0..2).await;
    let sink = Stuck { notes: notes.clone(), topic: "stuck", answers, waiting };
    let relay = Running::start(fixture.relay().sink(sink));
    eventually("it waits with all it has", || *waits.borrow() == 2).await;
    fixture.emit("orders", &keys, 0..5).await;
    eventually("the others are through", || notes.all().len() == 1000).await;
    assert_eq!(*waits.borrow(), 2, "it still waits");
    assert!(notes.all().iter().all(|event| event.topic() == "orders"));
    answer.send(true).unwrap();
    fixture.drained().await;
    relay.stop().await;
    assert_eq!(notes.all().len(), 1400);
}

/// Of one topic it takes the first event of each batch; one batch at a time.
struct Half(Arc<Mutex<Vec<String>>>);

impl Sink for Half {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let topic = events[0].topic().to_owned();
        let taken = if topic == "half" { 1 } else { events.len() };
        self.0.lock().unwrap().push(topic);
        let delivery = |at: usize| {
            if at < taken {
                return Delivery::Delivered;
            }
            Delivery::Retry { error: "no leader".to_owned(), after: None }
        };
        Ok((0..events.len()).map(delivery).collect())
    }

    fn concurrency(&self) -> usize {
        1
    }

    fn batch_events(&self) -> usize {
        2
    }

    fn retry(&self) -> RetryPolicy {
        QUICK
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_is_not_wholly_confirmed_ends_the_turn_of_its_topic() {
    let fixture = Fixture::new().await;
    let keys = keys(40);
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    fixture.emit("half", &keys, 0..1).await;
    fixture.emit("whole", &keys, 0..1).await;
    let turns = Arc::new(Mutex::new(Vec::new()));
    let relay = Running::start(fixture.relay().sink(Half(Arc::clone(&turns))));
    fixture.drained().await;
    relay.stop().await;
    let turns = turns.lock().unwrap().clone();
    let end = turns.iter().rposition(|topic| topic == "whole").unwrap();
    let twice = turns[..end].windows(2).position(|two| two == ["half", "half"]);
    assert_eq!(twice, None, "{turns:?}");
}

/// Takes longer than a second to say that nobody answers.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    /// How often each topic was tried.
    tries: HashMap<String, usize>,
    /// How many of those that had failed before are under way, and the most there were.
    again: usize,
    most: usize,
}

impl Sink for Slow {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let again = {
            let mut seen = self.0.lock().unwrap();
            let tries = seen.tries.entry(events[0].topic().to_owned()).or_default();
            *tries += 1;
            let again = usize::from(*tries > 1);
            seen.again += again;
            seen.most = seen.most.max(seen.again);
            again
        };
        tokio::time::sleep(Duration::from_millis(1100)).await;
        self.0.lock().unwrap().again -= again;
        Err("no answer".into())
    }

    fn retry(&self) -> RetryPolicy {
        QUICK
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_stall_wait_in_half_of_the_places() {
    let fixture = Fixture::new().await;
    let topics: Vec<String> = (0..6).map(|topic| format!("s{topic}")).collect();
    for topic in &topics {
        fixture.emit(topic, &["a"], 0..1).await;
    }
    let sink = Slow::default();
    let relay = Running::start(fixture.relay().sink(sink.clone()));
    eventually("each was tried again", || {
        let seen = sink.0.lock().unwrap();
        topics.iter().all(|topic| seen.tries.get(topic).is_some_and(|tries| *tries > 1))
    })
    .await;
    relay.stop().await;
    assert_eq!(sink.0.lock().unwrap().most, 2);
}
