//! `oncebox dead`: look at dead letters, replay them, drop them.

use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::orders::{Order, orders};
use crate::support::topic::Odd;
use crate::support::world::World;

/// An article that is not there yet: orders of it are given up.
const MISSING: u32 = 100;

fn missing(count: i64) -> Vec<Order> {
    (0..count).map(|seq| Order::of(MISSING, seq)).collect()
}

/// A world with that many dead letters, and two good messages.
async fn world_with_letters(kind: Kind, count: i64) -> (World, Daemon) {
    let world = World::new(kind, 1).await;
    world.topic.send(&orders(0..1));
    world.topic.send(&missing(count));
    world.topic.send(&orders(1..2));
    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(i64::try_from(world.dead("message_id").await.len()), Ok(count));
    (world, daemon)
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_and_shown() {
    for &kind in Kind::WITH_MYSQL {
        let (world, daemon) = world_with_letters(kind, 5).await;
        let list = |more: &[&str]| {
            let answer = world.oncebox(&[&["dead", "list", "--output", "json"], more].concat());
            (answer.code, answer.json())
        };
        let ids = |(code, letters): (Option<i32>, Value)| -> (Option<i32>, Vec<String>) {
            let id = |letter: &Value| letter["message_id"].as_str().unwrap_or_default().to_owned();
            (code, letters.as_array().into_iter().flatten().map(id).collect())
        };
        let all: Vec<String> = missing(5).into_iter().map(|order| order.id).collect();
        assert_eq!(ids(list(&[])), (Some(0), all.clone()));
        assert_eq!(ids(list(&["--consumer", &world.consumer])), (Some(0), all.clone()));
        assert_eq!(ids(list(&["--topic", &world.topic.name, "--key", "sku-100"])), (Some(0), all.clone()));
        assert_eq!(ids(list(&["--message-id", "sku-100-3"])), (Some(0), vec!["sku-100-3".to_owned()]));
        assert_eq!(ids(list(&["--limit", "2"])), (Some(0), all[..2].to_vec()));
        let (_, letters) = list(&["--limit", "2"]);
        let after = letters[1]["number"].to_string();
        assert_eq!(ids(list(&["--after", &after])), (Some(0), all[2..].to_vec()));
        for nothing in [["--consumer", "nobody"], ["--topic", "none"], ["--tenant", "t"], ["--key", "k"]] {
            assert_eq!(ids(list(&nothing)), (Some(1), vec![]), "{nothing:?}");
        }

        let number = letters[1]["number"].to_string();
        let shown = world.oncebox(&["dead", "show", &number, "--output", "json"]).exits(0).json();
        assert_eq!(shown["message_id"], "sku-100-1");
        assert_eq!(shown["consumer"], world.consumer.as_str());
        assert_eq!(shown["topic"], world.topic.name.as_str());
        assert_eq!((&shown["partition"], &shown["offset"]), (&0.into(), &2.into()));
        assert_eq!(shown["payload"], missing(2)[1].payload());
        assert_eq!(shown["headers"], serde_json::json!([{"name": "event_id", "value": "sku-100-1"}]));
        let none = if kind == Kind::Mongodb { "0 documents" } else { "0 rows" };
        assert!(shown["error"].as_str().is_some_and(|error| error.contains(none)), "{shown:#}");
        let table = world.oncebox(&["dead", "show", &number]).exits(0).stdout;
        assert!(table.contains("sku-100-1") && table.contains(none), "{table}");
        world.oncebox(&["dead", "show", "4711", "--output", "json"]).exits(1).says(&["4711"]);
        world.oncebox(&["dead", "list"]).exits(0);
        daemon.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_after_the_cause_is_mended_applies_once() {
    for &kind in Kind::WITH_MYSQL {
        let (world, daemon) = world_with_letters(kind, 4).await;
        let replay = |more: &[&str]| world.oncebox(&[&["dead", "replay", "--output", "json"], more].concat());
        replay(&[]).exits(2).says(&["--all"]);

        // Nothing is mended yet.
        let answer = replay(&["--all"]).exits(1).json();
        assert_eq!(answer["replayed"], 0);
        assert_eq!(answer["failed"].as_array().map(Vec::len), Some(4), "{answer:#}");
        assert_eq!(world.dead("message_id").await.len(), 4, "they stay as they were");

        world.db.deliver("sku-100", 1000).await;
        let listed = replay(&["--all", "--dry-run"]).exits(0).json();
        assert_eq!(listed.as_array().map(Vec::len), Some(4));
        assert_eq!(world.effects().await, 2, "a dry run applies nothing");

        let first = listed[0]["number"].to_string();
        assert_eq!(replay(&[&first]).exits(0).json()["replayed"], 1);
        world.has_exactly(&[&orders(0..2)[..], &missing(1)].concat()).await;
        assert_eq!(replay(&["--consumer", &world.consumer]).exits(0).json()["replayed"], 3);
        assert_eq!(replay(&["--all"]).exits(1).json()["replayed"], 0, "nothing is left");
        assert_eq!(replay(&[&first]).exits(1).json()["replayed"], 0, "nothing is left");
        let all = [&orders(0..2)[..], &missing(4)].concat();
        world.has_exactly(&all).await;

        // Copies that come now are copies.
        world.topic.send(&missing(4));
        world.caught_up().await;
        assert_eq!(world.duplicates().await, 4);
        assert_eq!(world.dead("message_id").await, [""; 0]);
        world.has_exactly(&all).await;
        daemon.stop();
    }
}

/// Two operators at once: whoever comes second waits and finds nothing.
#[tokio::test(flavor = "multi_thread")]
async fn two_replays_at_once_apply_once() {
    for &kind in Kind::WITH_MYSQL {
        let (world, daemon) = world_with_letters(kind, 150).await;
        world.db.deliver("sku-100", 1000).await;
        world.write_config();
        let replay = || {
            let folder = world.folder().to_owned();
            tokio::task::spawn_blocking(move || {
                crate::support::command::Answer::of(&folder, ["dead", "replay", "--all", "--output", "json"])
            })
        };
        let (one, two) = tokio::join!(replay(), replay());
        let (one, two) = (one.expect("no panic"), two.expect("no panic"));
        let replayed = |answer: &Value| answer["replayed"].as_u64().unwrap_or_default();
        let (one, two) = (one.json(), two.json());
        assert_eq!(replayed(&one) + replayed(&two), 150, "{one:#} {two:#}");
        assert_eq!(one["failed"], serde_json::json!([]), "{one:#}");
        assert_eq!(two["failed"], serde_json::json!([]), "{two:#}");
        world.has_exactly(&[&orders(0..2)[..], &missing(150)].concat()).await;
        daemon.stop();
    }
}

/// Dropped is dropped: the effect never comes, not even with a copy.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_letters_stay_settled() {
    for kind in Kind::ALL {
        // More than one page of them.
        let (world, daemon) = world_with_letters(kind, 450).await;
        let drop = |more: &[&str]| world.oncebox(&[&["dead", "drop", "--output", "json"], more].concat());
        drop(&[]).exits(2).says(&["--all"]);
        let listed = drop(&["--all", "--dry-run"]).exits(0).json();
        assert_eq!(listed.as_array().map(Vec::len), Some(450), "a dry run shows what would go");
        assert_eq!(world.dead("message_id").await.len(), 450, "a dry run drops nothing");
        let first = listed[0]["number"].to_string();
        assert_eq!(drop(&[&first]).exits(0).json()["dropped"], 1);
        assert_eq!(drop(&[&first]).exits(1).json()["dropped"], 0);
        assert_eq!(drop(&["--all"]).exits(0).json()["dropped"], 449);
        assert_eq!(drop(&["--all"]).exits(1).json()["dropped"], 0);

        world.db.deliver("sku-100", 1000).await;
        world.topic.send(&missing(450));
        world.caught_up().await;
        assert_eq!(world.duplicates().await, 450);
        assert_eq!(world.effects().await, 2);
        daemon.stop();
    }
}

/// A letter that had no id gets one when the configuration finds it; a copy of it is then known.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_without_an_id_is_replayed_with_the_id_it_has_now() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        let order = Order::of(0, 0);
        let (key, payload) = (order.key(), order.payload());
        let headers = [("message", Some(order.id.as_bytes()))];
        let odd = || Odd {
            partition: 0,
            key: Some(key.as_bytes()),
            payload: Some(payload.as_bytes()),
            headers: &headers,
            ..Odd::default()
        };
        world.topic.send_odd(&odd());
        world.topic.send_odd(&odd());
        let daemon = world.start();
        world.caught_up().await;
        daemon.stop();
        assert_eq!(world.dead("message_id").await, ["", ""]);
        world.oncebox(&["dead", "replay", "--all"]).exits(1).says(&["event_id"]);

        world.inbox(|inbox| inbox.set("id", "\"header:message\""));
        world.oncebox(&["dead", "replay", "--all"]).exits(0);
        world.has_exactly(std::slice::from_ref(&order)).await;
        world.topic.send_odd(&odd());
        let daemon = world.start();
        world.caught_up().await;
        world.has_exactly(&[order]).await;
        daemon.stop();
    }
}

