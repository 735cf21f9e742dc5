//! A replica set whose primary is killed and frozen in the middle of the work, again and again.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::mongo_set::MongoSet;
use crate::support::orders::{Order, SKUS};
use crate::support::world::World;

const ORDERS: u32 = 40_000;

/// What happens to the primary in one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It is gone, and comes back with the data that it had.
    Killed,
    /// It stands still with all its connections open, and wakes up after another was elected.
    Frozen,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_killed_again_and_again() {
    storm(&[Trouble::Killed; 6], Inbox::of_orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_frozen_again_and_again() {
    storm(&[Trouble::Frozen; 4], Inbox::of_orders).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_primary_is_killed_and_frozen_in_turn() {
    let rounds = [Trouble::Frozen, Trouble::Killed, Trouble::Killed, Trouble::Frozen];
    storm(&rounds, Inbox::of_orders_in_batches).await;
}

/// Two processes at work, every tenth record a copy. Between two rounds there is progress, and the set is whole again.
async fn storm(rounds: &[Trouble], inbox: fn(Kind, &str, &str) -> Inbox) {
    let mut set = MongoSet::start().await;
    let mut world = World::on_set(&set, 4).await;
    let inbox = inbox(Kind::Mongodb, &world.consumer, &world.topic.name);
    world.config.inboxes = vec![inbox.set("batch", "{ messages = 50 }")];
    let all: Vec<Order> = (0..ORDERS).map(Order::number).collect();
    let part = all.len() / (rounds.len() + 1);
    let mut daemons = [world.start(), world.start()];
    let mut copies = 0;
    for (nth, orders) in all.chunks(part).enumerate() {
        world.topic.send(orders);
        copies += orders.len().div_ceil(10);
        world.topic.send(&orders.iter().step_by(10).cloned().collect::<Vec<_>>());
        let Some(trouble) = rounds.get(nth) else { continue };
        // In the middle of this part.
        world.effects_reach(count(nth * part + part / 4)).await;
        fails_over(&mut set, *trouble, &world, count(nth * part + part / 2)).await;
        world.snapshot_is_whole().await;
        world.kafka_is_not_ahead().await;
    }
    world.caught_up().await;
    world.has_exactly(&all).await;
    assert_eq!(world.dead("error").await, [""; 0], "no message is to blame");
    assert_eq!(world.db.different("sku").await, i64::from(SKUS));
    let skipped = world.duplicates().await;
    assert!(skipped >= count(copies), "{copies} copies were sent, {skipped} were skipped");
    for daemon in &mut daemons {
        assert!(daemon.is_running());
    }
    for daemon in daemons {
        daemon.stop();
    }
}

/// Something happens to the primary. The next one does the work until there are so many effects; then the set is whole again.
async fn fails_over(set: &mut MongoSet, trouble: Trouble, world: &World, effects: i64) {
    let primary = set.primary().await;
    match trouble {
        Trouble::Killed => set.members[primary].kill(),
        Trouble::Frozen => set.members[primary].freeze(),
    }
    let next = set.primary().await;
    assert_ne!(next, primary, "another one was elected");
    world.effects_reach(effects).await;
    match trouble {
        Trouble::Killed => set.members[primary].start().await,
        Trouble::Frozen => set.members[primary].thaw(),
    }
    set.is_whole().await;
}

/// Orders are applied on the set and emit an event each; the relays of the same processes publish them, and another database applies
/// them. Whatever happens to the primary, each order has one effect in either, in order.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_set_whose_primary_is_killed_and_frozen() {
    const ORDERS: u32 = 20_000;
    let rounds = [Trouble::Killed, Trouble::Frozen, Trouble::Killed];
    let mut set = MongoSet::start().await;
    let (mut first, mut last) = (World::on_set(&set, 4).await, World::new(Kind::Sqlite, 4).await);
    let (consumer, topic) = (&first.consumer, &first.topic.name);
    let inbox = Inbox::of_orders_with_events(Kind::Mongodb, consumer, topic, &last.topic.name);
    first.config.inboxes = vec![inbox.set("batch", "{ messages = 50 }")];
    first.outbox("relay", "true");
    first.outbox("lease", "\"2s\"");
    last.inbox(|inbox| inbox.set("id", "\"header:oncebox-id\"").set("batch", "{ messages = 500 }"));

    let all: Vec<Order> = (0..ORDERS).map(Order::number).collect();
    let part = all.len() / (rounds.len() + 1);
    let (firsts, other) = ([first.start(), first.start()], last.start());
    for (nth, orders) in all.chunks(part).enumerate() {
        first.topic.send(orders);
        let Some(trouble) = rounds.get(nth) else { continue };
        last.effects_reach(count(nth * part + part / 4)).await;
        fails_over(&mut set, *trouble, &last, count(nth * part + part / 2)).await;
    }
    first.caught_up().await;
    first.outbox_empties().await;
    last.caught_up().await;
    first.has_exactly(&all).await;
    last.is_consistent().await;
    last.receipts_are_effects().await;
    assert_eq!(last.effects().await, i64::from(ORDERS));
    for (column, different) in [("seq", ORDERS), ("message_id", ORDERS), ("sku", SKUS)] {
        assert_eq!(last.db.different(column).await, i64::from(different), "{column}");
    }
    for daemon in firsts.into_iter().chain([other]) {
        daemon.stop();
    }
}

fn count(of: usize) -> i64 {
    i64::try_from(of).expect("few")
}
