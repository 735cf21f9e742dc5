//! What operators do: groups, edits, replays of many, one message, and who did it.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::command::oncebox;
use crate::support::daemon::Daemon;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::{Order, orders};
use crate::support::world::World;

/// An article that is not there: orders of it are given up.
const MISSING: u32 = 100;

fn missing(count: i64) -> Vec<Order> {
    (0..count).map(|seq| Order::of(MISSING, seq)).collect()
}

async fn world_with_letters(kind: Kind, count: i64) -> (World, Daemon) {
    let world = World::new(kind, 1).await;
    world.topic.send(&missing(count));
    world.topic.send(&orders(0..2));
    let daemon = world.start();
    world.caught_up().await;
    assert_eq!(i64::try_from(world.dead("message_id").await.len()), Ok(count));
    (world, daemon)
}

fn json_of(world: &World, arguments: &[&str], code: i32) -> Value {
    world.oncebox(&[arguments, &["--by", "ana", "--output", "json"]].concat()).exits(code).json()
}

/// The newest entry of the audit.
fn last_act(world: &World) -> Value {
    json_of(world, &["audit", "--limit", "1"], 0)[0].clone()
}

/// Poison becomes a group; a letter of it is mended by hand and replayed, and its effect is in the database.
#[tokio::test(flavor = "multi_thread")]
async fn poison_is_grouped_mended_and_replayed() {
    for &kind in Kind::WITH_MYSQL {
        let (world, daemon) = world_with_letters(kind, 5).await;
        let groups = json_of(&world, &["dead", "groups"], 0);
        assert_eq!(groups.as_array().map(Vec::len), Some(1), "{kind:?}: one error, one group: {groups:#}");
        assert_eq!((&groups[0]["letters"], &groups[0]["keys"]), (&json!(5), &json!(1)), "{groups:#}");
        assert_eq!(groups[0]["keys_held_back"], 0, "on_failure is park");
        let group = groups[0]["group"].as_str().expect("a name").to_owned();
        let listed =
            json_of(&world, &["dead", "list", "--group", &group, "--newest-first", "--limit", "2"], 0);
        assert_eq!(
            (&listed[0]["message_id"], &listed[1]["message_id"]),
            (&json!("sku-100-4"), &json!("sku-100-3"))
        );
        assert_eq!(json_of(&world, &["dead", "list", "--group", "000000000000"], 1), json!([]));
        assert_eq!(json_of(&world, &["dead", "groups", "--consumer", "nobody"], 1), json!([]));

        let number = listed[1]["number"].to_string();
        let mended = world.folder().join("mended.json");
        fs::write(&mended, Order { sku: 0, ..Order::of(MISSING, 3) }.payload()).expect("a file");
        let file = mended.display().to_string();
        let edit = ["dead", "edit", &number, "--payload", &file, "--header", "mended=yes"];
        assert_eq!(json_of(&world, &edit, 0)["changed"], true);
        let shown = json_of(&world, &["dead", "show", &number], 0);
        assert_eq!(shown["payload"], Order { sku: 0, ..Order::of(MISSING, 3) }.payload());
        assert_eq!(shown["edit"]["original"]["payload"], Order::of(MISSING, 3).payload());
        assert_eq!((&shown["edit"]["by"], &shown["edit"]["times"]), (&json!("cli:ana"), &json!(1)));
        assert_eq!(shown["headers"][1], json!({"name": "mended", "value": "yes"}), "{shown:#}");
        assert_eq!(json_of(&world, &edit, 0)["changed"], false, "it is so already");
        world.oncebox(&["dead", "edit", "4711", "--header", "a=b"]).exits(1).says(&["4711"]);

        assert_eq!(world.effects().await, 2);
        let replayed = json_of(&world, &["dead", "replay", "--group", &group], 1);
        assert_eq!(
            (&replayed["applied"], &replayed["failed"].as_array().map(Vec::len)),
            (&json!(1), &Some(4))
        );
        assert_eq!(world.effects().await, 3, "{kind:?}: the mended one is applied");
        assert_eq!(world.dead("message_id").await.len(), 4);
        let act = last_act(&world);
        assert_eq!(
            (&act["action"], &act["who"], &act["parameters"]["group"]),
            (&json!("replay"), &json!("cli:ana"), &json!(group))
        );
        assert_eq!((&act["result"]["applied"], &act["result"]["failed"]), (&json!(1), &json!(4)), "{act:#}");

        // A copy of the message as it was is a copy.
        world.topic.send(&missing(5)[3..4]);
        world.caught_up().await;
        assert_eq!((world.effects().await, world.duplicates().await), (3, 1));
        let status = json_of(&world, &["status"], 0);
        assert_eq!(
            (&status["consumers"][0]["replayed"], &status["consumers"][0]["dead_letters"]),
            (&json!(1), &json!(4))
        );
        let dropped = json_of(&world, &["dead", "drop", "--group", &group, "--reason", "no such article"], 0);
        assert_eq!(dropped["dropped"], 4);
        assert_eq!(last_act(&world)["parameters"]["reason"], "no such article");
        assert_eq!(json_of(&world, &["dead", "groups"], 0), json!([]));
        daemon.stop();
    }
}

