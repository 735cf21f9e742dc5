//! Nothing leaks: values of messages are in dead letters and not in the log, a password is nobody's host, bytes stay bytes.

use serde_json::json;

use crate::support::command::{Answer, oncebox};
use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::topic::Odd;
use crate::support::world::World;

/// What must not be in a log.
const VALUE: &str = "canary-4711@example.org";

/// A first statement whose error quotes the article of the message.
fn quoting(kind: Kind) -> &'static str {
    match kind {
        Kind::Postgres => "\"INSERT INTO stock (sku, on_hand, delivered) VALUES (:payload->>'sku', 1, 1)\"",
        Kind::Mariadb | Kind::Mysql => {
            "\"INSERT INTO stock (sku, on_hand, delivered) VALUES (JSON_VALUE(:payload, '$.sku'), 1, 1)\""
        }
        // `bad JSON path: '…'`
        Kind::Sqlite => "\"SELECT json_extract(:payload, :payload->>'sku')\"",
        Kind::Mongodb => {
            "{ insert = \"stock\", document = { _id = \":payload.sku\", on_hand = 1, delivered = 1, late = [] } }"
        }
    }
}

fn send(world: &World, id: &str) {
    let payload = json!({"sku": VALUE, "qty": 1, "seq": 1}).to_string();
    let headers = [("event_id", Some(id.as_bytes()))];
    world.topic.send_odd(&Odd { payload: Some(payload.as_bytes()), headers: &headers, ..Odd::default() });
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_message_are_in_its_dead_letter_and_not_in_the_log() {
    for kind in Kind::WITH_MYSQL.iter().copied().chain([Kind::Sqlite, Kind::Mongodb]) {
        let mut world = World::new(kind, 1).await;
        world.db.deliver(VALUE, 10).await;
        world.inbox(|inbox| inbox.first(quoting(kind)));

        send(&world, "parked");
        let daemon = world.start();
        daemon.has_logged("the message is given up").await;
        world.caught_up().await;
        let log = daemon.stop();
        assert!(!log.contains(VALUE), "{kind:?}: {log}");
        let code = match kind {
            Kind::Postgres => "(23505)",
            Kind::Mariadb | Kind::Mysql => "(1062)",
            Kind::Sqlite => "(code: 1)",
            Kind::Mongodb => "(11000)",
        };
        assert!(log.contains(code) && log.contains("parked"), "{kind:?}: {log}");
        let letter = world.letter(0);
        assert!(letter["error"].as_str().is_some_and(|error| error.contains(VALUE)), "{kind:?}: {letter:#}");
        assert!(
            !letter["error"].to_string().contains(" at line "),
            "a line of the server's source: {letter:#}"
        );

        // Where the partition halts, `/healthz` says why.
        world.inbox(|inbox| inbox.set("on_failure", "\"halt\""));
        send(&world, "halted");
        let daemon = world.start();
        world.turns(&daemon, 503).await;
        eventually("/healthz says why", async || {
            daemon
                .get("/healthz")
                .await
                .is_some_and(|page| page.body.contains("halted at") && page.body.contains(code))
        })
        .await;
        let page = daemon.get("/healthz").await.expect("an answer");
        assert!(!page.body.contains(VALUE), "{kind:?}: {}", page.body);
        assert!(!daemon.stop().contains(VALUE), "{kind:?}");

        // Who asks for them sees them.
        let daemon = world.start_with(&["--log", "info,oncebox::values=debug"], &[]);
        daemon.has_logged(VALUE).await;
        daemon.stop();
    }
}

/// The table that a handler needs has a name, and that is what an operator has to know.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_what_is_missing_stay_in_the_log() {
    for kind in Kind::WITH_SQL {
        let world = World::new(kind, 1).await;
        world.oncebox(&["migrate"]).exits(0);
        let daemon = world.start();
        daemon.ready().await;
        world.db.rename("ledger", "ledger_gone").await;
        world.db.deliver(VALUE, 10).await;
        send(&world, "early");
        daemon.has_logged("standing still").await;
        let log = daemon.log();
        assert!(log.contains("ledger"), "{kind:?}: {log}");
        assert!(!log.contains(VALUE), "{kind:?}: {log}");
        daemon.stop();
    }
}

