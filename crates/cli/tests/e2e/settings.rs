//! Settings that decide what happens to a message: where to begin, what is too old, what does not start at all.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::{Order, orders};
use crate::support::topic::{Odd, Topic};
use crate::support::world::World;

/// `start`: only when no position is known.
#[tokio::test(flavor = "multi_thread")]
async fn where_a_new_consumer_begins() {
    let mut world = World::new(Kind::Postgres, 2).await;
    world.topic.send(&orders(0..40));
    world.inbox(|inbox| inbox.set("start", "\"fail\""));
    let daemon = world.start();
    stands_still(&daemon, "start = \\\"fail\\\"").await;
    assert_eq!(world.effects().await, 0);
    daemon.stop();

    // The newest message, and that holds although none came before the restart.
    world.inbox(|inbox| inbox.set("start", "\"latest\""));
    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(world.effects().await, 0);
    daemon.stop();
    world.topic.send(&orders(40..60));
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&orders(40..60)).await;
    daemon.stop();

    // Whoever has a position is not asked.
    world.inbox(|inbox| inbox.set("start", "\"fail\""));
    world.topic.send(&orders(60..80));
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&orders(40..80)).await;
    daemon.stop();
}

/// `stale = "park"`: what is older than the receipts that were purged may be a copy, and nobody can tell.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_older_than_the_purged_receipts_is_parked() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("retention", "\"10m\"").set("stale", "\"park\""));
        let hours_ago = |hours: i64| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis();
            i64::try_from(now).expect("a time") - hours * 3_600_000
        };
        let send = |orders: &[Order], timestamp: i64| {
            for order in orders {
                world.topic.send_odd(&Odd {
                    partition: 0,
                    key: Some(order.key().as_bytes()),
                    payload: Some(order.payload().as_bytes()),
                    headers: &[("event_id", Some(order.id.as_bytes()))],
                    timestamp: Some(timestamp),
                });
            }
        };
        // History is read as long as no receipt was removed.
        let all = orders(0..10);
        send(&all, hours_ago(2));
        let daemon = world.start();
        world.caught_up().await;
        world.has_exactly(&all).await;
        world.known_to_be_caught_up().await;
        daemon.stop();
        world.db.age_receipts().await;
        assert_eq!(world.oncebox(&["purge", "--output", "json"]).exits(0).json()["receipts"], 10);

        world.topic.commit(&world.consumer, 0);
        send(&orders(10..15), hours_ago(0));
        let daemon = world.start();
        world.caught_up().await;
        let effects = world.effects_of(&world.consumer).await;
        crate::support::check::compare_ids("effects", &effects, &orders(0..15));
        let parked: Vec<String> = all.into_iter().map(|order| order.id).collect();
        assert_eq!(world.dead("message_id").await, parked);
        assert!(world.dead("error").await[0].contains("stale"));
        daemon.stop();
    }
}

/// `retention_check = "refuse"`: a topic that keeps messages longer than receipts are kept is not read at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_retention_that_is_too_short_is_refused() {
    let mut world = World::new(Kind::Postgres, 1).await;
    world.topic.send(&orders(0..10));
    world.inbox(|inbox| inbox.set("retention", "\"1h\"").set("retention_check", "\"refuse\""));
    let daemon = world.start();
    stands_still(&daemon, &world.topic.name).await;
    eventually("/readyz says who does not read", async || {
        let page = daemon.get("/readyz").await;
        page.is_some_and(|page| page.status == 503 && page.body.contains(&world.consumer))
    })
    .await;
    stands_still(&daemon, "Raise inbox.retention").await;
    assert_eq!(world.effects().await, 0);

    // It goes on by itself when the topic keeps messages for a shorter time.
    world.topic.keep_for(Duration::from_secs(30 * 60)).await;
    world.caught_up().await;
    daemon.ready().await;
    world.turns(&daemon, 200).await;
    // It is not stopped when somebody changes that again, but it does not stay green.
    world.topic.keep_for(Duration::from_secs(50 * 24 * 60 * 60)).await;
    stands_still(&daemon, &world.topic.name).await;
    world.topic.send(&orders(10..20));
    world.caught_up().await;
    world.has_exactly(&orders(0..20)).await;
    daemon.stop();

    // By default it is only said.
    world.inbox(|inbox| inbox.set("retention_check", "\"warn\""));
    let daemon = world.start();
    world.caught_up().await;
    daemon.has_logged("WARN").await;
    daemon.stop();
    let found = world.oncebox(&["check"]).exits(0).stdout;
    let line = found.lines().find(|line| line.contains(&world.topic.name) && line.contains("retention"));
    assert!(line.is_some_and(|line| line.starts_with("warning")), "{found}");
}

/// Nothing is known about a topic that is not there: that is no reason to refuse for good.
#[tokio::test(flavor = "multi_thread")]
async fn refusing_waits_for_a_topic_that_is_not_there_yet() {
    let mut world = World::new(Kind::Postgres, 1).await;
    let later = format!("{}-later", world.topic.name);
    let topics = format!("[{later:?}]");
    world.inbox(|inbox| {
        inbox.set("topics", &topics).set("retention", "\"60d\"").set("retention_check", "\"refuse\"")
    });
    let daemon = world.start();
    eventually("/healthz names the topic", async || {
        daemon.get("/healthz").await.is_some_and(|page| page.body.contains(&later))
    })
    .await;
    let second = Topic::create(&later, 1).await;
    second.send(&orders(0..20));
    world.effects_reach(20).await;
    let effects = world.effects_of(&world.consumer).await;
    crate::support::check::compare_ids("effects", &effects, &orders(0..20));
    daemon.stop();
    second.delete().await;
}

