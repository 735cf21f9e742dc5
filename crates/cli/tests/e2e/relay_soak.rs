//! From topic to database to topic to database, with processes killed on the way.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::on_each_server;
use crate::support::orders::{Order, SKUS};
use crate::support::world::World;

on_each_server!(a_hundred_thousand_messages_through_inbox_outbox_and_inbox,);

const KILLS: u32 = 6;

async fn a_hundred_thousand_messages_through_inbox_outbox_and_inbox(kind: Kind) {
    messages_through_inbox_outbox_and_inbox(kind, 100_000).await;
}

/// Smaller: MariaDB, which has the same store, stands the long run.
#[cfg(feature = "mysql-server")]
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_messages_through_inbox_outbox_and_inbox_on_mysql() {
    messages_through_inbox_outbox_and_inbox(Kind::Mysql, 10_000).await;
}

/// The orders are applied and emit an event each, in one transaction; the events are applied to another database.
/// Whoever dies on the way, each order has one effect in either, in order.
async fn messages_through_inbox_outbox_and_inbox(kind: Kind, orders: u32) {
    let mut last = World::new(kind, 6).await;
    let big = |inbox: Inbox| inbox.set("batch", "{ messages = 500 }");
    let mut first = World::new(kind, 6).await;
    let (consumer, topic) = (&first.consumer, &first.topic.name);
    let inbox = Inbox::of_orders_with_events(kind, consumer, topic, &last.topic.name);
    first.config.inboxes = vec![big(inbox)];
    first.outbox("relay", "true");
    first.outbox("lease", "\"2s\"");
    let (consumer, topic) = (&last.consumer, &last.topic.name);
    let inbox = Inbox::of_orders_in_batches(kind, consumer, topic);
    last.config.inboxes = vec![big(inbox).set("id", "\"header:oncebox-id\"")];
    last.config.with_static_membership();

    let all: Vec<Order> = (0..orders).map(Order::number).collect();
    first.topic.send(&all);
    let mut firsts = [first.start(), first.start()];
    let mut other = last.start();
    for kill in 1..=KILLS {
        last.effects_reach(i64::from(kill * (orders / (KILLS + 1)))).await;
        match kill % 3 {
            0 => std::mem::replace(&mut other, last.start()).kill(),
            slot => {
                let slot = usize::try_from(slot - 1).expect("few");
                std::mem::replace(&mut firsts[slot], first.start()).kill();
            }
        }
        first.snapshot_is_whole().await;
        last.snapshot_is_whole().await;
    }

    first.caught_up().await;
    first.outbox_empties().await;
    last.caught_up().await;
    first.has_exactly(&all).await;
    last.is_consistent().await;
    last.receipts_are_effects().await;
    last.kafka_is_not_ahead().await;
    assert_eq!(last.effects().await, i64::from(orders));
    for (column, different) in [("seq", orders), ("message_id", orders), ("sku", SKUS)] {
        assert_eq!(last.db.different(column).await, i64::from(different), "{column}");
    }
    eventually("all are healthy", async || {
        let mut green = true;
        for daemon in firsts.iter().chain([&other]) {
            green &= daemon.health().await.is_some_and(|(status, _)| status == 200);
        }
        green
    })
    .await;
    for daemon in firsts {
        daemon.stop();
    }
    other.stop();
}
