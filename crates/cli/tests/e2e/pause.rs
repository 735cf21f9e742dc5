//! `oncebox pause` and `resume`: in every process, whatever it reads from, through restarts.

use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::orders;
use crate::support::queue::Queue;
use crate::support::world::World;

/// Waits until this process obeys a pause, or the end of one.
async fn knows(world: &World, daemon: &Daemon, paused: bool) {
    let series = format!("oncebox_consumer_paused{{consumer=\"{}\"}}", world.consumer);
    let value = if paused { 1.0 } else { 0.0 };
    eventually(&format!("{series} is {value}"), async || daemon.metric(&series).await == Some(value)).await;
}

/// Waits until a process has seen so many messages that it does not apply.
async fn lags(world: &World, daemon: &Daemon, messages: f64) {
    let series = format!("oncebox_lag_messages{{consumer=\"{}\"}}", world.consumer);
    eventually(&format!("{series} is {messages}"), async || daemon.metric(&series).await == Some(messages))
        .await;
}

fn pause(world: &World) -> Value {
    let command = ["pause", &world.consumer, "--reason", "counting", "--by", "ana", "--output", "json"];
    world.oncebox(&command).exits(0).json()
}

fn resume(world: &World) {
    let answer = world.oncebox(&["resume", &world.consumer]).exits(0);
    assert!(answer.stdout.contains("goes on"), "{answer}");
}

async fn applied(world: &World) -> i64 {
    world.positions_of(&world.consumer).await.iter().map(|(_, next)| next).sum()
}

/// Two processes and two consumers. One consumer is paused; a process is killed and another one starts; then it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_stop_and_go_on() {
    let mut world = World::new(Kind::Postgres, 4).await;
    let other = format!("{}-other", world.consumer);
    let inbox =
        crate::support::config::Inbox::new(&other, &world.topic.name, vec!["\"SELECT :id\"".to_owned()]);
    world.config.inboxes.push(inbox);
    world.topic.send(&orders(0..80));
    let (one, two) = (world.start(), world.start());
    eventually("both have partitions", async || {
        let (one, two) = (one.partitions(&world.topic.name).await, two.partitions(&world.topic.name).await);
        !one.is_empty() && !two.is_empty()
    })
    .await;
    world.caught_up().await;

    let paused = pause(&world);
    assert_eq!((&paused["changed"], &paused["paused"]["by"]), (&true.into(), &"ana".into()), "{paused}");
    for daemon in [&one, &two] {
        knows(&world, daemon, true).await;
    }
    world.topic.send(&orders(80..160));
    world.caught_up_of(&other).await;
    assert_eq!(applied(&world).await, 80, "the other consumer goes on, this one does not");
    for daemon in [&one, &two] {
        let (status, health) = daemon.health().await.expect("an answer");
        assert_eq!(status, 200, "somebody wants it: {health:#}");
        assert_eq!(health["paused"][0]["consumer"], world.consumer.as_str(), "{health:#}");
        assert_eq!(health["paused"][0]["reason"], "counting", "{health:#}");
    }
    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    assert_eq!(status["paused"][0]["consumer"], world.consumer.as_str(), "{status:#}");

    two.kill();
    let three = world.start();
    knows(&world, &three, true).await;
    world.topic.send(&orders(160..200));
    world.caught_up_of(&other).await;
    assert_eq!(applied(&world).await, 80, "a new process knows it too");

    resume(&world);
    world.caught_up().await;
    for daemon in [one, three] {
        knows(&world, &daemon, false).await;
        daemon.stop();
    }
    world.has_exactly(&orders(0..200)).await;
}

/// The batch in flight is committed; the next one is not begun.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_flight_ends() {
    let mut world = World::new(Kind::Postgres, 1).await;
    let kind = world.db.kind;
    world.inbox(|inbox| inbox.gated(kind));
    world.oncebox(&["migrate"]).exits(0);
    world.topic.send(&orders(0..100));
    let gate = world.db.close_gate().await;
    let daemon = world.start();
    eventually("a batch is in flight", async || world.db.waiting_handlers().await > 0).await;
    pause(&world);
    knows(&world, &daemon, true).await;
    gate.open().await;
    eventually("it is committed", async || applied(&world).await > 0).await;
    let in_flight = applied(&world).await;
    assert!(in_flight <= 20, "one batch: {in_flight}");
    lags(&world, &daemon, 100.0 - in_flight as f64).await;
    assert_eq!(applied(&world).await, in_flight);
    resume(&world);
    world.caught_up().await;
    daemon.stop();
    world.has_exactly(&orders(0..100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_store_knows_who_is_paused() {
    for kind in Kind::ALL {
        let world = World::new(kind, 1).await;
        world.oncebox(&["migrate"]).exits(0);
        pause(&world);
        world.topic.send(&orders(0..30));
        let daemon = world.start();
        knows(&world, &daemon, true).await;
        lags(&world, &daemon, 30.0).await;
        assert_eq!(world.effects().await, 0, "{kind:?}");
        resume(&world);
        world.caught_up().await;
        daemon.stop();
        world.has_exactly(&orders(0..30)).await;
    }
}

/// A paused queue is not read: nothing waits unacknowledged for the broker's timeout, and how much waits is still shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_queue_is_left_alone() {
    for kind in ["quorum", "classic"] {
        let mut world = World::new(Kind::Postgres, 1).await;
        let queue = Queue::declare(&world.consumer, kind).await;
        world.config.more = format!("[rabbitmq]\nurl = {:?}\n", queue.url);
        let name = queue.name.clone();
        let store = world.db.kind;
        world.inbox(|inbox| {
            inbox
                .reading_queue(&name)
                .set("id", "\"property:message_id\"")
                .set("key", "\"header:sku\"")
                .gated(store)
        });
        world.oncebox(&["migrate"]).exits(0);
        let gate = world.db.close_gate().await;
        queue.send(&orders(0..100)).await;
        let (one, two) = (world.start(), world.start());
        eventually("a batch is in flight", async || world.db.waiting_handlers().await > 0).await;
        pause(&world);
        for daemon in [&one, &two] {
            knows(&world, daemon, true).await;
        }
        gate.open().await;
        eventually("what is not applied is back in the queue", async || {
            i64::from(queue.waiting().await) + world.effects().await == 100
        })
        .await;
        let before = world.effects().await;
        assert!(before <= 40, "a batch of each: {before}");
        queue.send(&orders(100..120)).await;
        for daemon in [&one, &two] {
            lags(&world, daemon, 120.0 - before as f64).await;
            assert_eq!(daemon.health().await.map(|(status, _)| status), Some(200));
        }
        assert_eq!(world.effects().await, before);
        resume(&world);
        world.effects_reach(120).await;
        eventually("the queue is empty", async || queue.waiting().await == 0).await;
        for daemon in [one, two] {
            daemon.stop();
        }
        world.has_exactly_in_any_order(&orders(0..120)).await;
        queue.delete().await;
    }
}
