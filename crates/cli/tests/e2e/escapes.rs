//! Messages full of escape sequences: no terminal and no log obeys them.

use crate::support::command::Answer;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::topic::Odd;
use crate::support::world::World;

/// Sets the title, clears the screen, forges a line, reads backwards, and is partly invisible.
const HOSTILE: &str = "h\u{1b}]0;owned\u{7}\u{1b}[2J\r\nERROR forged\u{202e}\u{9b}31m\u{7f}\u{200b}";
/// How it looks on a terminal.
const SHOWN: &str = "h\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\r\\nERROR forged\\u{202e}\\u{9b}31m\\u{7f}\\u{200b}";

#[track_caller]
fn is_harmless(text: &str) {
    let hidden = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{200b}' | '\u{202e}'));
    assert!(!text.contains(hidden), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("ERROR forged")), "{text}");
}

/// A command in both forms. JSON says the same as before.
#[track_caller]
fn both_forms(world: &World, command: &[&str]) -> (Answer, serde_json::Value) {
    let table = world.oncebox(command).exits(0);
    let json = world.oncebox(&[command, &["--output", "json"]].concat()).exits(0);
    for answer in [&table, &json] {
        is_harmless(&answer.stdout);
        is_harmless(&answer.stderr);
    }
    let document = json.json();
    (table, document)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_message_is_obeyed_by_a_terminal_or_forges_a_line_of_the_log() {
    for kind in Kind::WITH_SQL {
        let mut world = World::new(kind, 1).await;
        // The error of a statement quotes what is wrong.
        world.inbox(|inbox| match kind {
            Kind::Postgres => inbox.first("\"SELECT (:payload->>'qty')::bigint\""),
            _ => inbox.first("\"INSERT INTO no_quotes (id) VALUES (:id)\""),
        });
        if kind != Kind::Postgres {
            let refuse = match kind {
                Kind::Mariadb => {
                    format!("FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{HOSTILE}'")
                }
                _ => format!("BEGIN SELECT RAISE(ABORT, '{HOSTILE}'); END"),
            };
            world.db.execute("CREATE TABLE no_quotes (id TEXT)").await;
            world.db.script(&format!("CREATE TRIGGER refused BEFORE INSERT ON no_quotes {refuse}")).await;
        }
        let payload = serde_json::json!({"sku": "sku-0", "qty": HOSTILE}).to_string();
        let headers = [("event_id", Some(HOSTILE.as_bytes())), (HOSTILE, Some(HOSTILE.as_bytes()))];
        let odd = Odd {
            key: Some(HOSTILE.as_bytes()),
            payload: Some(payload.as_bytes()),
            headers: &headers,
            ..Odd::default()
        };
        world.topic.send_odd(&odd);
        // Another whose payload is not JSON either.
        let headers = [("event_id", Some(b"plain".as_slice()))];
        world.topic.send_odd(&Odd { payload: Some(HOSTILE.as_bytes()), headers: &headers, ..odd });

        for format in ["text", "json"] {
            let daemon = world.start_with(&["--log-format", format, "--log", "debug"], &[]);
            if format == "text" {
                world.caught_up().await;
                assert_eq!(world.dead("message_id").await, [HOSTILE, "plain"]);
                eventually("the log tells of it", async || daemon.log().contains("given up")).await;
                assert!(daemon.log().contains(SHOWN), "{}", daemon.log());
            } else {
                let headers = [("event_id", Some(b"another\x1b[2J".as_slice()))];
                world.topic.send_odd(&Odd {
                    payload: Some(HOSTILE.as_bytes()),
                    headers: &headers,
                    ..Odd::default()
                });
                world.caught_up().await;
                eventually("the log tells of it", async || daemon.log().contains("another\\u001b[2J")).await;
            }
            let log = daemon.stop();
            is_harmless(&log);
        }

        let (list, document) = both_forms(&world, &["dead", "list"]);
        assert!(list.stdout.contains("another"), "{list}");
        assert_eq!(document[0]["message_id"], HOSTILE);
        let number = document[0]["number"].to_string();
        let (show, document) = both_forms(&world, &["dead", "show", &number]);
        for line in [
            format!("message id  {SHOWN}"),
            format!("key         {SHOWN}"),
            format!("header      {SHOWN}: {SHOWN}"),
        ] {
            assert!(show.stdout.lines().any(|shown| shown == line), "{line}\nnot in {show}");
        }
        assert!(document["error"].as_str().is_some_and(|error| error.contains("owned")), "{document:#}");
        assert_eq!(document["payload"], payload);
        let plain = world.oncebox(&["dead", "list", "--message-id", "plain", "--output", "json"]).exits(0);
        let (show, _) = both_forms(&world, &["dead", "show", &plain.json()[0]["number"].to_string()]);
        assert!(show.stdout.contains(&format!("payload     {SHOWN}")), "{show}");
        // MariaDB escapes what is in its errors, in a way of its own.
        let escaped = if kind == Kind::Mariadb { "\\001B]0;owned" } else { "\\u{1b}]0;owned" };
        let replay = world.oncebox(&["dead", "replay", "--all"]).exits(1).says(&[escaped]);
        is_harmless(&replay.stderr);
        both_forms(&world, &["status"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_an_event_is_obeyed_by_a_terminal() {
    let world = World::with_relay(1).await;
    let json = serde_json::json!({"name": HOSTILE}).to_string();
    world.db.execute(&format!("SELECT oncebox_emit('events', '{HOSTILE}', '{json}', '{json}')")).await;
    world.db.execute(&format!("SELECT oncebox_emit_bytes('events', 'k', '{HOSTILE}'::bytea)")).await;
    world.db.execute(&format!("UPDATE oncebox_outbox SET parked_at = now(), error = '{HOSTILE}'")).await;
    let (list, document) = both_forms(&world, &["outbox", "list"]);
    assert!(list.stdout.contains("parked at"), "{list}");
    assert_eq!(document[0]["key"], HOSTILE);
    assert_eq!(document[0]["error"], HOSTILE);
    let numbers = [document[0]["number"].to_string(), document[1]["number"].to_string()];
    let (show, document) = both_forms(&world, &["outbox", "show", &numbers[0]]);
    for line in
        [format!("key         {SHOWN}"), format!("error       {SHOWN}"), format!("header      name: {SHOWN}")]
    {
        assert!(show.stdout.lines().any(|shown| shown == line), "{line}\nnot in {show}");
    }
    let hostile = serde_json::json!({"name": "name", "value": HOSTILE});
    assert!(document["headers"].as_array().is_some_and(|headers| headers.contains(&hostile)), "{document:#}");
    let (show, _) = both_forms(&world, &["outbox", "show", &numbers[1]]);
    assert!(show.stdout.contains(&format!("payload     {SHOWN}")), "{show}");
}