/// A message without its id or tenant is told, with the id if there is one; many of them are counted.
#[tokio::test(flavor = "multi_thread")]
async fn messages_without_an_identity_are_told() {
    for kind in [Kind::Postgres, Kind::Sqlite] {
        let mut world = World::new(kind, 1).await;
        world.inbox(|inbox| inbox.set("tenant", "\"header:tenant\""));
        let tenant = ("tenant", Some(b"north".as_slice()));
        world.topic.send_odd(&Odd { headers: &[tenant], ..Odd::default() });
        world
            .topic
            .send_odd(&Odd { headers: &[("event_id", Some(b"order-7".as_slice()))], ..Odd::default() });
        for _ in 0..30 {
            world.topic.send_odd(&Odd { headers: &[tenant], ..Odd::default() });
        }
        let daemon = world.start();
        world.caught_up().await;
        daemon.has_logged("without being applied").await;
        let log = daemon.stop();
        let told: Vec<&str> = log.lines().filter(|line| line.contains("without being applied")).collect();
        assert_eq!(told.len(), 10, "{log}");
        assert!(told[0].contains("event_id"), "{}", told[0]);
        assert!(told[1].contains("order-7") && told[1].contains("tenant"), "{}", told[1]);
        let errors = world.dead("error").await;
        assert_eq!(errors.len(), 32);
        assert!(errors[1].starts_with("message order-7: ") && errors[1].contains("tenant"), "{}", errors[1]);
        let letters = world.oncebox(&["dead", "list", "--output", "json"]).exits(0).json();
        assert_eq!(
            (&letters[0]["tenant"], &letters[1]["tenant"]),
            (&json!("north"), &json!("")),
            "{letters:#}"
        );
    }
}

/// Bytes that are no text come out as they went in.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_dead_letter_are_not_lost() {
    for kind in Kind::ALL {
        let world = World::new(kind, 1).await;
        let bytes: &[u8] = &[0x00, 0xff, 0x01, b'\n'];
        let headers =
            [("event_id", Some(b"binary".as_slice())), ("signature", Some(bytes)), ("plain", Some(b"x"))];
        world.topic.send_odd(&Odd {
            key: Some(bytes),
            payload: Some(bytes),
            headers: &headers,
            ..Odd::default()
        });
        let daemon = world.start();
        world.caught_up().await;
        daemon.stop();
        let listed = world.oncebox(&["dead", "list", "--output", "json"]).exits(0).json();
        assert_eq!(
            (&listed[0]["key"], &listed[0]["key_base64"]),
            (&json!(null), &json!("AP8BCg==")),
            "{kind:?}"
        );
        let letter = world.letter(0);
        for part in ["key", "payload"] {
            let encoded = &letter[format!("{part}_base64").as_str()];
            assert_eq!((&letter[part], encoded), (&json!(null), &json!("AP8BCg==")), "{kind:?}: {letter:#}");
        }
        let headers = letter["headers"].as_array().expect("headers");
        assert!(
            headers.contains(&json!({"name": "signature", "value": null, "value_base64": "AP8BCg=="})),
            "{letter:#}"
        );
        assert!(headers.contains(&json!({"name": "plain", "value": "x"})), "{letter:#}");
        let number = letter["number"].to_string();
        let shown = world.oncebox(&["dead", "show", &number]).exits(0);
        assert!(shown.stdout.contains("0x00ff010a (4 bytes, not UTF-8)"), "{shown}");
        let raw = oncebox(world.folder()).args(["dead", "show", &number, "--raw"]).output().expect("it runs");
        assert_eq!((raw.status.code(), raw.stdout.as_slice()), (Some(0), bytes), "{kind:?}");
        world.oncebox(&["dead", "show", &number, "--raw", "--output", "json"]).exits(2);
    }
}

