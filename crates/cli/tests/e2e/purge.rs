//! Receipts are removed while messages flow.

use std::collections::BTreeSet;

use crate::support::database::{Database, Kind};
use crate::support::orders::orders;
use crate::support::world::World;

/// Old receipts go, fresh ones stay, and no message notices.
#[tokio::test(flavor = "multi_thread")]
async fn purge_while_messages_flow() {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let mut world = World::new(kind, 3).await;
        world.inbox(|inbox| inbox.set("retention", "\"10m\""));
        world.config.more = "[purge]\nevery = \"1s\"\n".to_owned();
        let all = orders(0..3000);
        world.topic.send(&all[..1000]);
        let daemon = world.start();
        world.caught_up().await;
        let old = receipts(&world.db).await;
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
            receipts(&world.db).await.len() == 2000
        })
        .await;
        let left = receipts(&world.db).await;
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
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("retention", "\"10m\""));
        world.topic.send(&orders(0..40));
        let daemon = world.start();
        world.caught_up().await;
        daemon.stop();
        assert_eq!(world.oncebox(&["purge", "--output", "json"]).exits(0).json()["receipts"], 0);
        world.db.age_receipts().await;
        for _ in 0..2 {
            let answer = world.oncebox(&["purge", "--dry-run", "--output", "json"]).exits(0).json();
            assert_eq!(answer["receipts"], 40);
            assert_eq!(answer["dry_run"], true);
        }
        assert_eq!(receipts(&world.db).await.len(), 40);
        assert_eq!(world.oncebox(&["purge", "--output", "json"]).exits(0).json()["receipts"], 40);
        assert_eq!(receipts(&world.db).await.len(), 0);
    }
}

async fn receipts(db: &Database) -> BTreeSet<String> {
    db.texts("SELECT message_id FROM oncebox_inbox").await.into_iter().collect()
}