/// An editor gets the payload, and what it leaves is the payload.
#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_mended_in_an_editor() {
    let (world, daemon) = world_with_letters(Kind::Sqlite, 1).await;
    daemon.stop();
    let number = world.letter(0)["number"].to_string();
    let edit =
        |editor: &str| world.oncebox_with(&["dead", "edit", &number], &[("EDITOR", editor), ("VISUAL", "")]);
    edit("").exits(2).says(&["--payload"]);
    edit("false").exits(2).says(&["nothing is changed"]);
    let before = json_of(&world, &["dead", "show", &number], 0);
    assert_eq!(before["edit"], Value::Null);
    edit("sed -i s/sku-100/sku-1/").exits(0);
    let shown = json_of(&world, &["dead", "show", &number], 0);
    assert_eq!(shown["payload"], Order { sku: 1, ..Order::of(MISSING, 0) }.payload());
    assert_eq!(json_of(&world, &["dead", "replay", &number], 0)["applied"], 1);
    assert_eq!(world.effects().await, 3);
}

/// A limit, a rate and a dry run, while the daemon works on other messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_replayed_in_parts_while_the_daemon_works() {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let (world, daemon) = world_with_letters(kind, 30).await;
        world.db.deliver("sku-100", 1000).await;
        let group = json_of(&world, &["dead", "groups"], 0)[0]["group"].as_str().expect("a name").to_owned();
        let dry = json_of(&world, &["dead", "replay", "--group", &group, "--dry-run"], 0);
        assert_eq!(dry.as_array().map(Vec::len), Some(30));
        assert!(dry.as_array().into_iter().flatten().all(|letter| letter["would"] == "run"), "{dry:#}");
        assert_eq!(world.effects().await, 2, "a dry run applies nothing");
        let acts = json_of(&world, &["audit", "--action", "replay"], 1);
        assert_eq!(acts, json!([]), "a dry run is no act");

        world.topic.send(&orders(2..400));
        let replay = ["dead", "replay", "--group", &group, "--limit", "10", "--rate", "20"];
        let began = std::time::Instant::now();
        let replayed = json_of(&world, &replay, 0);
        assert!(began.elapsed().as_millis() >= 450, "{:?}", began.elapsed());
        assert_eq!(
            (&replayed["applied"], &replayed["failed"]),
            (&json!(10), &json!([])),
            "{kind:?} {replayed:#}"
        );
        assert_eq!(json_of(&world, &["dead", "replay", "--group", &group], 0)["applied"], 20);
        world.caught_up().await;
        world.has_exactly(&[&orders(0..400)[..], &missing(30)].concat()).await;
        daemon.stop();
    }
}

/// A replay that is killed has replayed what it has replayed, and the rest is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_replay_leaves_nothing_half_done() {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let (world, daemon) = world_with_letters(kind, 40).await;
        daemon.stop();
        world.db.deliver("sku-100", 1000).await;
        world.write_config();
        let mut command = oncebox(world.folder());
        command.args(["dead", "replay", "--all", "--rate", "20"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("oncebox starts");
        eventually("some are replayed", async || world.effects().await >= 7).await;
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let (applied, left) = (world.effects().await - 2, world.dead("message_id").await.len());
        assert!(applied >= 5 && left > 0, "{applied} applied, {left} left");
        assert_eq!(applied + i64::try_from(left).expect("few"), 40, "each is applied or kept");
        let act = last_act(&world);
        assert_eq!((&act["action"], &act["ended_at"]), (&json!("replay"), &Value::Null), "{act:#}");

        let rest = json_of(&world, &["dead", "replay", "--all"], 0);
        assert_eq!(rest["applied"], left, "{rest:#}");
        world.has_exactly(&[&orders(0..2)[..], &missing(40)].concat()).await;
    }
}

