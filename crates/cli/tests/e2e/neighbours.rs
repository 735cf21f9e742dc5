//! Inboxes and the relay in one process: a slow one keeps to its share of what they have together.

use crate::support::check::compare_ids;
use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::orders;
use crate::support::topic::Topic;
use crate::support::world::World;

/// A handler that waits for the gate, for as long as it is closed.
const PATIENT: &str =
    "\"SELECT set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)\"";

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_inbox_leaves_the_others_and_the_relay_their_connections() {
    let kind = Kind::Postgres;
    let mut world = World::new(kind, 3).await;
    world.oncebox(&["migrate"]).exits(0);
    let slow_topic = Topic::create(&format!("{}-slow", world.topic.name), 3).await;
    let events = Topic::create(&format!("{}-events", world.topic.name), 1).await;
    let slow = Inbox::of_orders(kind, "slow", &slow_topic.name).gated(kind).first(PATIENT);
    world.config.inboxes.push(slow.set("lanes", "8").set("batch", "{ messages = 1 }"));
    // Two for each of them.
    world.config.store_more = "max_connections = 6\n".to_owned();
    world.outbox("relay", "true");

    let gate = world.db.close_gate().await;
    let slow_orders = orders(0..36);
    slow_topic.send(&slow_orders);
    let daemon = world.start();
    eventually("the slow one has all it may have", async || world.db.waiting_handlers().await == 2).await;

    let fast_orders = orders(1000..1600);
    world.topic.send(&fast_orders);
    let mut writer = world.writer("app", 10).await.to(&events.name);
    for _ in 0..20 {
        writer.write(50).await;
    }
    world.caught_up().await;
    world.outbox_empties().await;
    assert_eq!(world.db.waiting_handlers().await, 2, "the slow one still holds its transactions");
    assert_eq!(world.effects_of("slow").await.len(), 0);
    assert!(!daemon.log().contains("trouble"), "nobody has waited in vain for a connection");
    compare_ids("effects", &world.effects_of(&world.consumer).await, &fast_orders);

    gate.open().await;
    eventually("the slow one is through", async || {
        world.db.rows_of("ledger", "slow").await == slow_orders.len() as i64
    })
    .await;
    daemon.stop();
    compare_ids("effects", &world.effects_of("slow").await, &slow_orders);
    world.has_exactly(&fast_orders).await;
    assert_eq!(events.has_published(&writer.written), 0, "each was recorded as soon as it was published");
    for topic in [slow_topic, events] {
        topic.delete().await;
    }
}
