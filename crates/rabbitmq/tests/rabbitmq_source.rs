//! Reading a queue of a real broker: once whatever happens to the connection, and nothing is lost.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lapin::BasicProperties;
use lapin::options::BasicConsumeOptions;
use lapin::types::{AMQPValue, FieldTable};
use oncebox::store::{DeadFilter, DeadLetters};
use oncebox::{Message, OnFailure, reject};
use oncebox_rabbitmq::{Rabbitmq, RabbitmqSource};
use sqlx::SqliteConnection;
use support::broker::{Broker, text};
use support::inbox::{Scene, batches_of};
use support::proxy::Proxy;
use support::{eventually, raw, unique, url};

fn source(url: &str, queue: &str) -> RabbitmqSource {
    Rabbitmq::nodes(url).unwrap().source(queue)
}

fn with_id(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into()).with_delivery_mode(2)
}

async fn put(broker: &Broker, queue: &str, ids: impl IntoIterator<Item = u32>) {
    for id in ids {
        let id = id.to_string();
        broker.put(queue, id.as_bytes(), with_id(&id)).await;
    }
}

fn ids(numbers: std::ops::Range<u32>) -> Vec<String> {
    numbers.map(|n| n.to_string()).collect()
}

async fn sorted_effects(scene: &Scene) -> Vec<String> {
    let mut effects = scene.effects().await;
    effects.sort_by_key(|id| id.parse::<u32>().unwrap());
    effects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_are_skipped_and_everything_is_acknowledged() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("copies"));
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, (0..200).chain(50..150)).await;
    let running = scene.start(source(&url(), &queue));
    scene.effects_become(200).await;
    put(&broker, &queue, 0..10).await;
    scene.drain(running, &broker, &source(&url(), &queue)).await;
    assert_eq!(scene.effects().await, ids(0..200), "in the order of the queue");
    assert_eq!(scene.counts().await, (200, 110));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_and_not_acknowledged_comes_again_and_is_skipped() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("unacked"));
    broker.queue(&queue, &[]).await;
    let proxy = Proxy::to(&url()).await;
    scene.close_gate();
    let running = scene.start(source(proxy.url(), &queue));
    put(&broker, &queue, 0..5).await;
    scene.entered(1).await;
    // From here on no acknowledgement arrives.
    proxy.mute();
    scene.open_gate();
    scene.effects_become(5).await;
    proxy.cut();
    eventually("all five came again", async || scene.counts().await == (5, 5)).await;
    scene.drain(running, &broker, &source(&url(), &queue)).await;
    assert_eq!(scene.effects().await, ids(0..5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_breaks_in_the_middle_of_a_batch_costs_nothing() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("middle"));
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, 0..300).await;
    let proxy = Proxy::to(&url()).await;
    scene.close_gate();
    let worker = scene.worker_of(scene.inbox().batch_bounds(batches_of(100)));
    let running = scene.start_worker(worker, source(proxy.url(), &queue));
    scene.entered(1).await;
    // The batch is in its transaction, others wait behind it; all of them come again.
    proxy.cut();
    scene.open_gate();
    scene.effects_become(300).await;
    scene.drain(running, &broker, &source(&url(), &queue)).await;
    assert_eq!(sorted_effects(&scene).await, ids(0..300));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_deleted_and_made_again_is_read_again() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("deleted"));
    let running = scene.start(source(&url(), &queue));
    let missing = format!("queue {queue} does not exist");
    eventually("it is missed", async || scene.trouble().contains(&missing)).await;
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, 0..3).await;
    scene.effects_become(3).await;
    // The broker cancels the consumer, without a word on many clients.
    broker.delete_queue(&queue).await;
    eventually("it is missed again", async || scene.trouble().contains(&missing)).await;
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, 1..6).await;
    scene.effects_become(6).await;
    scene.drain(running, &broker, &source(&url(), &queue)).await;
    assert_eq!(scene.effects().await, ids(0..6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_share_a_queue_and_one_loses_its_connection_again_and_again() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("shared"));
    broker.queue(&queue, &[]).await;
    let proxy = Proxy::to(&url()).await;
    let worker = || scene.worker_of(scene.inbox().batch_bounds(batches_of(10)));
    let one = scene.start_worker(worker(), source(&url(), &queue).prefetch(30));
    let two = scene.start_worker(worker(), source(proxy.url(), &queue).prefetch(30));
    for part in 0..10 {
        // One in five twice.
        put(&broker, &queue, part * 100..(part + 1) * 100).await;
        put(&broker, &queue, (part * 100..(part + 1) * 100).step_by(5)).await;
        proxy.cut();
    }
    scene.effects_become(1_000).await;
    two.stop().await;
    scene.drain(one, &broker, &source(&url(), &queue)).await;
    assert_eq!(sorted_effects(&scene).await, ids(0..1_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_gives_back_what_it_has_not_applied() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("stop"));
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, 0..400).await;
    scene.close_gate();
    let worker = scene.worker_of(scene.inbox().batch_bounds(batches_of(20)));
    let running = scene.start_worker(worker, source(&url(), &queue).prefetch(100));
    scene.entered(1).await;
    eventually("no more than the prefetch is out", async || broker.count(&queue).await == 300).await;
    let stopping = tokio::spawn(running.stop());
    scene.open_gate();
    stopping.await.unwrap();
    let applied = scene.effects().await.len();
    assert!((1..400).contains(&applied), "{applied}");
    assert_eq!(
        broker.count(&queue).await as usize,
        400 - applied,
        "settled or given back, and nothing of both"
    );
    let running = scene.start(source(&url(), &queue));
    scene.effects_become(400).await;
    running.stop().await;
    assert_eq!(sorted_effects(&scene).await, ids(0..400));
    assert_eq!(scene.counts().await, (400, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_says_what_was_delivered_before() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("quorum"));
    broker.quorum_queue(&queue, &[("x-delivery-limit", AMQPValue::LongInt(20))]).await;
    put(&broker, &queue, 0..3).await;
    // Somebody takes them and goes away without a word.
    let other = Broker::connect(&url()).await;
    let options = BasicConsumeOptions::default();
    let consume =
        other.channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default());
    let taken: Vec<_> = consume.await.unwrap().take(3).collect().await;
    assert!(taken.iter().all(|delivery| !delivery.as_ref().unwrap().redelivered));
    other.close().await;
    put(&broker, &queue, 3..5).await;
    let running = scene.start(source(&url(), &queue));
    scene.effects_become(5).await;
    running.stop().await;
    let mut redelivered: Vec<(String, bool)> =
        scene.details().await.into_iter().map(|(id, .., redelivered)| (id, redelivered)).collect();
    redelivered.sort();
    let expected: Vec<(String, bool)> = (0..5).map(|n| (n.to_string(), n < 3)).collect();
    assert_eq!(redelivered, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_queue_is_read_once_whatever_happens_to_the_connection() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("quorum-cuts"));
    broker.quorum_queue(&queue, &[]).await;
    let proxy = Proxy::to(&url()).await;
    let worker = scene.worker_of(scene.inbox().batch_bounds(batches_of(10)));
    let running = scene.start_worker(worker, source(proxy.url(), &queue).prefetch(40));
    for part in 0..5 {
        put(&broker, &queue, part * 100..(part + 1) * 100).await;
        put(&broker, &queue, (part * 100..(part + 1) * 100).step_by(5)).await;
        proxy.cut();
    }
    scene.effects_become(500).await;
    scene.drain(running, &broker, &source(&url(), &queue)).await;
    assert_eq!(sorted_effects(&scene).await, ids(0..500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_message_says_reaches_the_handler() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("shape"));
    broker.queue(&queue, &[]).await;
    let mut headers = FieldTable::default();
    headers.insert("oncebox-key".into(), text("A-1"));
    broker.put(&queue, br#"{"sku":"A-1"}"#, with_id("m-1").with_headers(headers)).await;
    broker.put(&queue, b"", with_id("m-2")).await;
    let running = scene.start(source(&url(), &queue));
    scene.effects_become(2).await;
    running.stop().await;
    let expected = [
        ("m-1".to_owned(), Some("A-1".to_owned()), Some(r#"{"sku":"A-1"}"#.to_owned()), false),
        ("m-2".to_owned(), None, None, false),
    ];
    assert_eq!(scene.details().await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_counts_from_when_the_queue_was_empty() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("empty"));
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, 0..20).await;
    scene.close_gate();
    let running = scene.start(source(&url(), &queue).prefetch(5));
    scene.entered(1).await;
    scene.looked_at(2).await;
    scene.open_gate();
    running.stop().await;
    // Unless it was looked at once more, in the moment after the last one was applied.
    let all_applied = scene.effects().await.len() == 20;
    assert!(scene.caught_up_ms().await.is_none() || all_applied, "messages wait");
    let running = scene.start(source(&url(), &queue));
    scene.effects_become(20).await;
    eventually("it is caught up", async || scene.caught_up_ms().await.is_some()).await;
    running.stop().await;
}

/// A broker delivers what is given back again at once: without a wait this would be thousands of tries a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_given_back_does_not_go_to_and_fro() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("given-back"));
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, 0..1).await;
    let tries = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&tries);
    let worker = scene.inbox().on_failure(OnFailure::GiveBack).each(
        async move |_: &mut SqliteConnection, _: &Message| -> oncebox::Result {
            count.fetch_add(1, Ordering::SeqCst);
            Err(reject("never"))
        },
    );
    let began = Instant::now();
    let running = scene.start_worker(worker, source(&url(), &queue));
    eventually("it comes again and again", async || tries.load(Ordering::SeqCst) >= 3).await;
    // A second and then two, of which up to a half is taken off at random.
    assert!(began.elapsed() >= Duration::from_millis(1_500), "{:?}", began.elapsed());
    running.stop().await;
    assert_eq!(broker.count(&queue).await, 1, "it is where it was");
}

