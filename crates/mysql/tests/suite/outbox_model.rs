//! Random histories of an outbox against a simple model of what may be published when.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::store::{Deliveries, EventFilter, HeldEvent, OutboxAdmin, ParkedEvent};
use oncebox_mysql::MysqlStore;
use oncebox_testkit::conformance::ready;

use super::by_hand::{HOUR, HandRelay, emit, every};
use super::support::with_store;

const KEYS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    /// Failed; for an hour, which is for ever here.
    Held,
    /// Gave way to a failed one of the same batch.
    Behind,
    Parked,
}

/// What is not published or dropped yet, by place: the key and the state.
#[derive(Debug, Default)]
struct Model(BTreeMap<i64, (&'static str, State)>);

impl Model {
    /// Everything that is not parked and has no held event of its key before it, nor is held itself.
    fn publishable(&self) -> Vec<i64> {
        let mut stopped = Vec::new();
        let mut seqs = Vec::new();
        for (seq, (key, state)) in &self.0 {
            match state {
                State::Parked => {}
                State::Held => stopped.push(*key),
                State::Pending | State::Behind if stopped.contains(key) => {}
                State::Pending | State::Behind => seqs.push(*seq),
            }
        }
        seqs
    }

    fn any(&self, wanted: impl Fn(State) -> bool) -> Option<i64> {
        let found: Vec<i64> =
            self.0.iter().filter(|(_, (_, state))| wanted(*state)).map(|(seq, _)| *seq).collect();
        fastrand::choice(found)
    }
}

async fn settle_randomly(relay: &HandRelay, model: &mut Model, batch: &[i64]) {
    let mut deliveries = Deliveries { keep: fastrand::bool(), ..Deliveries::default() };
    let mut failed: Vec<&str> = Vec::new();
    for seq in batch {
        let key = model.0[seq].0;
        if failed.contains(&key) {
            // A relay may also leave it as it is.
            if fastrand::bool() {
                deliveries.held.push(HeldEvent { seq: *seq, delay: HOUR, error: None });
                model.0.insert(*seq, (key, State::Behind));
            }
            continue;
        }
        match fastrand::u8(0..10) {
            0 | 1 => {
                let forever = fastrand::bool();
                let delay = if forever { HOUR } else { Duration::ZERO };
                deliveries.held.push(HeldEvent { seq: *seq, delay, error: Some("no".to_owned()) });
                model.0.insert(*seq, (key, if forever { State::Held } else { State::Pending }));
                failed.push(key);
            }
            2 => {
                deliveries.parked.push(ParkedEvent { seq: *seq, error: "never".to_owned() });
                model.0.insert(*seq, (key, State::Parked));
            }
            // The batch was cut short.
            3 => break,
            _ => {
                deliveries.published.push(*seq);
                model.0.remove(seq);
            }
        }
    }
    relay.record_deliveries(deliveries).await;
}

fn one(seq: i64) -> EventFilter {
    EventFilter { seqs: vec![seq], ..every() }
}

async fn history(store: &MysqlStore, steps: usize) {
    let relay = HandRelay::start(store).await;
    let mut model = Model::default();
    for _ in 0..steps {
        match fastrand::u8(0..10) {
            0..3 => {
                let keys: Vec<&'static str> =
                    (0..fastrand::usize(1..6)).map(|_| fastrand::choice(KEYS).unwrap()).collect();
                let events: Vec<(&str, &str)> = keys.iter().map(|key| (*key, "x")).collect();
                let seqs = emit(store, "t", &events).await;
                model.0.extend(seqs.into_iter().zip(keys.into_iter().map(|key| (key, State::Pending))));
            }
            3 => {
                if let Some(seq) = model.any(|state| state == State::Parked || state == State::Held) {
                    assert_eq!(store.retry_events(&one(seq)).await.unwrap(), 1);
                    model.0.get_mut(&seq).unwrap().1 = State::Pending;
                }
            }
            4 => {
                if let Some(seq) = model.any(|_| fastrand::u8(0..4) == 0) {
                    assert_eq!(store.drop_events(&one(seq)).await.unwrap(), 1);
                    model.0.remove(&seq);
                }
            }
            _ => {
                let batch: Vec<i64> = relay.next("t").await.iter().map(|event| event.seq).collect();
                assert_eq!(batch, model.publishable(), "{model:?}");
                let ready = ready(store, &relay.shards()).await.unwrap();
                assert_eq!(ready.is_empty(), batch.is_empty(), "{ready:?} {model:?}");
                settle_randomly(&relay, &mut model, &batch).await;
            }
        }
    }
}

/// On one thread, so that the seed tells the whole history.
#[tokio::test]
async fn what_may_be_published_is_what_the_model_says() {
    let seed = std::env::var("ONCEBOX_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("ONCEBOX_TEST_SEED={seed}");
    with_store(|store, _| async move {
        fastrand::seed(seed);
        history(&store, 300).await;
    })
    .await;
}
