//! Brokers go away and come back: one of two, whose partitions nobody leads then, and the only one, again and again.

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::kafka_cluster::KafkaCluster;
use crate::support::orders::Order;
use crate::support::world::World;

/// Six partitions lose their only broker; the two others flow on, and begin when the daemon starts anew. `/healthz` tells of the six
/// until they are well.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_without_a_leader_delay_nobody() {
    // The ones in trouble come first in every order that there is.
    const PLACES: [i32; 8] = [2, 2, 2, 2, 2, 2, 1, 1];
    let mut cluster = KafkaCluster::start(2).await;
    let mut world = World::on_cluster(Kind::Sqlite, &cluster, &PLACES).await;
    world.config.properties.insert("statistics.interval.ms".to_owned(), "1000".to_owned());
    let all: Vec<Order> = (0..800).map(Order::number).collect();
    let healthy =
        |order: &&Order| PLACES[usize::try_from(world.topic.partition_of(order)).expect("a place")] == 1;
    let flowing: Vec<Order> = all[400..].iter().filter(healthy).cloned().collect();
    let waiting: Vec<Order> = all[400..].iter().filter(|order| !healthy(order)).cloned().collect();
    let (first, second) = flowing.split_at(flowing.len() / 2);
    assert!(!first.is_empty() && !second.is_empty() && !waiting.is_empty());

    world.topic.send(&all[..400]);
    let daemon = world.start();
    world.caught_up().await;
    world.turns(&daemon, 200).await;

    cluster.brokers[1].kill();
    let led_by_nobody = format!("leads {0}/0, {0}/1, {0}/2 and 3 more", world.topic.name);
    tells(&daemon, &led_by_nobody).await;
    world.topic.send(first);
    world.effects_reach(count(400 + first.len())).await;
    red(&daemon, &led_by_nobody).await;
    daemon.stop();

    // Those that can begin do.
    let daemon = world.start();
    world.topic.send(second);
    world.effects_reach(count(400 + flowing.len())).await;
    let cannot_begin =
        format!("cannot begin: {0}/0, {0}/1, {0}/2 and 3 more: no broker leads it", world.topic.name);
    tells(&daemon, &cannot_begin).await;
    red(&daemon, &cannot_begin).await;

    cluster.brokers[1].start().await;
    world.turns(&daemon, 200).await;
    world.topic.send(&waiting);
    world.caught_up().await;
    world.has_exactly(&all).await;
    world.turns(&daemon, 200).await;
    let log = daemon.stop();
    for once in ["trouble with partitions that begin;", "no more trouble with partitions that begin"] {
        assert_eq!(log.matches(once).count(), 1, "{once}");
    }
}

/// The only broker is killed in the middle of the work, three times, and is away for a while each time.
#[tokio::test(flavor = "multi_thread")]
async fn the_broker_is_killed_again_and_again() {
    const ROUNDS: usize = 3;
    let mut cluster = KafkaCluster::start(1).await;
    let mut world = World::on_cluster(Kind::Postgres, &cluster, &[1; 4]).await;
    world.inbox(|inbox| inbox.set("batch", "{ messages = 5 }"));
    world.config.properties.insert("statistics.interval.ms".to_owned(), "1000".to_owned());
    let all: Vec<Order> = (0..6_000).map(Order::number).collect();
    let part = all.len() / (ROUNDS + 1);
    let mut daemons = [world.start(), world.start()];
    for (round, orders) in all.chunks(part).enumerate() {
        world.topic.send(orders);
        // Every tenth a copy.
        world.topic.send(&orders.iter().step_by(10).cloned().collect::<Vec<_>>());
        if round == ROUNDS {
            break;
        }
        world.effects_reach(count(round * part + part / 4)).await;
        cluster.brokers[0].kill();
        tells(&daemons[0], "no broker can be reached").await;
        world.snapshot_is_whole().await;
        cluster.brokers[0].start().await;
        world.effects_reach(count(round * part + part / 2)).await;
        world.kafka_is_not_ahead().await;
    }
    world.caught_up().await;
    world.has_exactly(&all).await;
    assert_eq!(world.dead("error").await, [""; 0], "no message is to blame");
    for daemon in &mut daemons {
        assert!(daemon.is_running());
        world.turns(daemon, 200).await;
    }
    for daemon in daemons {
        daemon.stop();
    }
}

/// Waits until the loop of Kafka tells of this, red or not yet.
async fn tells(daemon: &Daemon, problem: &str) {
    eventually(&format!("/healthz tells: {problem}"), async || {
        daemon.get("/healthz").await.is_some_and(|page| page.body.contains(problem))
    })
    .await;
}

/// Waits until `/healthz` is red because of this.
async fn red(daemon: &Daemon, problem: &str) {
    eventually(&format!("/healthz is red: {problem}"), async || {
        let Some((503, health)) = daemon.health().await else { return false };
        let loops = health["loops"].as_array().cloned().unwrap_or_default();
        let tells = |l: &serde_json::Value| l["error"].as_str().is_some_and(|error| error.contains(problem));
        loops.iter().any(|l| l["healthy"] == false && tells(l))
    })
    .await;
}

fn count(of: usize) -> i64 {
    i64::try_from(of).expect("few")
}