/// No broker checks it, and the client would end the connection at it, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_is_not_utf8_stops_nobody() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("latin"));
    broker.queue(&queue, &[]).await;
    raw::put(&url(), &queue, b"name", b"1", b"{}").await;
    raw::put(&url(), &queue, b"n\xe4me", b"2", b"{}").await;
    raw::put(&url(), &queue, b"name", b"id-\xe4", b"first").await;
    raw::put(&url(), &queue, b"name", b"id-\xfc", b"second").await;
    raw::put(&url(), &queue, b"name", b"3", b"{}").await;
    let running = scene.start(source(&url(), &queue));
    scene.effects_become(3).await;
    scene.drain(running, &broker, &source(&url(), &queue)).await;
    assert_eq!(scene.effects().await, ["1", "2", "3"]);
    let all = DeadFilter { limit: 10, ..DeadFilter::default() };
    let letters = scene.store.dead_letters(&all).await.unwrap();
    assert_eq!(letters.len(), 2, "their ids differ, or not: nobody can tell");
    assert!(letters.iter().all(|letter| letter.error.contains("no property `message_id`")), "{letters:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_nodes_is_enough() {
    let (scene, broker, queue) = (Scene::new().await, Broker::connect(&url()).await, unique("nodes"));
    broker.queue(&queue, &[]).await;
    put(&broker, &queue, 0..3).await;
    let urls = format!("amqp://guest:guest@127.0.0.1:1/%2f,{},amqp://guest:guest@127.0.0.1:2/%2f", url());
    let running = scene.start(source(&urls, &queue));
    scene.effects_become(3).await;
    running.stop().await;
    assert_eq!(broker.count(&queue).await, 0);
}
