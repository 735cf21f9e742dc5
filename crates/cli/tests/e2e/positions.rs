//! `oncebox position`: where a consumer is, and what an operator does about it.

use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::{Order, orders};
use crate::support::topic::Odd;
use crate::support::world::{Causes, World};

fn list(world: &World, more: &[&str]) -> serde_json::Value {
    world.oncebox(&[&["position", "list", "--output", "json"], more].concat()).exits(0).json()
}

/// Everything is read again, and nothing is applied twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_daemon_begins_anew_where_an_operator_moves_it() {
    for kind in Kind::ALL {
        let world = World::new(kind, 2).await;
        world.topic.send(&orders(0..60));
        let daemon = world.start();
        world.caught_up().await;
        let before = list(&world, &[]);
        assert_eq!(before[0]["next_offset"], before[0]["log_end"], "{before:#}");
        assert_eq!(before[0]["lag"], 0);
        assert_eq!(before[0]["retired"], false);
        assert_eq!(before[0]["log"], before[0]["log_now"], "{before:#}");
        assert!(before[0]["log"].as_str().is_some_and(|log| log.contains('/')), "{before:#}");

        let dry = world.move_to("earliest", &["--dry-run", "--output", "json"]).exits(0).json();
        let partition = json!({
            "partition": 0, "from": 30, "to": 0, "other_log": false, "not_applied": 0,
            "removed_before_applied": 0, "applied_again": 0,
        });
        assert_eq!(dry["partitions"][0], partition, "{dry:#}");
        assert_eq!((&dry["dry_run"], &dry["log"]), (&json!(true), &before[0]["log"]));
        assert_eq!(list(&world, &[])[0]["epoch"], before[0]["epoch"], "a dry run moves nothing");

        world.move_to("earliest", &[]).exits(0);
        eventually("everything is read again", async || world.duplicates().await == 60).await;
        assert_eq!(world.causes(), Causes { rewound: 60, ..Causes::default() });
        world.caught_up().await;
        world.topic.send(&orders(60..70));
        world.caught_up().await;
        world.has_exactly(&orders(0..70)).await;
        world.turns(&daemon, 200).await;
        daemon.stop();
    }
}

/// Messages are skipped only on an operator's word.
#[tokio::test(flavor = "multi_thread")]
async fn moving_over_messages_that_were_not_applied_wants_a_word() {
    let world = World::new(Kind::Postgres, 2).await;
    world.topic.send(&orders(0..20));
    let daemon = world.start();
    world.caught_up().await;
    daemon.stop();
    // Articles with an even number are in partition 0.
    world.topic.send(&orders(20..40));
    world.move_to("latest", &[]).exits(5).says(&["20 messages", "not applied", "--accept-loss"]);
    world.move_to("15", &["--partition", "0"]).exits(5).says(&["5 messages", "--accept-loss"]);
    world.move_to("21", &["--partition", "0"]).exits(5).says(&["ends at 20"]);
    assert_eq!(world.positions_of(&world.consumer).await, [(0, 10), (1, 10)], "nothing has moved");
    let dry = world.move_to("latest", &["--dry-run"]).exits(0).says(&["would be refused", "20 messages"]);
    assert!(dry.stdout.contains("would move"), "{dry}");

    world.move_to("15", &["--partition", "0", "--accept-loss"]).exits(0);
    assert_eq!(world.positions_of(&world.consumer).await, [(0, 15), (1, 10)]);
    let daemon = world.start();
    world.caught_up().await;
    let is_skipped = |order: &Order| order.sku.is_multiple_of(2) && (20..30).contains(&order.seq);
    let kept: Vec<Order> = orders(0..40).into_iter().filter(|order| !is_skipped(order)).collect();
    world.has_exactly(&kept).await;

    // They were not applied, so they still can be.
    world.move_to("10", &["--partition", "0"]).exits(0);
    eventually("all are applied", async || world.effects().await == 40).await;
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_is_a_place_too() {
    let world = World::new(Kind::Postgres, 1).await;
    // Recent ones: the broker removes what is older than the topic's retention.
    let hour = SignedDuration::from_hours(1);
    let first = Timestamp::from_second(Timestamp::now().as_second() - 36_000).expect("a time");
    let times = [first, first + hour, first + hour * 2].map(Timestamp::as_millisecond);
    for (order, timestamp) in orders(0..3).iter().zip(times) {
        world.topic.send_odd(&Odd {
            key: Some(order.key().as_bytes()),
            payload: Some(order.payload().as_bytes()),
            headers: &[("event_id", Some(order.id.as_bytes()))],
            timestamp: Some(timestamp),
            ..Odd::default()
        });
    }
    world.oncebox(&["migrate"]).exits(0);
    let to = |time: &str| {
        let answer = world.move_to(time, &["--dry-run", "--output", "json"]).exits(0).json();
        answer["partitions"][0]["to"].as_i64()
    };
    let second = first + hour;
    assert_eq!(to("2025-01-01T00:00:00Z"), Some(0));
    assert_eq!(to(&second.to_string()), Some(1));
    // An hour later, in the time of a zone.
    let later = (second + hour).display_with_offset(Offset::constant(1)).to_string();
    assert!(later.ends_with("+01:00"), "{later}");
    assert_eq!(to(&later), Some(2));
    assert_eq!(to("2099-01-01T00:00:00Z"), Some(3));
    // The position is made where there is none, and reading begins there.
    world.move_to(&second.to_string(), &["--accept-loss"]).exits(0);
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&orders(1..3)).await;
    daemon.stop();
}