/// A topic that a pattern brings later, and that keeps messages for too long, is not read; the others are.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_comes_later_and_keeps_messages_too_long_is_refused() {
    let mut world = World::new(Kind::Postgres, 1).await;
    let name = world.topic.name.clone();
    let topics = format!("[{:?}]", format!("^{name}([.].*)?$"));
    world.inbox(|inbox| {
        inbox.set("topics", &topics).set("retention", "\"1h\"").set("retention_check", "\"refuse\"")
    });
    world.config.properties.insert("topic.metadata.refresh.interval.ms".to_owned(), "1000".to_owned());
    let half_an_hour = Duration::from_secs(30 * 60);
    world.topic.keep_for(half_an_hour).await;
    world.topic.send(&orders(0..10));
    let daemon = world.start();
    world.effects_reach(10).await;
    world.turns(&daemon, 200).await;

    let long = Topic::create(&format!("{name}.long"), 2).await;
    long.send(&orders(10..30));
    stands_still(&daemon, &format!("topic {}: the topic keeps messages for 1month", long.name)).await;
    stands_still(&daemon, "Raise inbox.retention").await;
    stands_still(&daemon, &format!("cannot begin: {0}/0, {0}/1", long.name)).await;
    // The others are read: those that were there, and those that come later.
    let short = Topic::create(&format!("{name}.short"), 1).await;
    short.keep_for(half_an_hour).await;
    short.send(&orders(30..40));
    world.topic.send(&orders(40..50));
    world.effects_reach(30).await;
    let read: Vec<Order> = [0..10, 30..50].into_iter().flat_map(orders).collect();
    crate::support::check::compare_ids("effects", &world.effects_of(&world.consumer).await, &read);
    let found = world.oncebox(&["check"]).exits(1).stdout;
    let line = found.lines().find(|line| line.contains(&long.name) && line.contains("retention"));
    assert!(line.is_some_and(|line| line.starts_with("error")), "{found}");

    // It goes on by itself when the topic keeps messages for a shorter time.
    long.keep_for(half_an_hour).await;
    world.effects_reach(50).await;
    world.turns(&daemon, 200).await;
    crate::support::check::compare_ids("effects", &world.effects_of(&world.consumer).await, &orders(0..50));
    daemon.stop();
    for topic in [long, short] {
        topic.delete().await;
    }
}

/// `partition_receipts = "day"`: receipts of UUIDv7 ids lie in days; nothing else changes.
#[tokio::test(flavor = "multi_thread")]
async fn receipts_by_day() {
    let mut world = World::new(Kind::Postgres, 2).await;
    world.config.store_more = "partition_receipts = \"day\"\n".to_owned();
    let with_uuid = |order: Order| Order { id: uuid::Uuid::now_v7().to_string(), ..order };
    let all: Vec<Order> = orders(0..100).into_iter().map(with_uuid).chain(orders(100..150)).collect();
    world.topic.send(&all);
    world.topic.send(&all);
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&all).await;
    assert_eq!(world.duplicates().await, 150);
    daemon.kill();
    world.topic.send(&all[..120]);
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&all).await;
    world.oncebox(&["purge"]).exits(0);
    world.has_exactly(&all).await;
    daemon.stop();
}

async fn stands_still(daemon: &Daemon, why: &str) {
    eventually(&format!("/healthz is red and says {why}"), async || {
        daemon.get("/healthz").await.is_some_and(|page| page.status == 503 && page.body.contains(why))
    })
    .await;
}

/// A topic that is not there yet is waited for, and one that grows is read whole.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_comes_later_and_grows() {
    let mut world = World::new(Kind::Postgres, 1).await;
    let later = format!("{}-later", world.topic.name);
    let topics = format!("[{:?}, {later:?}]", world.topic.name);
    world.inbox(|inbox| inbox.set("topics", &topics));
    world.config.properties.insert("topic.metadata.refresh.interval.ms".to_owned(), "1000".to_owned());
    world.topic.send(&orders(0..20));
    let daemon = world.start();
    world.caught_up().await;
    eventually("/healthz names the topic", async || {
        daemon.get("/healthz").await.is_some_and(|page| page.body.contains(&later))
    })
    .await;

    let second = Topic::create(&later, 1).await;
    second.send(&orders(20..40));
    world.effects_reach(40).await;
    world.topic.grow(3).await;
    world.topic.send(&orders(40..80));
    world.effects_reach(80).await;
    world.caught_up().await;
    let effects = world.effects_of(&world.consumer).await;
    crate::support::check::compare_ids("effects", &effects, &orders(0..80));
    world.receipts_are_effects().await;
    eventually("all is well", async || daemon.health().await.is_some_and(|(status, _)| status == 200)).await;
    daemon.stop();
    second.delete().await;
}
