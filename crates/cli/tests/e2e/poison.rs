//! Messages that cannot be applied, among good ones.

use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::orders::{Order, orders};
use crate::support::topic::Odd;
use crate::support::world::World;

/// Orders 0 to 59 with bad messages between them, all with the key of a good article.
fn send_with_poison(world: &World) -> Vec<Order> {
    let good = orders(0..60);
    let bad: [(&str, Option<&str>); 5] = [
        ("no-such-article", Some(r#"{"sku":"sku-none","qty":1,"seq":1}"#)),
        ("more-than-there-is", Some(r#"{"sku":"sku-1","qty":10000000,"seq":1}"#)),
        ("no-json", Some("this is not JSON")),
        ("no-payload", None),
        ("", Some(r#"{"sku":"sku-3","qty":1,"seq":1}"#)),
    ];
    for (nth, (id, payload)) in (0_i32..).zip(bad) {
        let from = usize::try_from(nth).expect("few") * 12;
        world.topic.send(&good[from..from + 12]);
        let headers = [("trace", Some(b"t1".as_slice())), ("event_id", Some(id.as_bytes()))];
        world.topic.send_odd(&Odd {
            partition: nth % 2,
            key: Some(b"sku-1"),
            payload: payload.map(str::as_bytes),
            headers: if id.is_empty() { &headers[..1] } else { &headers },
            ..Odd::default()
        });
    }
    good
}

#[tokio::test(flavor = "multi_thread")]
async fn poison_among_good_messages_is_parked() {
    for kind in Kind::ALL {
        let world = World::new(kind, 2).await;
        let good = send_with_poison(&world);
        let daemon = world.start();
        world.caught_up().await;
        world.has_exactly(&good).await;

        let letters: Vec<(String, String)> =
            world.dead("message_id").await.into_iter().zip(world.dead("error").await).collect();
        let (step, none, rule, nothing) = match kind {
            Kind::Mongodb => ("operation 1", "0 documents", "failed validation", "a filter needs"),
            _ => ("statement 1", "0 rows", "on_hand", "0 rows"),
        };
        for (id, words) in [
            ("no-such-article", &[step, none][..]),
            ("more-than-there-is", &[step, rule]),
            ("no-json", &["payload", "JSON"]),
            ("no-payload", &[step, nothing]),
            ("", &["event_id"]),
        ] {
            let of_id: Vec<&String> =
                letters.iter().filter(|letter| letter.0 == id).map(|letter| &letter.1).collect();
            assert_eq!(of_id.len(), 1, "dead letters of {id:?}: {letters:?}");
            let error = of_id[0];
            for word in words {
                assert!(error.contains(word), "{kind:?}: the error of {id:?} does not say {word:?}: {error}");
            }
        }
        // Attempts are for what may pass; a rule of the business does not.
        let attempts = |id: &str| {
            let found = world.oncebox(&["dead", "list", "--message-id", id, "--output", "json"]).exits(0);
            found.json()[0]["attempts"].clone()
        };
        assert_eq!(attempts("more-than-there-is"), 2);
        assert_eq!(attempts("no-such-article"), 1);

        // Kept whole.
        let shown =
            world.oncebox(&["dead", "list", "--message-id", "no-json", "--output", "json"]).exits(0).json();
        assert_eq!(shown[0]["payload_bytes"], "this is not JSON".len());
        assert_eq!(shown[0]["key"], "sku-1");
        assert!(shown[0].get("payload").is_none(), "a list has no payloads: {shown}");
        let number = shown[0]["number"].to_string();
        let shown = world.oncebox(&["dead", "show", &number, "--output", "json"]).exits(0).json();
        assert_eq!(shown["payload"], "this is not JSON");
        assert_eq!(shown["key"], "sku-1");
        assert_eq!(shown["headers"][0], serde_json::json!({"name": "trace", "value": "t1"}));
        let series = format!("oncebox_messages_total{{consumer=\"{}\",outcome=\"dead\"}}", world.consumer);
        eventually("the metric counts them", async || daemon.metric(&series).await == Some(5.0)).await;

        // A copy of a dead letter is a duplicate, and so is nothing else.
        let copy = [("event_id", Some(b"no-json".as_slice()))];
        let odd = Odd {
            partition: 0,
            key: Some(b"sku-1"),
            payload: Some(b"this is not JSON"),
            headers: &copy,
            ..Odd::default()
        };
        world.topic.send_odd(&odd);
        world.caught_up().await;
        assert_eq!(world.dead("message_id").await.len(), 5);
        assert_eq!(world.duplicates().await, 1);
        daemon.stop();
    }
}

/// A set-based handler does not say which message is to blame: it is found by halving.
#[tokio::test(flavor = "multi_thread")]
async fn poison_in_a_batch_handler_is_found() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        let inbox = Inbox::of_orders_in_batches(kind, &world.consumer, &world.topic.name);
        world.config.inboxes = vec![inbox.set("batch", "{ messages = 100 }")];
        let mut all = orders(0..300);
        let too_much = [77, 78, 210];
        for nth in too_much {
            all[nth].qty = 10_000_000;
        }
        world.topic.send(&all);
        let headers = [("event_id", Some(b"no-json".as_slice()))];
        world.topic.send_odd(&Odd {
            key: Some(b"k"),
            payload: Some(b"{"),
            headers: &headers,
            ..Odd::default()
        });
        let daemon = world.start();
        world.caught_up().await;
        let good: Vec<Order> = all.iter().filter(|order| order.qty < 10).cloned().collect();
        world.has_exactly(&good).await;
        assert_eq!(world.dead("message_id").await, ["order-77", "order-78", "order-210", "no-json"]);
        daemon.stop();
    }
}

/// The database cannot even hold the id of a message: nobody spins, and somebody says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_given_up_stops_its_partition() {
    let latin1 = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    let world = World::with_database(Kind::Postgres, 2, latin1).await;
    let order = Order::of;
    world.topic.send(&[order(0, 0), order(1, 0)]);
    let payload = order(0, 1).payload();
    let headers = [("event_id", Some("\u{65e5}\u{672c}".as_bytes()))];
    world.topic.send_odd(&Odd {
        key: Some(b"sku-0"),
        payload: Some(payload.as_bytes()),
        headers: &headers,
        ..Odd::default()
    });
    world.topic.send(&[order(0, 2), order(1, 1)]);
    let daemon = world.start();
    eventually("the partition stands still", async || {
        let Some((status, health)) = daemon.health().await else { return false };
        let loops = health["loops"].as_array().cloned().unwrap_or_default();
        status == 503 && loops.iter().any(|l| l["error"].as_str().is_some_and(|e| e.contains("22P05")))
    })
    .await;
    world.effects_reach(3).await;
    world.has_exactly(&[order(0, 0), order(1, 0), order(1, 1)]).await;
    assert!(daemon.log().lines().count() < 50, "it does not repeat itself:\n{}", daemon.log());
    daemon.stop();
}

/// `park-key`: what comes later with the key of a dead letter waits behind it, so that its order survives.
#[tokio::test(flavor = "multi_thread")]
async fn park_key_keeps_the_order_of_a_key() {
    for kind in Kind::ALL {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("on_failure", "\"park-key\""));
        let order = Order::of;
        let mut poison = order(0, 1);
        poison.qty = 10_000_000;
        world.topic.send(&[
            order(0, 0),
            order(1, 0),
            poison,
            order(0, 2),
            order(1, 1),
            order(0, 3),
            order(1, 2),
        ]);
        let daemon = world.start();
        world.caught_up().await;
        world.topic.send(&[order(0, 4), order(1, 3)]);
        world.caught_up().await;
        world.has_exactly(&[order(0, 0), order(1, 0), order(1, 1), order(1, 2), order(1, 3)]).await;
        assert_eq!(world.dead("message_id").await, ["sku-0-1", "sku-0-2", "sku-0-3", "sku-0-4"]);
        assert!(world.dead("error").await[1].contains("behind an earlier dead letter"));

        // As long as the first one fails, the others must not pass it.
        let answer = world.oncebox(&["dead", "replay", "--all", "--output", "json"]).exits(1);
        assert_eq!(answer.json()["replayed"], 0, "{answer}");
        assert_eq!(world.dead("message_id").await, ["sku-0-1", "sku-0-2", "sku-0-3", "sku-0-4"]);

        world.db.deliver("sku-0", 20_000_000).await;
        let answer = world.oncebox(&["dead", "replay", "--all", "--output", "json"]).exits(0);
        assert_eq!(answer.json()["replayed"], 4, "{answer}");
        let all =
            [(0..5).map(|seq| order(0, seq)).collect::<Vec<_>>(), (0..4).map(|seq| order(1, seq)).collect()];
        world.has_exactly(&all.concat()).await;
        // The key is free again.
        world.topic.send(&[order(0, 5)]);
        world.caught_up().await;
        assert_eq!(world.dead("message_id").await, [""; 0]);
        daemon.stop();
    }
}

/// A message without an id is a dead letter like any other: later ones of its key wait behind it too.
#[tokio::test(flavor = "multi_thread")]
async fn park_key_holds_for_a_message_without_an_id() {
    let mut world = World::new(Kind::Postgres, 1).await;
    world.inbox(|inbox| inbox.set("on_failure", "\"park-key\""));
    let order = Order::of;
    world.topic.send(&[order(0, 0), order(1, 0)]);
    let payload = order(0, 1).payload();
    world.topic.send_odd(&Odd { key: Some(b"sku-0"), payload: Some(payload.as_bytes()), ..Odd::default() });
    world.topic.send(&[order(0, 2), order(1, 1)]);
    let daemon = world.start();
    world.caught_up().await;
    world.has_exactly(&[order(0, 0), order(1, 0), order(1, 1)]).await;
    assert_eq!(world.dead("message_id").await, ["", "sku-0-2"]);
    daemon.stop();
}

/// `halt`: the partition stands still at the message, says so, and the others go on.
#[tokio::test(flavor = "multi_thread")]
async fn halt_stops_one_partition_and_says_why() {
    let mut world = World::new(Kind::Postgres, 2).await;
    world.inbox(|inbox| inbox.set("on_failure", "\"halt\""));
    let order = Order::of;
    world.topic.send(&[order(0, 0), order(1, 0)]);
    let poison = br#"{"sku":"sku-new","qty":1,"seq":1}"#;
    let headers = [("event_id", Some(b"the-bad-one".as_slice()))];
    let at = world.topic.send_odd(&Odd {
        partition: 0,
        key: Some(b"sku-new"),
        payload: Some(poison),
        headers: &headers,
        ..Odd::default()
    });
    world.topic.send(&[order(0, 1), order(1, 1)]);
    let mut daemon = world.start();
    eventually("the partition stands still", async || {
        daemon.health().await.is_some_and(|(status, _)| status == 503)
    })
    .await;
    world.effects_reach(3).await;
    world.topic.send(&[order(0, 2), order(1, 2)]);
    world.effects_reach(4).await;

    let (_, health) = daemon.health().await.expect("an answer");
    let stopped: Vec<_> =
        health["loops"].as_array().into_iter().flatten().filter(|l| l["healthy"] == false).collect();
    assert_eq!(stopped.len(), 1, "{health:#}");
    assert_eq!(stopped[0]["detail"], format!("{}/0", world.topic.name));
    let reason = stopped[0]["error"].as_str().unwrap_or_default();
    assert!(
        reason.contains("the-bad-one") && reason.contains("0 rows") && reason.contains("on_failure"),
        "{reason}"
    );
    // A restart would not help, and the other partition is served.
    for path in ["/livez", "/readyz"] {
        assert_eq!(daemon.get(path).await.map(|page| page.status), Some(200), "{path}");
    }
    let series = format!("oncebox_partitions_stopped{{consumer=\"{}\"}}", world.consumer);
    eventually("the metric says so", async || daemon.metric(&series).await == Some(1.0)).await;
    world.has_exactly(&[order(0, 0), order(1, 0), order(1, 1), order(1, 2)]).await;
    assert_eq!(world.positions_of(&world.consumer).await, [(0, at), (1, 3)], "nothing is passed");
    assert_eq!(world.dead("message_id").await, [""; 0]);
    assert!(daemon.is_running());
    daemon.stop();

    // The operator mends the cause.
    world.db.deliver("sku-new", 1).await;
    let daemon = world.start();
    world.caught_up().await;
    let bad_one = Order { id: "the-bad-one".to_owned(), ..order(0, 0) };
    let effects = world.effects_of(&world.consumer).await;
    let good: Vec<Order> = (0..3).flat_map(|seq| [order(0, seq), order(1, seq)]).chain([bad_one]).collect();
    crate::support::check::compare_ids("effects", &effects, &good);
    eventually("all is well", async || daemon.health().await.is_some_and(|(status, _)| status == 200)).await;
    daemon.stop();
}

/// A supervisor restarts the halted process all night: `halt` still means halt, and nothing is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_halted_process_that_is_restarted_again_and_again_stays_halted() {
    for ends_well in [true, false] {
        let mut world = World::new(Kind::Postgres, 1).await;
        world.inbox(|inbox| inbox.set("on_failure", "\"halt\""));
        world.config.with_static_membership();
        let order = Order::of;
        let headers = [("event_id", Some(b"the-bad-one".as_slice()))];
        world.topic.send(&[order(0, 0)]);
        let at = world.topic.send_odd(&Odd {
            key: Some(b"sku-new"),
            payload: Some(br#"{"sku":"sku-new","qty":1,"seq":1}"#),
            headers: &headers,
            ..Odd::default()
        });
        world.topic.send(&[order(0, 1), order(1, 0)]);
        for life in 0..12 {
            let daemon = world.start();
            let stopped = world.turns(&daemon, 503).await;
            let reason = stopped[0]["error"].as_str().unwrap_or_default();
            assert!(reason.contains("the-bad-one"), "in life {life}: {reason}");
            if ends_well {
                daemon.stop();
            } else {
                daemon.kill();
            }
        }
        assert_eq!(world.dead("message_id").await, [""; 0], "nothing is given up");
        assert_eq!(world.positions_of(&world.consumer).await, [(0, at)], "nothing is passed");
        world.has_exactly(&[order(0, 0)]).await;

        world.db.deliver("sku-new", 1).await;
        let daemon = world.start();
        world.caught_up().await;
        assert_eq!(world.effects().await, 4);
        let attempts = "SELECT COUNT(*) FROM oncebox_attempt";
        eventually("nothing of the guard is left", async || world.db.number(attempts).await == 0).await;
        daemon.stop();
    }
}