/// What became of a message: applied, given up, or never seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_found_by_its_id() {
    for kind in Kind::ALL {
        let (world, daemon) = world_with_letters(kind, 1).await;
        let applied = json_of(&world, &["find", "order-1"], 0);
        assert_eq!(
            (&applied["seen"], &applied["consumers"][0]["consumer"]),
            (&json!(true), &json!(world.consumer))
        );
        assert!(applied["consumers"][0]["receipt"]["processed_at"].is_string(), "{applied:#}");
        assert_eq!(applied["consumers"][0]["dead_letters"], json!([]));
        let dead = json_of(&world, &["find", "sku-100-0", "--consumer", &world.consumer], 0);
        assert_eq!(dead["consumers"][0]["dead_letters"].as_array().map(Vec::len), Some(1), "{dead:#}");
        let told = world.oncebox(&["find", "sku-100-0"]).exits(0).stdout;
        assert!(told.contains("given up, not applied") && told.contains("dead letter"), "{told}");
        let unseen = json_of(&world, &["find", "order-4711"], 1);
        assert_eq!((&unseen["seen"], &unseen["consumers"]), (&json!(false), &json!([])));
        world.oncebox(&["find", "order-4711"]).exits(1);
        world.oncebox(&["find", "order-1", "--tenant", "acme"]).exits(1);
        world.oncebox(&["find", ""]).exits(2);
        daemon.stop();
    }
}

/// Every command that changes something is in the audit, also one that changed nothing.
#[tokio::test(flavor = "multi_thread")]
async fn every_act_is_in_the_audit() {
    for kind in Kind::ALL {
        let (world, daemon) = world_with_letters(kind, 2).await;
        daemon.stop();
        let (consumer, topic) = (world.consumer.clone(), world.topic.name.clone());
        let act = |arguments: &[&str], code: i32, action: &str| {
            json_of(&world, arguments, code);
            let last = last_act(&world);
            assert_eq!((&last["action"], &last["who"]), (&json!(action), &json!("cli:ana")), "{last:#}");
            assert!(last["ended_at"].is_string(), "{last:#}");
            last
        };
        let pause = act(&["pause", &consumer, "--reason", "counting"], 0, "pause");
        assert_eq!(
            (&pause["consumer"], &pause["parameters"]["reason"]),
            (&json!(consumer), &json!("counting"))
        );
        assert_eq!(act(&["resume", &consumer], 0, "resume")["result"]["changed"], true);
        let moved = act(
            &["position", "move", "--consumer", &consumer, "--topic", &topic, "--to", "earliest"],
            0,
            "position move",
        );
        assert_eq!(moved["parameters"]["partitions"][0]["to"], 0, "{moved:#}");
        let retired =
            act(&["position", "retire", "--consumer", &consumer, "--topic", &topic], 0, "position retire");
        assert_eq!(retired["result"]["retired"], 1);
        act(&["purge"], 0, "purge");
        act(&["outbox", "retry", "--all"], 1, "publish");
        act(&["outbox", "drop", "--all"], 1, "drop event");
        let number = world.letter(0)["number"].to_string();
        act(&["dead", "edit", &number, "--header", "a=b"], 0, "edit");
        act(&["dead", "replay", &number], 1, "replay");
        act(&["dead", "drop", &number], 0, "drop");
        assert_eq!(json_of(&world, &["audit"], 0).as_array().map(Vec::len), Some(10));
        assert_eq!(json_of(&world, &["audit", "--consumer", &consumer], 0).as_array().map(Vec::len), Some(5));
        let page = json_of(&world, &["audit", "--limit", "3"], 0);
        let before = page[2]["number"].to_string();
        assert_eq!(json_of(&world, &["audit", "--before", &before], 0).as_array().map(Vec::len), Some(7));
        assert_eq!(json_of(&world, &["audit", "--who", "cli:ben"], 1), json!([]));
        let table = world.oncebox(&["audit"]).exits(0).stdout;
        assert!(table.contains("position move") && table.contains("cli:ana"), "{table}");
    }
}
