//! What the daemon shows of itself, and what it must never show.

use crate::support::command::Answer;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::on_each_server;
use crate::support::orders::{Order, orders};
use crate::support::topic::Odd;
use crate::support::world::World;

on_each_server!(health_and_metrics_have_the_names_of_the_contract,);

async fn health_and_metrics_have_the_names_of_the_contract(kind: Kind) {
    let world = World::new(kind, 2).await;
    let all = orders(0..50);
    world.topic.send(&all);
    world.topic.send(&all[..10]);
    world.topic.send_odd(&Odd { key: Some(b"secret-key"), ..Odd::default() });
    let daemon = world.start();
    daemon.ready().await;
    world.caught_up().await;

    let (status, health) = daemon.health().await.expect("an answer");
    assert_eq!((status, &health["healthy"]), (200, &true.into()), "{health:#}");
    let loops = health["loops"].as_array().cloned().unwrap_or_default();
    for name in [
        "setup",
        "store",
        "purge",
        &format!("inbox:{}", world.consumer),
        &format!("kafka:{}", world.consumer),
    ] {
        let found =
            loops.iter().find(|l| l["name"] == name).unwrap_or_else(|| panic!("no loop {name}: {health:#}"));
        assert!(found["last_success_age_seconds"].is_number() && found["healthy"] == true, "{found:#}");
    }

    let consumer = &world.consumer;
    let of = |name: &str| format!("oncebox_{name}{{consumer=\"{consumer}\"}}");
    let total =
        |outcome: &str| format!("oncebox_messages_total{{consumer=\"{consumer}\",outcome=\"{outcome}\"}}");
    for (series, value) in [
        (total("applied"), 50.0),
        (total("duplicate"), 10.0),
        (total("dead"), 1.0),
        (total("retried"), 0.0),
        (total("filtered"), 0.0),
        (of("consumer_paused"), 0.0),
        (of("lag_messages"), 0.0),
        (of("dead_letters"), 1.0),
        (of("partitions_stopped"), 0.0),
        ("oncebox_purged_total".to_owned(), 0.0),
        ("oncebox_outbox_pending".to_owned(), 0.0),
        ("oncebox_outbox_oldest_seconds".to_owned(), 0.0),
    ] {
        eventually(&format!("{series} {value}"), async || daemon.metric(&series).await == Some(value)).await;
    }
    assert!(daemon.metric(&of("batch_size_count")).await.is_some_and(|count| count > 0.0));
    assert!(daemon.metric(&of("transaction_seconds_count")).await.is_some_and(|count| count > 0.0));
    let page = daemon.get("/metrics").await.expect("an answer").body;
    assert!(page.contains("oncebox_loop_last_success_age_seconds{loop=\"store\"}"), "{page}");
    for text in ["# HELP oncebox_lag_messages ", "# TYPE oncebox_batch_size histogram", "le=\"2500\""] {
        assert!(page.contains(text), "no {text} in the metrics:\n{page}");
    }
    for word in ["secret-key", "order-1", "sku-1"] {
        assert!(!page.contains(word), "{word} is in the metrics:\n{page}");
    }
    assert_eq!(daemon.get("/").await.map(|page| page.status), Some(200));
    assert_eq!(daemon.get("/nothing").await.map(|page| page.status), Some(404));

    let shown = world.oncebox(&["status", "--output", "json"]).exits(0).json();
    assert_eq!(shown["consumers"][0]["applied"], 50, "{shown:#}");
    assert_eq!(shown["consumers"][0]["duplicates_suppressed"], 10);
    assert_eq!(shown["consumers"][0]["dead_letters"], 1);
    assert_eq!(shown["consumers"][0]["lag"], 0);
    assert_eq!(shown["positions"].as_array().map(Vec::len), Some(2));
    world.oncebox(&["status"]).exits(0);
    world.oncebox(&["check"]).exits(0);
    daemon.stop();
}

/// Before the tables are there, commands say what to do.
#[tokio::test(flavor = "multi_thread")]
async fn commands_before_migrate_say_what_to_do() {
    for kind in Kind::ALL {
        let world = World::new(kind, 1).await;
        for command in [&["status"][..], &["dead", "list"], &["purge"]] {
            world.oncebox(command).exits(5).says(&["oncebox migrate"]);
        }
        let found = world.oncebox(&["check", "--output", "json"]).exits(1).json();
        let schema = found.as_array().into_iter().flatten().find(|f| f["subject"] == "schema").cloned();
        let schema = schema.unwrap_or_else(|| panic!("nothing about the schema: {found:#}"));
        assert!(
            schema["level"] == "error"
                && schema["detail"].as_str().is_some_and(|d| d.contains("oncebox migrate"))
        );
    }
}

