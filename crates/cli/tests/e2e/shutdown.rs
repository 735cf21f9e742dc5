//! SIGTERM: the daemon ends what it has begun, tells Kafka, and goes.

use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::on_each_server;
use crate::support::orders::orders;
use crate::support::world::World;

on_each_server!(sigterm_waits_for_the_transaction_in_flight, sigterm_while_the_database_is_away,);

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_drains_and_exits_0() {
    for kind in Kind::ALL {
        let world = World::new(kind, 3).await;
        let all = orders(0..3000);
        world.topic.send(&all);
        for stop_at in [100, 600, 1200] {
            let daemon = world.start();
            daemon.ready().await;
            world.effects_reach(stop_at).await;
            daemon.stop();
            let positions = world.positions_of(&world.consumer).await;
            let committed = world.topic.committed(&world.consumer);
            for (partition, next) in positions {
                let of_kafka = committed[usize::try_from(partition).expect("a partition")].unwrap_or(0);
                assert_eq!(
                    of_kafka, next,
                    "{kind:?}: what Kafka knows of partition {partition} after the drain"
                );
            }
            world.receipts_are_effects().await;
        }
        let daemon = world.start();
        world.caught_up().await;
        assert_eq!(world.duplicates().await, 0, "nothing was read twice");
        world.has_exactly(&all).await;
        daemon.stop();
    }
}

/// A transaction in flight is waited for, and its partition is free for the next process at once.
async fn sigterm_waits_for_the_transaction_in_flight(kind: Kind) {
    let mut world = World::new(kind, 1).await;
    world.inbox(|inbox| inbox.gated(kind));
    let all = orders(0..60);
    world.topic.send(&all[..20]);
    let gate = world.db.close_gate().await;
    let daemon = world.start();
    eventually("a transaction is in flight", async || world.db.waiting_handlers().await == 1).await;
    let stopping = tokio::task::spawn_blocking(move || daemon.stop());
    world.topic.send(&all[20..]);
    gate.open().await;
    stopping.await.expect("exit code 0");
    let applied = world.effects().await;
    assert!(applied > 0, "the transaction in flight was not given up");
    assert_eq!(world.topic.committed(&world.consumer), [Some(applied)]);
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&all).await;
    daemon.stop();
}

/// The database is away: there is nothing to drain into, and the daemon goes all the same.
async fn sigterm_while_the_database_is_away(kind: Kind) {
    let world = World::new(kind, 2).await;
    let all = orders(0..100);
    world.topic.send(&all[..50]);
    let daemon = world.start();
    world.caught_up().await;
    world.db.allow_connections(false).await;
    world.db.terminate_daemons().await;
    world.topic.send(&all[50..]);
    daemon.has_logged("the database is in trouble").await;
    daemon.stop();
    world.db.allow_connections(true).await;
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&all).await;
    daemon.stop();
}
