//! A consumer that is paused takes nothing new, whoever runs it, until it is resumed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use oncebox::message::ConsumerName;
use oncebox::settings::PauseWatch;
use oncebox::source::{Answer, Intake};
use oncebox::sqlite::SqliteStore;
use oncebox::store::{PauseNote, Pauses};
use oncebox::{Backoff, BatchBounds, Inbox, Message, Monitor, RetryPolicy, Selector, Worker};
use oncebox_testkit::MemoryQueue;
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, Partition, eventually, record, record_effect};

fn consumer() -> ConsumerName {
    ConsumerName::new("test").unwrap()
}

fn watch() -> PauseWatch {
    PauseWatch::every(Duration::from_millis(5))
}

/// One message in a batch, so that what is in flight and what comes next are two things.
fn inbox(fixture: &Fixture) -> Inbox<SqliteStore> {
    let one = BatchBounds { messages: 1, bytes: 10_000 };
    fixture.inbox().id(Selector::Header("id".into())).batch_bounds(one).pauses(watch())
}

async fn pause(fixture: &Fixture) {
    assert!(fixture.store.pause(&consumer(), &PauseNote::by("a test")).await.unwrap());
}

async fn resume(fixture: &Fixture) {
    assert!(fixture.store.resume(&consumer()).await.unwrap());
}

/// Waits until the process knows it.
async fn is_paused(intake: &Intake) {
    eventually("the process knows that it is paused", || intake.is_paused()).await;
}