/// One JSON object a line, with the message where programs look for it.
#[tokio::test(flavor = "multi_thread")]
async fn json_logs_are_json() {
    let world = World::new(Kind::Postgres, 1).await;
    world.topic.send(&[Order::of(100, 0)]);
    let daemon = world.start_with(&["--log-format", "json", "--log", "debug"], &[]);
    world.caught_up().await;
    let mut given_up = 0;
    for line in daemon.stop().lines() {
        let entry: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("a log line is not JSON ({e}): {line}"));
        let text = entry["message"].as_str().unwrap_or_else(|| panic!("no message: {line}"));
        assert_eq!(line.matches("\"message\":").count(), 1, "two messages: {line}");
        given_up += usize::from(text.contains("the message is given up"));
    }
    assert_eq!(given_up, 1);
}

/// Passwords are in none of our outputs, whatever is asked and whatever goes wrong.
#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_never_shown() {
    const STORE: &str = "canary-of-the-store";
    const KAFKA: &str = "canary-of-kafka";
    let mut world = World::new(Kind::Postgres, 1).await;
    let (scheme, rest) = world.db.url.split_once("://").expect("a URL");
    let (user, host) = rest.split_once('@').expect("a user");
    let user = user.split(':').next().unwrap_or(user);
    let good_store = format!("{scheme}://{user}:{STORE}@{host}");
    let good_brokers = world.config.brokers.clone();
    world.config.properties.insert("sasl.password".to_owned(), KAFKA.to_owned());
    world.config.properties.insert("sasl.username".to_owned(), "erp".to_owned());
    world.config.properties.insert("debug".to_owned(), "conf,security,broker".to_owned());
    let silent = |what: &str, output: &str| {
        for canary in [STORE, KAFKA] {
            assert!(!output.contains(canary), "{what} shows {canary}:\n{output}");
        }
    };
    let commands: [&[&str]; 6] = [
        &["check"],
        &["check", "--output", "json"],
        &["status", "--output", "json"],
        &["migrate", "status"],
        &["dead", "list"],
        &["purge", "--dry-run"],
    ];

    world.config.store = good_store.clone();
    world.topic.send(&orders(0..20));
    let daemon = world.start_with(&["--log", "debug"], &[]);
    world.caught_up().await;
    // An error of the database, so that there is one to be told.
    world.db.terminate_daemons().await;
    world.topic.send(&orders(20..40));
    world.caught_up().await;
    for page in ["/healthz", "/readyz", "/metrics", "/"] {
        silent(page, &daemon.get(page).await.expect("an answer").body);
    }
    assert!(daemon.log().contains("DEBUG"), "debug lines are there");
    silent("the log", &daemon.log());
    daemon.stop();

    // With everything as it should be, a wrong port, a wrong host, a wrong database, a wrong broker, a wrong property.
    let database = good_store.rsplit('/').next().unwrap_or_default().to_owned();
    let stores = [
        good_store.clone(),
        format!("{scheme}://{user}:{STORE}@127.0.0.1:1/{database}"),
        format!("{scheme}://{user}:{STORE}@no-such-host.invalid/{database}"),
        format!("{good_store}_that_is_not_there"),
        format!("{scheme}://{user}:{STORE}@{host}?sslmode=nonsense"),
        format!("{scheme}://{user}:{STORE}@[::1/{database}"),
        format!("{scheme}://{user}:{STORE}@127.0.0.1:99999/{database}"),
        format!("nonsense://{user}:{STORE}@{host}"),
    ];
    for store in &stores {
        world.config.store = store.clone();
        for command in commands {
            let answer = world.oncebox(&[&["--log", "debug"], command].concat());
            silent(&format!("{command:?} with {store}"), &answer.to_string());
        }
    }
    world.config.store = good_store;
    for (brokers, property) in [("127.0.0.1:1", "plaintext"), (good_brokers.as_str(), "nonsense")] {
        world.config.brokers = brokers.to_owned();
        world.config.properties.insert("security.protocol".to_owned(), property.to_owned());
        for command in &commands[..3] {
            let answer = world.oncebox(&[&["--log", "debug"], *command].concat());
            silent(&format!("{command:?} with {brokers} {property}"), &answer.to_string());
        }
        if property == "nonsense" {
            silent("run", &world.oncebox(&["run", "--log", "debug"]).exits(3).to_string());
            continue;
        }
        let daemon = world.start_with(&["--log", "debug"], &[]);
        eventually("there is an error", async || {
            daemon.get("/healthz").await.is_some_and(|page| page.body.contains("\"error\""))
        })
        .await;
        silent("/healthz", &daemon.get("/healthz").await.expect("an answer").body);
        silent("the log", &daemon.log());
        daemon.kill();
    }

    // The same by a variable of the environment.
    world.config.brokers = good_brokers;
    world.config.properties.remove("security.protocol");
    world.config.properties.insert("sasl.password".to_owned(), "${CANARY}".to_owned());
    world.config.properties.insert("sasl.pasword".to_owned(), "${CANARY}".to_owned());
    world.write_config();
    let mut command = crate::support::command::oncebox(world.folder());
    command.args(["check", "--log", "debug"]).env("CANARY", KAFKA);
    silent("check", &Answer::of_command(command).to_string());
}
