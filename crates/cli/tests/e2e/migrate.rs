//! `oncebox migrate`: the tables, from one process or many.

use crate::support::command::Answer;
use crate::support::database::Kind;
use crate::support::orders::orders;
use crate::support::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn six_processes_migrate_at_once() {
    for kind in Kind::ALL {
        let world = World::new(kind, 1).await;
        let status = || world.oncebox(&["migrate", "status", "--output", "json"]);
        let before = status().exits(1).json();
        assert!(
            before.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(|m| m["applied"] == false))
        );
        assert!(!world.db.is_migrated().await, "asking changes nothing");
        world.oncebox(&["migrate", "status"]).exits(1);

        let all: Vec<_> = (0..6)
            .map(|_| {
                let folder = world.folder().to_owned();
                tokio::task::spawn_blocking(move || Answer::of(&folder, ["migrate"]))
            })
            .collect();
        let mut applied = 0;
        for answer in all {
            applied += answer.await.expect("no panic").exits(0).stderr.matches("applied ").count();
        }
        assert_eq!(applied, before.as_array().map_or(0, Vec::len), "each step once, whoever does it");
        let after = status().exits(0).json();
        assert!(after.as_array().is_some_and(|all| all.iter().all(|m| m["applied"] == true)), "{after:#}");
        world.oncebox(&["migrate", "up"]).exits(0).says(&["nothing to do"]);
    }
}

/// What `migrate sql` prints can be run by hand, and the daemon is content with it.
#[tokio::test(flavor = "multi_thread")]
async fn migrate_sql_prints_what_migrate_does() {
    for kind in Kind::ALL {
        let world = World::new(kind, 1).await;
        let sql = world.oncebox(&["migrate", "sql"]).exits(0).stdout;
        for table in ["oncebox_inbox", "oncebox_position", "oncebox_dead"] {
            assert!(sql.contains(table), "{kind:?}: {table} is missing");
        }
        assert!(!world.db.is_migrated().await, "printing changes nothing");
        world.db.script(&sql).await;
        assert!(world.db.is_migrated().await);
    }
}

/// Two daemons and a `migrate` start together on an empty database.
#[tokio::test(flavor = "multi_thread")]
async fn daemons_that_start_together_on_an_empty_database() {
    for kind in Kind::ALL {
        let world = World::new(kind, 4).await;
        let all = orders(0..200);
        world.topic.send(&all);
        let daemons = [world.start(), world.start(), world.start()];
        world.oncebox(&["migrate"]).exits(0);
        world.caught_up().await;
        world.has_exactly(&all).await;
        for daemon in daemons {
            daemon.ready().await;
            daemon.stop();
        }
    }
}