/// Another consumer of the same database goes on: enough time for what must not happen.
async fn others_go_on(fixture: &Fixture) {
    static OTHERS: AtomicU32 = AtomicU32::new(0);
    let name = format!("other-{}", OTHERS.fetch_add(1, Ordering::Relaxed));
    let other = Inbox::new(name.as_str(), fixture.store.clone()).unwrap().id(Selector::Header("id".into()));
    let one = BatchBounds { messages: 1, bytes: 10_000 };
    let worker = other.batch_bounds(one).each(async |_tx: &mut SqliteConnection, _: &Message| Ok(()));
    let partition = Partition::open(&worker).await;
    for offset in 0..30 {
        partition.push([record(offset, &offset.to_string(), "k")]);
        partition.settled(offset + 1).await;
    }
    partition.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_begun_until_it_is_resumed() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(record_effect);
    let intake = worker.intake();
    let partition = Partition::open_at(intake.clone(), None).await;
    for round in 0..3 {
        let next = i64::from(round) * 2;
        partition.push([record(next, &format!("m{next}"), "k")]);
        partition.settled(next + 1).await;
        pause(&fixture).await;
        is_paused(&intake).await;
        let before = fixture.effects().await;
        partition.push([record(next + 1, &format!("m{}", next + 1), "k")]);
        others_go_on(&fixture).await;
        assert_eq!(fixture.effects().await, before);
        resume(&fixture).await;
        partition.settled(next + 2).await;
    }
    partition.close().await;
    assert_eq!(fixture.effects().await, ["m0", "m1", "m2", "m3", "m4", "m5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_starts_does_not_begin_before_it_knows() {
    let fixture = Fixture::new().await;
    pause(&fixture).await;
    let worker = inbox(&fixture).each(record_effect);
    for start in 0..2 {
        let partition = Partition::open(&worker).await;
        partition.push([record(0, "m0", "k")]);
        others_go_on(&fixture).await;
        assert!(fixture.effects().await.is_empty(), "start {start}");
        partition.close().await;
    }
    resume(&fixture).await;
    let partition = Partition::open(&worker).await;
    partition.push([record(0, "m0", "k")]);
    partition.settled(1).await;
    partition.close().await;
    assert_eq!(fixture.effects().await, ["m0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_tried_again_and_again_waits_too() {
    let fixture = Fixture::new().await;
    let (tries, good) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let retry = RetryPolicy { attempts: u32::MAX, backoff: Backoff::new(Duration::ZERO, Duration::ZERO) };
    let (counted, mended) = (Arc::clone(&tries), Arc::clone(&good));
    let monitor = Monitor::default();
    let worker = inbox(&fixture).retry(retry).monitor(monitor.clone()).each(
        async move |tx: &mut SqliteConnection, message: &Message| {
            counted.fetch_add(1, Ordering::SeqCst);
            if mended.load(Ordering::SeqCst) {
                record_effect(tx, message).await
            } else {
                Err("not now".into())
            }
        },
    );
    let intake = worker.intake();
    let partition = Partition::open_at(intake.clone(), None).await;
    partition.push([record(0, "m0", "k")]);
    eventually("it is tried", || tries.load(Ordering::SeqCst) > 3).await;
    pause(&fixture).await;
    is_paused(&intake).await;
    others_go_on(&fixture).await;
    let before = tries.load(Ordering::SeqCst);
    others_go_on(&fixture).await;
    assert_eq!(tries.load(Ordering::SeqCst), before);
    let red = || monitor.report().into_iter().any(|report| report.is_unhealthy(Duration::MAX));
    assert!(!red(), "somebody wants it to stand still: {:?}", monitor.report());
    good.store(true, Ordering::SeqCst);
    resume(&fixture).await;
    partition.settled(1).await;
    partition.close().await;
    assert_eq!(fixture.effects().await, ["m0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_partition_stops_in_good_order() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(record_effect);
    let intake = worker.intake();
    pause(&fixture).await;
    is_paused(&intake).await;
    let partition = Partition::open_at(intake, None).await;
    partition.push([record(0, "m0", "k")]);
    partition.close().await;
    let starts =
        fixture.texts("SELECT CAST(starts AS TEXT) FROM oncebox_position WHERE consumer = 'test'").await;
    assert_eq!(starts, ["0"], "it does not look like a crash");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_gives_back_what_it_has_when_it_closes_while_paused() {
    let fixture = Fixture::new().await;
    let worker = inbox(&fixture).each(record_effect);
    let intake = worker.intake();
    pause(&fixture).await;
    is_paused(&intake).await;
    let queue = MemoryQueue::new("q");
    let consumer = queue.consume(&intake);
    for id in ["a", "b"] {
        queue.publish(record(0, id, "k"));
    }
    others_go_on(&fixture).await;
    consumer.close().await;
    assert!(queue.answers().iter().all(|(_, answer)| matches!(answer, Answer::GivenBack(_))));
    assert_eq!((queue.len(), fixture.effects().await.len()), (2, 0));
    resume(&fixture).await;
    intake.resumed().await;
    let consumer = queue.consume(&intake);
    queue.drained().await;
    consumer.close().await;
    let mut effects = fixture.effects().await;
    effects.sort();
    assert_eq!(effects, ["a", "b"]);
}

/// What was known last holds while the database does not tell, and `/healthz` has the reason.
#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_what_was_known_last_holds() {
    let fixture = Fixture::new().await;
    let monitor = Monitor::default();
    let worker = inbox(&fixture).monitor(monitor.clone()).each(record_effect);
    let reason = || monitor.report().into_iter().find(|report| report.name == "pauses")?.error;
    let intake = worker.intake();
    let partition = Partition::open_at(intake.clone(), None).await;
    partition.push([record(0, "m0", "k")]);
    partition.settled(1).await;

    fixture.execute("ALTER TABLE oncebox_paused RENAME TO gone").await;
    eventually("it is reported", || reason().is_some_and(|reason| reason.contains("oncebox_paused"))).await;
    partition.push([record(1, "m1", "k")]);
    partition.settled(2).await;
    fixture.execute("ALTER TABLE gone RENAME TO oncebox_paused").await;
    eventually("it heals", || reason().is_none()).await;

    pause(&fixture).await;
    is_paused(&intake).await;
    fixture.execute("ALTER TABLE oncebox_paused RENAME TO gone").await;
    eventually("it is reported", || reason().is_some()).await;
    partition.push([record(2, "m2", "k")]);
    // A watch of its own: the others look at the same table.
    assert!(intake.is_paused());
    fixture.execute("ALTER TABLE gone RENAME TO oncebox_paused").await;
    others_go_on(&fixture).await;
    assert_eq!(fixture.effects().await, ["m0", "m1"]);
    resume(&fixture).await;
    partition.settled(3).await;
    partition.close().await;
}

/// Who shares a watch asks once for all.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_all_inboxes_asks() {
    let fixture = Fixture::new().await;
    let (monitor, watch) = (Monitor::default(), watch());
    let workers: Vec<Worker<SqliteStore>> = ["one", "two", "three"]
        .map(|name| {
            let inbox = Inbox::new(name, fixture.store.clone()).unwrap().id(Selector::Header("id".into()));
            inbox.monitor(monitor.clone()).pauses(watch.clone()).each(record_effect)
        })
        .into();
    let mut intakes: Vec<Intake> = workers.iter().map(Worker::intake).collect();
    let asking = || monitor.report().into_iter().filter(|report| report.name == "pauses").count();
    for intake in &intakes {
        intake.resumed().await;
    }
    assert_eq!(asking(), 1);
    let two = ConsumerName::new("two").unwrap();
    assert!(fixture.store.pause(&two, &PauseNote::by("a test")).await.unwrap());
    intakes[1].paused().await;
    assert_eq!(watch.paused().iter().map(|pause| pause.consumer.as_str()).collect::<Vec<_>>(), ["two"]);
    assert!(!intakes[0].is_paused() && !intakes[2].is_paused());
    // Who asked ends, and another one goes on asking.
    drop(intakes.remove(0));
    assert!(fixture.store.resume(&two).await.unwrap());
    intakes[0].resumed().await;
    assert_eq!(asking(), 1);
    intakes.clear();
    eventually("nobody asks any more", || asking() == 0).await;
}
