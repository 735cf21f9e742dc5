//! A process that stood still and does not know that its partitions have another owner by now.

use std::collections::BTreeSet;

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::on_each_server;
use crate::support::orders::Order;
use crate::support::world::World;

on_each_server!(
    a_zombie_cannot_commit_what_it_had_in_hand,
    a_zombie_that_never_wakes_up_does_not_hold_up_the_others_for_ever,
    a_zombie_that_was_idle_applies_nothing_again,
);

const PARTITIONS: i32 = 4;

/// It wakes up with its transaction still open, all effects in it, and wants to commit: the epoch does not let it.
async fn a_zombie_cannot_commit_what_it_had_in_hand(kind: Kind) {
    let mut world = World::new(kind, PARTITIONS).await;
    world.inbox(|inbox| inbox.gated(kind));
    let mut all = round(0);
    world.topic.send(&all);
    let (mut zombie, other) = (world.start(), world.start());
    both_have_partitions(&world, &zombie, &other).await;
    world.caught_up().await;

    let sku = u32::try_from(zombie.partitions(&world.topic.name).await[0]).expect("a partition");
    let in_hand: Vec<Order> = (1..4).map(|seq| Order::of(sku, seq)).collect();
    freeze_with_open_transaction(&world, &mut zombie, &in_hand).await;
    all.extend(in_hand);

    // The other takes over, goes on with everything, and waits for the open transaction where it has to.
    taken_over(&world, &other).await;
    let elsewhere: Vec<Order> = (0..4).filter(|s| *s != sku).map(|sku| Order::of(sku, 10)).collect();
    world.topic.send(&elsewhere);
    world.effects_reach(i64::try_from(round(0).len() + elsewhere.len()).expect("few")).await;
    let behind = [Order::of(sku, 10)];
    world.topic.send(&behind);
    all.extend(elsewhere);
    all.extend(behind);

    zombie.thaw();
    world.caught_up().await;
    zombie.has_logged("another process has taken over").await;
    assert!(zombie.is_running());
    world.has_exactly(&all).await;

    // It becomes a good member of the group again.
    both_have_partitions(&world, &zombie, &other).await;
    let last: Vec<Order> = (0..4).map(|sku| Order::of(sku, 20)).collect();
    world.topic.send(&last);
    all.extend(last);
    world.caught_up().await;
    world.has_exactly(&all).await;
    zombie.stop();
    other.stop();
}

/// It never wakes up: the server ends its transaction after a while, and the new owner goes on.
async fn a_zombie_that_never_wakes_up_does_not_hold_up_the_others_for_ever(kind: Kind) {
    let mut world = World::new(kind, 1).await;
    world.inbox(|inbox| inbox.gated(kind));
    let all: Vec<Order> = (1..4).map(|seq| Order::of(0, seq)).collect();
    let mut zombie = world.start();
    freeze_with_open_transaction(&world, &mut zombie, &all).await;
    let other = world.start();
    world.caught_up().await;
    world.has_exactly(&all).await;
    zombie.thaw();
    eventually("the zombie notices", async || zombie.partitions(&world.topic.name).await.is_empty()).await;
    assert!(zombie.is_running());
    world.has_exactly(&all).await;
    other.stop();
    zombie.stop();
}

/// It was idle when it was frozen, others did its work, and it wakes up to records that it had read ahead long ago.
async fn a_zombie_that_was_idle_applies_nothing_again(kind: Kind) {
    let world = World::new(kind, PARTITIONS).await;
    let mut all = round(0);
    world.topic.send(&all);
    let (mut zombie, other) = (world.start(), world.start());
    both_have_partitions(&world, &zombie, &other).await;
    world.caught_up().await;
    zombie.freeze();
    taken_over(&world, &other).await;
    for seq in 1..20 {
        world.topic.send(&round(seq));
        all.extend(round(seq));
    }
    world.caught_up().await;
    zombie.thaw();
    for seq in 20..40 {
        world.topic.send(&round(seq));
        all.extend(round(seq));
    }
    both_have_partitions(&world, &zombie, &other).await;
    world.caught_up().await;
    world.has_exactly(&all).await;
    zombie.stop();
    other.stop();
}

/// One order for each of eight articles, so for each partition.
fn round(seq: i64) -> Vec<Order> {
    (0..8).map(|sku| Order::of(sku, seq)).collect()
}

async fn both_have_partitions(world: &World, one: &Daemon, two: &Daemon) {
    eventually("both processes have partitions", async || {
        let (one, two) = (one.partitions(&world.topic.name).await, two.partitions(&world.topic.name).await);
        let all: BTreeSet<i32> = one.iter().chain(&two).copied().collect();
        !one.is_empty() && !two.is_empty() && one.len() + two.len() == all.len() && all.len() == 4
    })
    .await;
}

async fn taken_over(world: &World, other: &Daemon) {
    eventually("the other process has taken over", async || {
        other.partitions(&world.topic.name).await.len() == usize::try_from(PARTITIONS).expect("few")
    })
    .await;
}

/// Sends orders, and freezes the daemon while the server works on them; then their effects are in an open transaction
/// that waits for nobody but the frozen daemon.
async fn freeze_with_open_transaction(world: &World, daemon: &mut Daemon, orders: &[Order]) {
    let gate = world.db.close_gate().await;
    world.topic.send(orders);
    eventually("the server works on them", async || world.db.waiting_handlers().await == 1).await;
    daemon.freeze();
    gate.open().await;
    eventually("a transaction is open", async || world.db.idle_transactions().await == 1).await;
}