/// `${VAR}` in the URL of the store: whatever the password is, it is the password.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_may_have_any_character() {
    let mut world = World::new(Kind::Postgres, 1).await;
    let password = "p@ss/w?rd#%41:é";
    let role = format!("{}_role", world.consumer);
    world.db.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD '{password}'")).await;
    let host = world.db.url.split_once('@').expect("a user").1.to_owned();
    world.config.store = format!("postgres://{role}:${{DB_PASSWORD}}@{host}");
    world.write_config();
    let check = || {
        let mut command = oncebox(world.folder());
        command.args(["check", "--output", "json"]).env("DB_PASSWORD", password);
        Answer::of_command(command)
    };
    let answer = check();
    assert!(answer.stdout.contains("primary, takes writes"), "{answer}");
    assert!(!answer.stdout.contains("p@ss") && !answer.stderr.contains("p@ss"), "{answer}");

    // The same in parts, and a role without rights is told which.
    let (address, database) = host.split_once('/').expect("a database");
    let (name, port) = address.split_once(':').expect("a port");
    let text = world.config.text().replace(
        &format!("url = {:?}", world.config.store),
        &format!(
            "kind = \"postgres\"\nhost = {name:?}\nport = {port}\nuser = {role:?}\npassword = \"${{DB_PASSWORD}}\"\n\
             database = {database:?}"
        ),
    );
    std::fs::write(world.folder().join("oncebox.toml"), text).expect("the configuration is written");
    assert!(check().stdout.contains("primary, takes writes"), "{}", check());
    let mut migrate = oncebox(world.folder());
    migrate.arg("migrate").env("DB_PASSWORD", password);
    Answer::of_command(migrate).exits(5).says(&["GRANT CREATE", "SCHEMA"]);
    world.write_config();
    world.config.store = world.db.url.clone();
    world.oncebox(&["migrate"]).exits(0);
    let mut status = oncebox(world.folder());
    world.config.store = format!("postgres://{role}:${{DB_PASSWORD}}@{host}");
    world.write_config();
    status.arg("status").env("DB_PASSWORD", password);
    Answer::of_command(status).exits(5).says(&["GRANT", "SELECT"]);
    world.db.execute(&format!("DROP ROLE {role}")).await;
}

/// Somebody's report that has been running for long: it is told by `check` and by `status`.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stays_open_is_told() {
    for kind in [Kind::Postgres, Kind::Mariadb] {
        let mut world = World::new(kind, 1).await;
        world.config.store_more = "old_transaction = \"1s\"\n".to_owned();
        world.config.inboxes = vec![Inbox::of_orders(kind, &world.consumer, &world.topic.name)];
        world.oncebox(&["migrate"]).exits(0);
        if kind == Kind::Mariadb {
            let user = world.db.url.split("://").nth(1).and_then(|rest| rest.split([':', '@']).next());
            world.db.execute(&format!("GRANT PROCESS ON *.* TO {}", user.expect("a user"))).await;
        }
        let report = world.db.begin("UPDATE stock SET delivered = delivered WHERE sku = 'sku-0'").await;
        eventually("status tells of it", async || {
            let status = world.oncebox(&["status", "--output", "json"]).exits(0).json();
            status["warnings"].to_string().contains("open for")
        })
        .await;
        let checked = world.oncebox(&["check"]);
        let line = checked.stdout.lines().find(|line| line.contains("old transactions"));
        assert!(line.is_some_and(|line| line.starts_with("warning")), "{checked}");
        report.rollback().await;
    }
}

/// A newer oncebox has been there.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_newer_than_the_program_is_refused() {
    for kind in Kind::WITH_SQL {
        let world = World::new(kind, 1).await;
        world.oncebox(&["migrate"]).exits(0);
        world.db.execute("INSERT INTO oncebox_migrations (version, name) VALUES (99, 'of tomorrow')").await;
        for command in [&["status"][..], &["migrate"], &["dead", "list"], &["run"]] {
            world.oncebox(command).exits(5).says(&["version 99", "newer oncebox"]);
        }
        world.oncebox(&["check"]).exits(1);
    }
}
