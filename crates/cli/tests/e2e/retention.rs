//! How long receipts are needed: as long as copies may come, counted by the slowest partition.

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::Order;
use crate::support::topic::Odd;
use crate::support::world::World;

fn purge(world: &World) -> u64 {
    let answer = world.oncebox(&["purge", "--output", "json"]).exits(0).json();
    answer["receipts"].as_u64().expect("a number")
}

/// Partition 0 stands still for ten days, partition 1 flows, and a copy waits in partition 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_stands_still_keeps_the_receipts_that_its_copies_need() {
    let mut world = World::new(Kind::Postgres, 2).await;
    world.inbox(|inbox| inbox.set("on_failure", "\"halt\""));
    let order = Order::of;
    world.topic.send(&[order(0, 0), order(1, 0)]);
    let daemon = world.start();
    world.caught_up().await;
    world.known_to_be_caught_up().await;
    let poison = br#"{"sku":"sku-new","qty":1,"seq":1}"#;
    world.topic.send_odd(&Odd {
        partition: 0,
        key: Some(b"sku-new"),
        payload: Some(poison),
        headers: &[("event_id", Some(b"the-bad-one".as_slice()))],
        ..Odd::default()
    });
    // A copy of what was applied waits behind it.
    world.topic.send(&[order(0, 0)]);
    world.turns(&daemon, 503).await;

    world.db.ten_days_pass().await;
    world.topic.send(&[order(1, 1)]);
    let recent = "SELECT COUNT(*) FROM oncebox_position WHERE partition = 1 AND caught_up_at > now() - interval '1 hour'";
    eventually("the other partition is caught up", async || world.db.number(recent).await == 1).await;
    assert_eq!(purge(&world), 0, "the halted partition holds all receipts");
    let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    let held = &status["consumers"][0]["horizon_held_by"];
    assert_eq!((&held["partition"], held["since"].is_string()), (&serde_json::json!(0), true), "{status:#}");
    daemon.stop();

    // The operator mends the cause: the copy is known.
    world.db.deliver("sku-new", 1).await;
    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(world.duplicates().await, 1);
    let of_first = format!("SELECT COUNT(*) FROM ledger WHERE message_id = '{}'", order(0, 0).id);
    assert_eq!(world.db.number(&of_first).await, 1, "the copy changed nothing");
    // Now all is caught up, and the old receipts may go.
    let all_recent = "SELECT COUNT(*) FROM oncebox_position WHERE caught_up_at > now() - interval '1 hour'";
    eventually("all is caught up", async || world.db.number(all_recent).await == 2).await;
    assert_eq!(purge(&world), 2);
    daemon.stop();
}

/// Parked on day 0, replayed on day 10: from then on the retention counts anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_letter_has_a_young_receipt() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("retention", "\"10m\""));
        let letter = Order::of(100, 0);
        world.topic.send(&[Order::of(0, 0), letter.clone()]);
        let daemon = world.start();
        world.caught_up().await;
        world.known_to_be_caught_up().await;
        world.db.age_receipts().await;
        assert_eq!(purge(&world), 1, "the receipt of a letter stays");

        world.db.deliver("sku-100", 10).await;
        world.oncebox(&["dead", "replay", "--all"]).exits(0);
        assert_eq!(purge(&world), 0, "it is as young as its effect");
        world.topic.send(std::slice::from_ref(&letter));
        world.caught_up().await;
        assert_eq!(world.effects_of(&world.consumer).await[&letter.id], 1, "the copy changed nothing");
        assert_eq!(world.duplicates().await, 1);
        daemon.stop();
    }
}
