//! The process ends at each step of the loop, and a message that ends the process.

use crate::support::database::Kind;
use crate::support::orders::orders;
use crate::support::world::World;

/// Each step, at the first, second and fifth time it is reached: before anything was applied, and in the middle.
const STEPS: [&str; 11] = [
    "after-acquire:1",
    "after-acquire:2",
    "after-claim:1",
    "after-claim:2",
    "after-claim:5",
    "before-handler:1",
    "before-handler:4",
    "after-handler:1",
    "after-handler:5",
    "after-commit:1",
    "after-commit:5",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_each_step_on_postgres() {
    crash_at_each_step(Kind::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_each_step_on_mariadb() {
    crash_at_each_step(Kind::Mariadb).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_each_step_on_mongodb() {
    crash_at_each_step(Kind::Mongodb).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_each_step_on_sqlite() {
    crash_at_each_step(Kind::Sqlite).await;
}

/// One process after another on the same database: each crashes at its step among fresh messages, the next goes on.
async fn crash_at_each_step(kind: Kind) {
    const EACH: u32 = 240;
    let mut world = World::new(kind, 2).await;
    world.config.with_static_membership();
    let mut sent = 0;
    for step in STEPS {
        world.topic.send(&orders(sent..sent + EACH));
        sent += EACH;
        world.start_to_crash(step).crashed();
        let daemon = world.start();
        world.caught_up().await;
        world.has_exactly(&orders(0..sent)).await;
        // A kill, so that Kafka's offsets are as far behind as they may be.
        daemon.kill();
    }
    assert_eq!(world.dead("message_id").await, [""; 0], "no message is to blame");
}

/// One crash after another without anything in between: what one has left behind must not confuse the next.
#[tokio::test(flavor = "multi_thread")]
async fn crashes_one_after_another() {
    for (kind, lanes) in Kind::WITH_MYSQL.iter().flat_map(|kind| [(*kind, "1"), (*kind, "4")]) {
        let mut world = World::new(kind, 2).await;
        world.config.with_static_membership();
        world.inbox(|inbox| inbox.set("lanes", lanes).set("batch", "{ messages = 10 }"));
        let all = orders(0..300);
        world.topic.send(&all);
        for step in ["after-commit:2", "after-claim:3", "after-commit:1", "after-handler:2", "after-commit:3"]
        {
            world.start_to_crash(step).crashed();
        }
        let daemon = world.start();
        world.caught_up().await;
        world.has_exactly(&all).await;
        daemon.stop();
    }
}

/// A message that ends the process each time it is applied is found out and given up; the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_aborts_the_process_is_given_up() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.config.with_static_membership();
        let all = orders(0..21);
        world.topic.send(&all);
        // Whatever is applied first ends the process: as long as it is not given up, that is the first message.
        let mut starts = 0;
        while starts == 0 || world.dead("message_id").await.is_empty() {
            starts += 1;
            assert!(starts <= 12, "the message is not given up after {starts} starts");
            world.start_to_crash("before-handler:1").crashed();
        }
        assert_eq!(world.effects().await, 0);
        let daemon = world.start();
        world.caught_up().await;
        assert_eq!(world.dead("message_id").await, [all[0].id.as_str()]);
        let error = world.dead("error").await.remove(0);
        assert!(error.contains("the process ended"), "{error}");
        world.has_exactly(&all[1..]).await;
        daemon.stop();
    }
}
