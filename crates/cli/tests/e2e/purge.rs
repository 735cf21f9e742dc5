//! Receipts are removed while messages flow.

use std::collections::BTreeSet;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::database::Kind;
use crate::support::orders::orders;
use crate::support::world::World;

/// Old receipts go, fresh ones stay, and no message notices.
#[tokio::test(flavor = "multi_thread")]
async fn purge_while_messages_flow() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 3).await;
        world.inbox(|inbox| inbox.set("retention", "\"10m\""));
        world.config.more = "[purge]\nevery = \"1s\"\n".to_owned();
        let all = orders(0..3000);
        world.topic.send(&all[..1000]);
        let daemon = world.start();
        world.caught_up().await;
        let old = receipts(&world).await;
        world.db.age_receipts().await;
        assert_eq!(old.len(), 1000);

        // While new ones come, with copies of the young ones among them.
        let purged = "oncebox_purged_total";
        let mut by_hand = 0;
        for part in all[1000..].chunks(200) {
            world.topic.send(part);
            world.topic.send(&part[..50]);
            let answer = world.oncebox(&["purge", "--output", "json"]).exits(0).json();
            by_hand += answer["receipts"].as_u64().unwrap_or_default();
        }
        world.caught_up().await;
        crate::support::eventually("the old receipts are gone", async || {
            receipts(&world).await.len() == 2000
        })
        .await;
        let left = receipts(&world).await;
        assert!(left.is_disjoint(&old), "only old receipts are removed");
        crate::support::eventually("all 1000 are counted", async || {
            by_hand as f64 + daemon.metric(purged).await.unwrap_or(0.0) == 1000.0
        })
        .await;
        assert_eq!(world.duplicates().await, 500);
        let effects = world.effects_of(&world.consumer).await;
        crate::support::check::compare_ids("effects", &effects, &all);
        world.is_consistent().await;
        daemon.stop();
    }
}

/// `--dry-run` counts and removes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn purge_dry_run_only_counts() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("retention", "\"10m\""));
        world.topic.send(&orders(0..40));
        let daemon = world.start();
        world.caught_up().await;
        world.known_to_be_caught_up().await;
        daemon.stop();
        assert_eq!(world.oncebox(&["purge", "--output", "json"]).exits(0).json()["receipts"], 0);
        world.db.age_receipts().await;
        for _ in 0..2 {
            let answer = world.oncebox(&["purge", "--dry-run", "--output", "json"]).exits(0).json();
            assert_eq!(answer["receipts"], 40);
            assert_eq!(answer["dry_run"], true);
        }
        assert_eq!(receipts(&world).await.len(), 40);
        assert_eq!(world.oncebox(&["purge", "--output", "json"]).exits(0).json()["receipts"], 40);
        assert_eq!(receipts(&world).await.len(), 0);
    }
}

async fn receipts(world: &World) -> BTreeSet<String> {
    world.db.message_ids("oncebox_inbox", &world.consumer).await.into_iter().collect()
}

/// Ctrl-C ends a pass between two steps; the next one does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_purge_stops_cleanly_and_is_finished_by_the_next() {
    let mut world = World::new(Kind::Postgres, 1).await;
    world.inbox(|inbox| inbox.set("retention", "\"10m\""));
    world.oncebox(&["migrate"]).exits(0);
    world
        .db
        .execute(&format!(
            "INSERT INTO oncebox_inbox (key, processed_at, consumer, message_id) SELECT gen_random_uuid(), \
             now() - interval '2 hours', '{}', 'old-' || n FROM generate_series(1, 100000) AS n",
            world.consumer
        ))
        .await;
    // It begins, and waits for us.
    let lock = world.db.begin("LOCK TABLE oncebox_inbox IN ACCESS EXCLUSIVE MODE").await;
    let mut command = crate::support::command::oncebox(world.folder());
    command.args(["purge", "--output", "json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("oncebox starts");
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND application_name = 'oncebox' AND wait_event_type = 'Lock'";
    crate::support::eventually("the purge waits", async || world.db.number(waiting).await > 0).await;
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    kill(pid, Signal::SIGINT).expect("it runs");
    // So that it has noticed before it can go on.
    crate::support::eventually("the signal has arrived", async || !has_pending(pid)).await;
    lock.rollback().await;
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(answer["end"], "stopped", "{output:?}");
    let removed = answer["receipts"].as_i64().expect("a number");
    let left = world.db.number("SELECT COUNT(*) FROM oncebox_inbox").await;
    assert!(left > 0 && left + removed == 100_000, "{left} are left, {removed} were removed");

    let rest = world.oncebox(&["purge", "--output", "json"]).exits(0).json();
    assert_eq!((&rest["end"], &rest["receipts"]), (&"finished".into(), &left.into()));
    assert_eq!(world.db.number("SELECT COUNT(*) FROM oncebox_inbox").await, 0);
}

/// Whether a signal waits for the process to take it.
fn has_pending(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status
        .lines()
        .filter_map(|line| line.strip_prefix("ShdPnd:"))
        .any(|mask| mask.trim().contains(|c| c != '0'))
}