/// Back to before the receipts that were purged: the operator is warned.
#[tokio::test(flavor = "multi_thread")]
async fn moving_back_to_before_the_purged_receipts_warns() {
    for (stale, word) in [("apply", "would be applied again"), ("park", "become dead letters")] {
        let mut world = World::new(Kind::Postgres, 1).await;
        world.inbox(|inbox| inbox.set("stale", &format!("{stale:?}")));
        let ten_days_ago = i64::try_from(
            (std::time::SystemTime::now() - std::time::Duration::from_secs(10 * 86_400))
                .duration_since(std::time::UNIX_EPOCH)
                .expect("after 1970")
                .as_millis(),
        );
        for order in orders(0..10) {
            world.topic.send_odd(&Odd {
                key: Some(order.key().as_bytes()),
                payload: Some(order.payload().as_bytes()),
                headers: &[("event_id", Some(order.id.as_bytes()))],
                timestamp: ten_days_ago.ok(),
                ..Odd::default()
            });
        }
        let daemon = world.start();
        world.caught_up().await;
        world.topic.send(&orders(10..20));
        world.caught_up().await;
        world.known_to_be_caught_up().await;
        let quiet = world.move_to("earliest", &["--dry-run"]).exits(0);
        assert_eq!(quiet.stderr, "", "all receipts are there");
        world.db.execute("UPDATE oncebox_inbox SET processed_at = processed_at - interval '10 days' WHERE message_id < 'order-10'").await;
        let purged = world.oncebox(&["purge", "--output", "json"]).exits(0).json();
        assert!(purged["receipts"].as_u64() > Some(0), "{purged}");
        world.move_to("earliest", &["--dry-run"]).exits(0).says(&["up to 10 messages", word]);
        let still_there = world.move_to("10", &["--dry-run"]).exits(0);
        assert_eq!(still_there.stderr, "");
        daemon.stop();
    }
}

/// A topic that is gone does not hold the receipts for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_retired_topic_holds_no_receipts() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("retention", "\"10m\""));
        world.topic.send(&orders(0..10));
        let daemon = world.start();
        world.caught_up().await;
        world.known_to_be_caught_up().await;
        daemon.stop();
        // What another topic has left behind.
        let (consumer, topic) = (world.consumer.clone(), world.topic.name.clone());
        world.db.leave_position(&consumer, "gone").await;
        world.db.age_receipts().await;
        let purge = || world.oncebox(&["purge", "--output", "json"]).exits(0).json()["receipts"].clone();
        assert_eq!(purge(), 0, "a partition that was never caught up holds them");
        let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
        assert_eq!(
            status["consumers"][0]["horizon_held_by"],
            json!({"topic": "gone", "partition": 0, "since": null}),
            "{status:#}"
        );
        let table = world.oncebox(&["status"]).exits(0).stdout;
        assert!(table.contains("gone/0, never"), "{table}");

        let retire = |topic: &str| {
            world.oncebox(&[
                "position",
                "retire",
                "--consumer",
                &consumer,
                "--topic",
                topic,
                "--output",
                "json",
            ])
        };
        assert_eq!(retire("gone").exits(0).json(), json!({"retired": 1}));
        assert_eq!(retire("gone").exits(1).json(), json!({"retired": 0}));
        let listed = list(&world, &["--topic", "gone"]);
        assert_eq!(listed[0]["retired"], true, "{listed:#}");
        let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
        assert_eq!(status["consumers"][0]["horizon_held_by"]["topic"], topic, "{status:#}");
        assert_eq!(purge(), 10);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_said_and_not_made() {
    let world = World::new(Kind::Postgres, 2).await;
    world.oncebox(&["migrate"]).exits(0);
    world.oncebox(&["position", "list"]).exits(0);
    world.oncebox(&["position", "list", "--consumer", &world.consumer]).exits(1);
    let (consumer, topic) = (world.consumer.as_str(), world.topic.name.as_str());
    let position = |more: &[&str]| world.oncebox(&[&["position"], more].concat());
    let earliest = ["--to", "earliest"];
    let to = |consumer, topic, more: &[&str]| {
        position(&[&["move", "--consumer", consumer, "--topic", topic], more, &earliest].concat())
    };
    to("stokc", topic, &[]).exits(1).says(&["stokc", consumer]);
    to(consumer, "ordesr", &[]).exits(1).says(&["ordesr", topic]);
    to(consumer, topic, &["--partition", "2"]).exits(1).says(&["2 partitions"]);
    position(&["retire", "--consumer", consumer, "--topic", topic])
        .exits(1)
        .says(&["no position", "still reads"]);
    position(&["retire", "--consumer", "stokc", "--topic", topic]).exits(1).says(&["stokc"]);
    for wrong in [&["--to", "yesterday"][..], &[], &["--to", "-5"]] {
        position(&[&["move", "--consumer", consumer, "--topic", topic], wrong].concat()).exits(2);
    }
    world.topic.delete().await;
    eventually("the topic is gone", async || !world.topic.exists(topic)).await;
    to(consumer, topic, &[]).exits(1).says(&["no topic", "oncebox position retire"]);
    assert_eq!(world.db.number("SELECT COUNT(*) FROM oncebox_position").await, 0, "nothing was made");

    let mut away = World::new(Kind::Postgres, 1).await;
    away.config.brokers = "127.0.0.1:1".to_owned();
    away.oncebox(&["migrate"]).exits(0);
    away.move_to("earliest", &[]).exits(4).says(&["127.0.0.1:1"]);
}
