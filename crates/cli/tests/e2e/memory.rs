//! However many partitions there are, and however large their messages: what waits in the process has a bound.

use std::ops::Range;
use std::time::Duration;

use crate::support::config::Inbox;
use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::topic::Odd;
use crate::support::world::World;

const MIB: f64 = 1024.0 * 1024.0;
const MESSAGE: usize = 32 * 1024;

/// Notes where each message comes from, and waits for the gate before that, for as long as it is closed.
fn noting(world: &World) -> Inbox {
    let statements = vec![
        "\"SELECT set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)\""
            .to_owned(),
        "\"SELECT pg_advisory_xact_lock_shared(1)\"".to_owned(),
        "{ sql = \"INSERT INTO seen (part, off) VALUES (:partition, :offset)\", rows = 1 }".to_owned(),
    ];
    Inbox::new(&world.consumer, &world.topic.name, statements).set("payload", "\"bytes\"")
}

async fn world_of(partitions: i32, memory: &str) -> World {
    let mut world = World::new(Kind::Postgres, partitions).await;
    world.db.execute("CREATE TABLE seen (n BIGSERIAL, part INT, off BIGINT)").await;
    world.config.inboxes = vec![noting(&world)];
    world.config.more = format!("[limits]\nmemory = {memory:?}\n");
    world
}

/// Sends messages to each of these partitions, in turns: a producer's batch is fetched whole, however little is asked for.
fn send(world: &World, partitions: Range<i32>, messages: usize) {
    let payload = vec![b'x'; MESSAGE];
    for number in 0..messages {
        for partition in partitions.clone() {
            let id = format!("{partition}-{number}");
            world.topic.enqueue(&Odd {
                partition,
                payload: Some(&payload),
                headers: &[("event_id", Some(id.as_bytes()))],
                ..Odd::default()
            });
        }
        if partitions.len() > 1 {
            world.topic.flush();
        }
    }
    world.topic.flush();
}

async fn waiting(daemon: &Daemon) -> f64 {
    daemon.metric("oncebox_waiting_bytes").await.unwrap_or_default()
}

/// Each message once, those of a partition in their order.
async fn all_are_applied(world: &World, messages: i64) {
    let count = world.db.number("SELECT COUNT(*) FROM seen").await;
    let different = world.db.number("SELECT COUNT(*) FROM (SELECT DISTINCT part, off FROM seen) AS d").await;
    assert_eq!((count, different), (messages, messages));
    let swapped =
        "SELECT COUNT(*) FROM seen a JOIN seen b ON a.part = b.part AND a.off < b.off AND a.n > b.n";
    assert_eq!(world.db.number(swapped).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_partitions_of_large_messages_keep_to_the_bound() {
    let partitions = 200;
    let each = 16;
    let world = world_of(partitions, "16MiB").await;
    let daemon = world.start();
    eventually("all partitions are read", async || {
        world.positions_of(&world.consumer).await.len() == partitions as usize
    })
    .await;
    let before = daemon.resident_bytes();

    let gate = world.db.close_gate().await;
    send(&world, 0..partitions, each);
    // Three quarters are for what waits, and nearly all of that is used: about 100 MiB are to be read.
    let mut most = 0.0_f64;
    eventually("as much is read as may be", async || {
        most = most.max(waiting(&daemon).await);
        most > 10.0 * MIB
    })
    .await;
    for _ in 0..20 {
        most = most.max(waiting(&daemon).await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let resident = daemon.resident_bytes() - before;

    gate.open().await;
    let messages = i64::from(partitions) * each as i64;
    eventually("everything is applied", async || {
        most = most.max(waiting(&daemon).await);
        world.db.rows("seen").await == messages
    })
    .await;
    eventually("nothing waits any more", async || waiting(&daemon).await == 0.0).await;
    daemon.stop();
    all_are_applied(&world, messages).await;
    assert!(most <= 12.0 * MIB + 2.0 * MESSAGE as f64, "{} MiB waited", most / MIB);
    assert!(resident < 64.0 * MIB, "{} MiB more than without messages", resident / MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_with_a_long_backlog_does_not_keep_the_others_from_being_applied() {
    let (partitions, long, short) = (4, 3000, 40);
    let world = world_of(partitions, "4MiB").await;
    send(&world, 0..1, long);
    let daemon = world.start();
    eventually("it is under way", async || world.db.is_migrated().await && world.db.rows("seen").await > 50)
        .await;
    send(&world, 1..partitions, short);
    let others = "SELECT COUNT(*) FROM seen WHERE part > 0";
    eventually("the others are applied", async || {
        world.db.number(others).await == i64::from(partitions - 1) * short as i64
    })
    .await;
    let ahead = world.db.number("SELECT COUNT(*) FROM seen WHERE part = 0").await;
    assert!(ahead < long as i64, "they had to wait for the long one");
    world.caught_up().await;
    daemon.stop();
    all_are_applied(&world, long as i64 + i64::from(partitions - 1) * short as i64).await;
}
