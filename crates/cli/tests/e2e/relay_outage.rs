//! Kafka, or the database, goes away while events are written.

use std::time::Duration;

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::kafka_proxy::{KafkaProxy, Network};
use crate::support::on_each_server;
use crate::support::topic::Topic;
use crate::support::world::World;

on_each_server!(the_database_goes_away_under_a_relay,);

/// The broker does not answer for a minute, longer than any request is waited for: the daemon stays, says so, and goes on
/// by itself.
#[tokio::test(flavor = "multi_thread")]
async fn kafka_stands_still_for_a_minute() {
    kafka_is_away(Network::Silent, Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_is_gone_for_a_while() {
    kafka_is_away(Network::Down, Duration::from_secs(15)).await;
}

async fn kafka_is_away(network: Network, duration: Duration) {
    let mut world = World::with_relay(3).await;
    world.outbox("max_age", "\"2s\"");
    let proxy = KafkaProxy::start().await;
    world.config.brokers = proxy.brokers();
    let load = world.load(1).await;
    let mut daemon = world.start();
    world.topic_reaches(200).await;
    is_green(&daemon).await;

    proxy.set(network);
    let away = tokio::time::sleep(duration);
    is_red(&daemon).await;
    eventually("the numbers tell it", async || {
        let pending = daemon.metric("oncebox_outbox_pending").await.unwrap_or_default();
        let oldest = daemon.metric("oncebox_outbox_oldest_seconds").await.unwrap_or_default();
        pending > 0.0 && oldest > 2.0
    })
    .await;
    away.await;
    assert!(daemon.is_running());
    let written = load.end().await;
    assert!(world.outbox_rows().await > 100, "events have piled up");

    proxy.set(Network::Up);
    world.outbox_empties().await;
    is_green(&daemon).await;
    for gauge in ["oncebox_outbox_pending", "oncebox_outbox_oldest_seconds"] {
        eventually(gauge, async || daemon.metric(gauge).await == Some(0.0)).await;
    }
    let published = daemon.metric("oncebox_relay_published_total").await;
    assert_eq!(published, Some(written.len() as f64), "each event was confirmed once");
    daemon.stop();
    world.has_published(&written);
}

/// The network breaks again and again, at any point of the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn the_way_to_kafka_is_cut_again_and_again() {
    let mut world = World::with_relay(3).await;
    let proxy = KafkaProxy::start().await;
    world.config.brokers = proxy.brokers();
    let load = world.load(2).await;
    let daemon = world.start();
    for _ in 0..12 {
        world.topic_reaches(world.topic_records() + 100).await;
        proxy.set(Network::Down);
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.set(Network::Up);
    }
    let written = load.end().await;
    world.outbox_empties().await;
    daemon.stop();
    world.has_published(&written);
}

/// SIGTERM while Kafka is away: the daemon goes all the same, and the events stay.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_while_kafka_is_away() {
    let mut world = World::with_relay(1).await;
    let proxy = KafkaProxy::start().await;
    world.config.brokers = proxy.brokers();
    let mut writer = world.writer("w", 5).await;
    writer.write(50).await;
    let daemon = world.start();
    world.outbox_empties().await;
    proxy.set(Network::Silent);
    writer.write(50).await;
    world.waits_for_kafka(&daemon).await;
    daemon.stop();
    assert_eq!(world.outbox_rows().await, 50, "what is not confirmed stays");
    proxy.set(Network::Up);
    let daemon = world.start();
    world.outbox_empties().await;
    daemon.stop();
    world.has_published(&writer.written);
}

/// A topic that nobody has created holds up nobody else; its events wait until it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_topic_holds_up_nobody_else() {
    let mut world = World::with_relay(1).await;
    world.outbox("max_age", "\"2s\"");
    let missing = format!("{}-missing", world.topic.name);
    let mut lost = world.writer("lost", 3).await.to(&missing);
    let mut writer = world.writer("w", 3).await;
    lost.write(30).await;
    writer.write(30).await;
    let daemon = world.start();
    eventually("the others are published", async || world.outbox_rows().await == 30).await;
    is_red(&daemon).await;
    eventually("/healthz names the topic", async || {
        daemon.get("/healthz").await.is_some_and(|page| page.body.contains(&missing))
    })
    .await;
    writer.write(30).await;
    eventually("the others are published", async || world.outbox_rows().await == 30).await;

    let created = Topic::create(&missing, 1).await;
    world.outbox_empties().await;
    is_green(&daemon).await;
    daemon.stop();
    world.has_published(&writer.written);
    created.has_published(&lost.written);
    created.delete().await;
}

/// The database goes away under a relay: whatever it had published and could not write down comes again.
async fn the_database_goes_away_under_a_relay(kind: Kind) {
    let world = World::with_relay_on(kind, 3).await;
    let mut writer = world.writer("w", 12).await;
    let mut daemon = world.start();
    let mut terminated = 0;
    eventually("twenty connections were ended", async || {
        for _ in 0..10 {
            writer.write(12).await;
        }
        terminated += world.db.terminate_daemons().await;
        terminated >= 20
    })
    .await;
    world.db.allow_connections(false).await;
    world.db.terminate_daemons().await;
    daemon.has_logged("cannot renew the leases").await;
    world.db.allow_connections(true).await;
    world.outbox_empties().await;
    assert!(daemon.is_running());
    daemon.stop();
    world.has_published(&writer.written);
}

async fn is_green(daemon: &Daemon) {
    eventually("/healthz is green", async || daemon.health().await.is_some_and(|(status, _)| status == 200))
        .await;
}

/// Waits until `/healthz` is red because of the outbox.
async fn is_red(daemon: &Daemon) {
    eventually("/healthz is red", async || {
        let Some((status, health)) = daemon.health().await else { return false };
        let loops = health["loops"].as_array().cloned().unwrap_or_default();
        let outbox = loops.iter().find(|l| l["name"] == "outbox");
        status == 503 && outbox.is_some_and(|l| l["healthy"] == false && l.to_string().contains("max_age"))
    })
    .await;
}
