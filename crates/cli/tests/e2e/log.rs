//! Nobody reads the log, or it cannot be written, or a task panics: work goes on.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::endpoint::{Endpoint, Reply};
use crate::support::eventually;
use crate::support::orders::orders;
use crate::support::world::World;

/// Starts a daemon whose log goes there.
fn start(world: &World, stderr: impl Into<Stdio>) -> Daemon {
    world.write_config();
    Daemon::start_logging_to(world.folder(), stderr.into())
}

/// It goes on applying messages, and ends as it should.
async fn works_and_ends_well(world: &World, daemon: Daemon) {
    for from in [20, 40] {
        world.topic.send(&orders(from..from + 20));
        world.caught_up().await;
    }
    world.has_exactly(&orders(0..60)).await;
    daemon.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_outlives_the_reader_of_its_log() {
    let world = World::new(Kind::Postgres, 2).await;
    world.topic.send(&orders(0..20));
    let mut daemon = start(&world, Stdio::piped());
    let log = BufReader::new(daemon.pipe());
    // As `head -3` does.
    let read: Vec<String> = log.lines().take(3).map(|line| line.expect("a line")).collect();
    assert_eq!(read.len(), 3);
    works_and_ends_well(&world, daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_outlives_a_full_disk_behind_its_log() {
    let world = World::new(Kind::Postgres, 2).await;
    world.topic.send(&orders(0..20));
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    works_and_ends_well(&world, start(&world, full)).await;
}

/// A bug in the engine itself: the partition stands still and says so, the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_whose_task_panics_stands_still_and_red() {
    let world = World::new(Kind::Postgres, 2).await;
    world.topic.send(&orders(0..20));
    let daemon = world.start_to_crash("after-acquire:1:panic");
    let stopped = world.turns(&daemon, 503).await;
    let reason = stopped[0]["error"].as_str().unwrap_or_default();
    assert!(stopped.len() == 1 && reason.contains("after-acquire"), "{stopped:?}");
    world.effects_reach(10).await;
    daemon.stop();
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&orders(0..20)).await;
    daemon.stop();
}

/// Each loop of the daemon dies once, at its start.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_panics_is_started_again() {
    for task in ["inbox", "relay", "sweep", "purge", "store", "http"] {
        let mut world = World::new(Kind::Postgres, 1).await;
        world.outbox("relay", "true");
        world.outbox("keep", "\"1h\"");
        let endpoint = Endpoint::start(|_, _| Reply::Status(200)).await;
        world.config.more = format!(
            "[[webhook]]\ntopics = [\"events\"]\nurl = {:?}\n\
             [[sweep]]\nname = \"all\"\nevery = \"1s\"\nsql = \"SELECT sku FROM stock\"\nkey = \"sku\"\n\
             emit = {{ topic = \"events\" }}\n",
            endpoint.url()
        );
        world.topic.send(&orders(0..20));
        let daemon = world.start_to_crash(&format!("task-{task}:1:panic"));
        daemon.has_logged("a loop ended badly; starting it again").await;
        assert!(daemon.log().contains(&format!("failpoint task-{task}")), "the panic is in the log");
        world.caught_up().await;
        world.has_exactly(&orders(0..20)).await;
        eventually("everything is well again", async || {
            daemon.health().await.is_some_and(|(status, _)| status == 200)
        })
        .await;
        let published = "SELECT COUNT(*) FROM oncebox_outbox WHERE published_at IS NOT NULL";
        eventually("events are published", async || world.db.number(published).await > 0).await;
        daemon.stop();
    }
}