/// `park-key`: a letter that stands behind another one of its key waits for it, unless it is forced.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_not_replayed_before_an_earlier_one_of_its_key() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("on_failure", "\"park-key\""));
        let order = Order::of;
        world.topic.send(&[order(100, 0), order(100, 1), order(100, 2), order(101, 0)]);
        let daemon = world.start();
        world.caught_up().await;
        daemon.stop();
        for sku in ["sku-100", "sku-101"] {
            world.db.deliver(sku, 100).await;
        }
        let letters = world.oncebox(&["dead", "list", "--output", "json"]).exits(0).json();
        let number = |nth: usize| letters[nth]["number"].to_string();
        let replay = |more: &[&str]| world.oncebox(&[&["dead", "replay", "--output", "json"], more].concat());

        let refused = replay(&[&number(1)]).exits(1).json();
        assert_eq!(refused["replayed"], 0);
        let error = refused["failed"][0]["error"].as_str().unwrap_or_default();
        assert!(error.contains(&format!("behind dead letter {}", number(0))), "{error}");
        assert!(error.contains("--force"), "{error}");
        assert_eq!(world.effects().await, 0, "nothing is applied out of order");
        assert_eq!(replay(&[&number(3)]).exits(0).json()["replayed"], 1, "another key does not wait");

        // What is dropped holds back nobody.
        assert_eq!(replay(&["--force", &number(2)]).exits(0).json()["replayed"], 1);
        world.oncebox(&["dead", "drop", &number(0)]).exits(0);
        assert_eq!(replay(&["--all"]).exits(0).json()["replayed"], 1);
        assert_eq!(world.effects().await, 3);
        assert_eq!(world.dead("message_id").await, [""; 0]);
    }
}
