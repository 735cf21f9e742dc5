//! The four causes of duplicates, and two consumers of one topic.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::on_each_server;
use crate::support::orders::{Order, orders};
use crate::support::topic::Odd;
use crate::support::world::{Causes, World};
use crate::support::{check::compare_ids, eventually};

on_each_server!(
    a_relay_that_publishes_twice,
    a_consumer_killed_between_commit_and_ack,
    a_rebalance_in_the_middle_of_a_batch,
    an_operator_rewinds_the_group,
    members_that_come_and_go,
    two_consumers_of_one_topic_each_have_their_effects,
);

/// Cause one: a relay that publishes again what it does not know it has published.
async fn a_relay_that_publishes_twice(kind: Kind) {
    let world = World::new(kind, 3).await;
    let all = orders(0..200);
    world.topic.send(&all);
    // Once at once, once a while later, once after everything else.
    world.topic.send(&all[150..]);
    let daemon = world.start();
    world.effects_reach(100).await;
    world.topic.send(&all[..120]);
    world.caught_up().await;
    assert_eq!(world.duplicates().await, 170);
    world.topic.send(&all);
    world.caught_up().await;
    assert_eq!(world.duplicates().await, 370);
    assert_eq!(world.causes(), Causes { published_twice: 370, ..Causes::default() });
    let metric =
        format!("oncebox_duplicates_total{{consumer=\"{}\",cause=\"published_twice\"}}", world.consumer);
    assert_eq!(daemon.metric(&metric).await, Some(370.0));
    world.has_exactly(&all).await;
    daemon.stop();
}

/// Cause two: the database has committed, and the process ends before Kafka hears of it.
async fn a_consumer_killed_between_commit_and_ack(kind: Kind) {
    let mut world = World::new(kind, 1).await;
    world.config.with_static_membership();
    world.topic.send(&orders(0..30));
    let daemon = world.start();
    world.caught_up().await;
    daemon.stop();
    assert_eq!(world.topic.committed(&world.consumer), [Some(30)]);

    let all = orders(0..130);
    world.topic.send(&all[30..]);
    world.start_to_crash("after-commit:2").crashed();
    let unknown_to_kafka = world.effects().await - 30;
    assert!(unknown_to_kafka > 0, "the second batch was committed");
    assert_eq!(world.topic.committed(&world.consumer), [Some(30)], "nothing of it was acknowledged");
    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(world.duplicates().await, unknown_to_kafka, "what was applied came again");
    assert_eq!(world.causes(), Causes { redelivered: unknown_to_kafka, ..Causes::default() });
    world.has_exactly(&all).await;
    daemon.stop();
}

/// Cause three: partitions move while batches are in flight.
async fn a_rebalance_in_the_middle_of_a_batch(kind: Kind) {
    let mut world = World::new(kind, 4).await;
    world.inbox(|inbox| inbox.gated(kind));
    let all = orders(0..400);
    world.topic.send(&all);
    let gate = world.db.close_gate().await;
    let first = world.start();
    eventually("all partitions are in the middle of a batch", async || {
        world.db.waiting_handlers().await == 4
    })
    .await;

    let second = world.start();
    first.has_logged("partitions revoked").await;
    assert_eq!(world.effects().await, 0, "no batch could end yet");
    gate.open().await;
    world.caught_up().await;
    let moved = world.db.partitions_that_moved().await;
    assert!(moved > 0, "no partition moved");
    world.has_exactly(&all).await;
    first.stop();
    second.stop();
}

/// Cause four: an operator who sets the group back.
async fn an_operator_rewinds_the_group(kind: Kind) {
    let world = World::new(kind, 2).await;
    let before = orders(0..120);
    world.topic.send(&before);
    let daemon = world.start();
    world.caught_up().await;
    daemon.stop();

    world.topic.commit(&world.consumer, 0);
    let daemon = world.start();
    eventually("everything came again", async || world.duplicates().await == 120).await;
    assert_eq!(world.causes(), Causes { rewound: 120, ..Causes::default() });
    world.topic.send(&orders(120..150));
    world.caught_up().await;
    world.has_exactly(&orders(0..150)).await;
    daemon.stop();
}

/// Receipts belong to a consumer: what one has applied is fresh for the other.
async fn two_consumers_of_one_topic_each_have_their_effects(kind: Kind) {
    let mut world = World::new(kind, 3).await;
    let other = format!("{}-audit", world.consumer);
    world.config.inboxes.push(Inbox::of_orders(kind, &other, &world.topic.name));
    let all: Vec<Order> = orders(0..150);
    world.topic.send(&all);
    world.topic.send(&all[..50]);
    let daemon = world.start();
    world.caught_up().await;
    world.caught_up_of(&other).await;
    world.has_exactly(&all).await;
    compare_ids("effects of the other", &world.effects_of(&other).await, &all);
    daemon.stop();
}

/// An id counts once per tenant.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_id_of_two_tenants_is_two_messages() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 2).await;
        world.inbox(|inbox| inbox.set("tenant", "\"header:tenant\""));
        for (nth, tenant) in ["north", "south", "north", "south", "south"].iter().enumerate() {
            let order = Order::of(0, i64::try_from(nth).expect("few"));
            let headers = [("event_id", Some(b"same".as_slice())), ("tenant", Some(tenant.as_bytes()))];
            world.topic.send_odd(&Odd {
                partition: 0,
                key: Some(order.key().as_bytes()),
                payload: Some(order.payload().as_bytes()),
                headers: &headers,
                ..Odd::default()
            });
        }
        let daemon = world.start();
        world.caught_up().await;
        assert_eq!(world.effects().await, 2);
        assert_eq!(world.duplicates().await, 3);
        let tenants = world.db.tenants().await;
        assert_eq!(tenants, ["north", "south"]);
        daemon.stop();
    }
}

/// Members come and go all the time: each time partitions move while batches are in flight.
async fn members_that_come_and_go(kind: Kind) {
    let mut world = World::new(kind, 6).await;
    world.inbox(|inbox| inbox.set("batch", "{ messages = 5 }").set("lanes", "2"));
    let all = orders(0..3000);
    let (first, second) = (world.start(), world.start());
    for (round, part) in all.chunks(600).enumerate() {
        world.topic.send(part);
        let guest = world.start();
        eventually("the guest has partitions", async || {
            !guest.partitions(&world.topic.name).await.is_empty()
        })
        .await;
        // Some take their leave, some do not.
        if round % 3 == 2 {
            guest.kill();
        } else {
            guest.stop();
        }
    }
    world.caught_up().await;
    world.has_exactly(&all).await;
    first.stop();
    second.stop();
}
