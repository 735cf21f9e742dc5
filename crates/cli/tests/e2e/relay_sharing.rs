//! Several relays share the work.

use std::collections::BTreeMap;

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::kafka_proxy::{KafkaProxy, Network};
use crate::support::on_each_server;
use crate::support::world::World;

on_each_server!(relays_that_come_and_go_publish_each_event_once, a_frozen_relay_is_replaced_and_comes_back,);

const SHARDS: usize = 16;

/// Relays come and go in good order. A shard is drained before it is given back, so nothing is published twice.
async fn relays_that_come_and_go_publish_each_event_once(kind: Kind) {
    let mut world = World::with_relay_on(kind, 3).await;
    // Long enough that a slow machine does not lose a lease.
    world.outbox("lease", "\"40s\"");
    let load = world.load(2).await;
    let one = world.start();
    shared_by(&world, 1).await;
    let two = world.start();
    shared_by(&world, 2).await;
    let three = world.start();
    shared_by(&world, 3).await;
    world.topic_reaches(world.topic_records() + 200).await;

    // Whoever goes leaves nothing behind for which the others would have to wait.
    two.stop();
    assert_eq!(relays(&world).await, 2);
    shared_by(&world, 2).await;
    one.stop();
    assert_eq!(relays(&world).await, 1);
    shared_by(&world, 1).await;

    let written = load.end().await;
    world.outbox_empties().await;
    three.stop();
    assert_eq!(relays(&world).await, 0);
    assert_eq!(world.has_published(&written), 0, "copies");
}

/// All of them work: none has an event to itself, and none is idle.
#[tokio::test(flavor = "multi_thread")]
async fn three_relays_share_a_backlog() {
    let mut world = World::with_relay(3).await;
    world.outbox("lease", "\"40s\"");
    let relays = [world.start(), world.start(), world.start()];
    shared_by(&world, 3).await;
    let mut writer = world.writer("w", 100).await;
    for _ in 0..50 {
        writer.write(100).await;
    }
    world.outbox_empties().await;
    let mut published = Vec::new();
    for relay in &relays {
        published.push(relay.metric("oncebox_relay_published_total").await.expect("a number"));
    }
    assert!(published.iter().all(|events| *events > 0.0), "{published:?}");
    assert_eq!(published.iter().sum::<f64>(), 5000.0, "{published:?}");
    for relay in relays {
        relay.stop();
    }
    assert_eq!(world.has_published(&writer.written), 0, "copies");
}

/// A relay stands still for longer than its lease, in the middle of its work; the other finishes it. It wakes up, and
/// becomes a good relay again.
async fn a_frozen_relay_is_replaced_and_comes_back(kind: Kind) {
    let world = World::with_relay_on(kind, 3).await;
    let (mut zombie, other) = (world.start(), world.start());
    shared_by(&world, 2).await;
    let load = world.load(2).await;
    for round in 1..=3 {
        world.topic_reaches(world.topic_records() + 100 * round).await;
        zombie.freeze();
        shared_by(&world, 1).await;
        world.topic_reaches(world.topic_records() + 200).await;
        zombie.thaw();
        shared_by(&world, 2).await;
    }
    let before = published(&zombie).await;
    eventually("it takes part", async || published(&zombie).await > before).await;
    let written = load.end().await;
    world.outbox_empties().await;
    eventually("it is healthy", async || zombie.health().await.is_some_and(|(status, _)| status == 200))
        .await;
    zombie.stop();
    other.stop();
    world.has_published(&written);
}

/// The same with a batch in its hands that Kafka has not got yet. It wakes up and sends it, when the other is far ahead.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_relay_wakes_up_with_unsent_events() {
    let mut world = World::with_relay(1).await;
    let kafka = world.config.brokers.clone();
    let proxy = KafkaProxy::start().await;
    let mut writer = world.writer("w", 12).await;
    world.config.brokers = proxy.brokers();
    let mut zombie = world.start();
    writer.write(120).await;
    world.outbox_empties().await;

    // The requests are on their way and do not arrive.
    proxy.set(Network::Silent);
    for _ in 0..10 {
        writer.write(12).await;
    }
    world.waits_for_kafka(&zombie).await;
    zombie.freeze();

    world.config.brokers = kafka;
    let other = world.start();
    world.outbox_empties().await;
    let copies = world.has_published(&writer.written);
    assert_eq!(copies, 0, "nothing of the frozen one has arrived");
    for _ in 0..10 {
        writer.write(12).await;
    }
    world.outbox_empties().await;

    // What it had sent arrives now, behind everything.
    proxy.set(Network::Up);
    zombie.thaw();
    shared_by(&world, 2).await;
    let before = published(&zombie).await;
    eventually("it takes part", async || {
        writer.write(12).await;
        published(&zombie).await > before
    })
    .await;
    world.outbox_empties().await;
    eventually("it is healthy", async || zombie.health().await.is_some_and(|(status, _)| status == 200))
        .await;
    zombie.stop();
    other.stop();
    world.has_published(&writer.written);
}

/// How many events it has published, as far as it knows.
async fn published(relay: &Daemon) -> f64 {
    relay.metric("oncebox_relay_published_total").await.unwrap_or(0.0)
}

/// Waits until `oncebox status` shows that each shard has an owner, and that so many relays share them fairly.
async fn shared_by(world: &World, relays: usize) {
    eventually(&format!("{relays} relays share the shards"), async || {
        let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
        let shards = status["outbox"]["shards"].as_array().cloned().unwrap_or_default();
        assert_eq!(shards.len(), SHARDS, "{status:#}");
        let mut owned: BTreeMap<String, usize> = BTreeMap::new();
        for owner in shards.iter().filter_map(|shard| shard["owner"].as_str()) {
            *owned.entry(owner.to_owned()).or_default() += 1;
        }
        owned.values().sum::<usize>() == SHARDS
            && owned.len() == relays
            && owned.values().all(|shards| *shards <= SHARDS.div_ceil(relays))
    })
    .await;
}

/// How many relays the database knows of.
async fn relays(world: &World) -> i64 {
    world.db.rows("oncebox_relay").await
}
