//! Many messages, many copies, many kills.

use crate::support::database::Kind;
use crate::support::on_each_server;
use crate::support::orders::{Order, SKUS};
use crate::support::world::World;

on_each_server!(a_hundred_thousand_messages_and_six_kills,);

const KILLS: i64 = 6;

async fn a_hundred_thousand_messages_and_six_kills(kind: Kind) {
    many_messages_and_six_kills(kind, 83_334).await;
}

/// Smaller: MariaDB, which has the same store, stands the long run.
#[cfg(feature = "mysql-server")]
#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_messages_and_six_kills_on_mysql() {
    many_messages_and_six_kills(Kind::Mysql, 17_200).await;
}

/// So many different messages and a good sixth of them again, two processes, six of them killed.
async fn many_messages_and_six_kills(kind: Kind, unique: u32) {
    let mut world = World::new(kind, 6).await;
    world.inbox(|inbox| inbox.set("batch", "{ messages = 500 }"));
    let all: Vec<Order> = (0..unique).map(Order::number).collect();
    let mut records = Vec::new();
    for (nth, order) in all.iter().enumerate() {
        records.push(order.clone());
        match nth % 10 {
            // At once, or a good while later.
            3 => records.push(order.clone()),
            7 if nth > 5_000 => records.push(all[nth - 5_000].clone()),
            _ => {}
        }
    }
    // Each article sees its orders ascending, so that copies are the only ones to come late.
    assert!(u32::try_from(records.len()).expect("few") > unique + unique / 6);
    world.topic.send(&records);

    let mut daemons = [world.start(), world.start()];
    for kill in 1..=KILLS {
        world.effects_reach(kill * i64::from(unique) / (KILLS + 1)).await;
        let slot = usize::try_from(kill).expect("few") % 2;
        let killed = std::mem::replace(&mut daemons[slot], world.start());
        killed.kill();
        world.snapshot_is_whole().await;
        world.kafka_is_not_ahead().await;
    }
    world.caught_up().await;
    world.has_exactly(&all).await;
    let skipped = world.duplicates().await;
    let copies = i64::try_from(records.len()).expect("few") - i64::from(unique);
    assert!(skipped >= copies, "{copies} copies were sent, {skipped} were skipped");
    assert_eq!(world.db.different("sku").await, i64::from(SKUS));
    for daemon in daemons {
        daemon.stop();
    }
}
