//! Brokers that want to know who is there: TLS, passwords, tokens. Against a broker of the test's own, which has a listener for
//! each.

use crate::support::broker::{Broker, PASSWORDS, USER};
use crate::support::command::Answer;
use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::issuer::{CLIENT, Issuer, SECRET};
use crate::support::orders::orders;
use crate::support::topic::Topic;
use crate::support::world::World;

/// Nobody gives tokens.
const NO_KEYS: &str = "{\"keys\":[]}";

/// An inbox that publishes an event for each order, to a topic that is there.
async fn world_at(broker: &Broker) -> (World, Topic) {
    let mut world = World::at_brokers(Kind::Postgres, &broker.open(), 1).await;
    let events = Topic::create_at(&broker.open(), &format!("{}.events", world.topic.name), 1).await;
    let inbox =
        Inbox::of_orders_with_events(Kind::Postgres, &world.consumer, &world.topic.name, &events.name);
    world.inbox(|_| inbox.set("retention", "\"90d\""));
    world.config.outbox.insert("relay".to_owned(), "true".to_owned());
    (world, events)
}

fn set(world: &mut World, properties: &[(&str, &str)]) {
    let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    world.config.properties.extend(properties);
}

#[track_caller]
fn is_silent(what: &str, text: &str) {
    let passwords = PASSWORDS.iter().map(|(_, password)| *password);
    for canary in passwords.chain([SECRET]) {
        assert!(!text.contains(canary), "{what} shows {canary}:\n{text}");
    }
}

/// The one line of `check` about the broker.
#[track_caller]
fn of_kafka(answer: &Answer) -> String {
    let findings = answer.json();
    let found = findings.as_array().into_iter().flatten().find(|f| f["subject"] == "kafka");
    let found = found.unwrap_or_else(|| panic!("nothing about Kafka: {answer}"));
    is_silent("check", &answer.to_string());
    format!(
        "{} {}",
        found["level"].as_str().unwrap_or_default(),
        found["detail"].as_str().unwrap_or_default()
    )
}

fn check(world: &World) -> Answer {
    world.oncebox(&["check", "--output", "json", "--log", "debug"])
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_sent_over_tls_and_wrong_ones_are_told() {
    let broker = Broker::start(NO_KEYS).await;
    let authority = broker.authority().display().to_string();
    let stranger = broker.stranger().display().to_string();
    let (mut world, events) = world_at(&broker).await;
    world.config.brokers = broker.password();
    set(
        &mut world,
        &[("security.protocol", "sasl_ssl"), ("ssl.ca.location", &authority), ("sasl.username", USER)],
    );

    for (nth, (mechanism, password)) in (0..).zip(PASSWORDS) {
        set(&mut world, &[("sasl.mechanism", mechanism), ("sasl.password", password)]);
        let checked = check(&world);
        assert!(of_kafka(&checked).starts_with("ok "), "{mechanism}: {checked}");
        world.topic.send(&orders(nth * 10..nth * 10 + 10));
        let daemon = world.start_with(&["--log", "debug"], &[]);
        world.caught_up().await;
        eventually("the events are published", async || events.end(0) == i64::from(nth + 1) * 10).await;
        world.turns(&daemon, 200).await;
        is_silent("the log", &daemon.stop());

        set(&mut world, &[("sasl.password", "canary-of-somebody-else")]);
        let said = of_kafka(&check(&world).exits(4));
        for word in ["error ", "uthentication", "sasl.username and sasl.password", "[kafka]"] {
            assert!(said.contains(word), "{mechanism}: {word:?} is not in {said}");
        }
    }
    world.has_exactly(&orders(0..30)).await;

    // A running daemon says so too, and goes on when the password is right.
    let daemon = world.start();
    let errors = format!("{:?}", world.turns(&daemon, 503).await);
    assert!(errors.contains("uthentication") && errors.contains("sasl.password"), "{errors}");
    daemon.stop();

    // Who has signed the certificate of the broker?
    set(&mut world, &[("sasl.password", PASSWORDS[2].1), ("ssl.ca.location", &stranger)]);
    let said = of_kafka(&check(&world).exits(4));
    assert!(said.contains("certificate verify failed") && said.contains("Check ssl.ca.location"), "{said}");
    let daemon = world.start();
    let errors = format!("{:?}", world.turns(&daemon, 503).await);
    assert!(errors.contains("certificate verify failed") && errors.contains("ssl.ca.location"), "{errors}");
    daemon.stop();

    // A file that is not there is the configuration's fault.
    set(&mut world, &[("ssl.ca.location", "/is/not/there.pem")]);
    let said = of_kafka(&check(&world).exits(3));
    assert!(said.contains("ssl.ca.location"), "{said}");
    world.oncebox(&["run"]).exits(3).says(&["[kafka]", "ssl.ca.location"]);
    world.oncebox(&["status"]).exits(0).says(&["lag and owners are not known", "ssl.ca.location"]);
}

/// Nobody has said whom to trust: then it is whom this machine trusts. The variables are those that OpenSSL knows.
#[tokio::test(flavor = "multi_thread")]
async fn the_authorities_of_the_machine_are_trusted() {
    let broker = Broker::start(NO_KEYS).await;
    let (mut world, _events) = world_at(&broker).await;
    world.config.brokers = broker.tls();
    set(&mut world, &[("security.protocol", "ssl"), ("debug", "security")]);
    let authority = broker.authority().display().to_string();
    let with = |file: &str| world.oncebox_with(&["check", "--output", "json"], &[("SSL_CERT_FILE", file)]);
    let said = of_kafka(&with(&authority));
    assert!(said.starts_with("ok "), "{said}");
    let said = of_kafka(&with(&broker.stranger().display().to_string()).exits(4));
    assert!(said.contains("certificate verify failed"), "{said}");

    // Without them, it is a file that is there: librdkafka says which one it reads.
    let mut command = crate::support::command::oncebox(world.folder());
    command.args(["check", "--log", "debug"]).env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
    let answer = Answer::of_command(command).exits(4);
    let line = answer.stderr.lines().find(|line| line.contains("Loading CA certificate(s) from file "));
    let line = line.unwrap_or_else(|| panic!("librdkafka names no file: {answer}"));
    let file =
        line.split("from file ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    assert!(std::path::Path::new(file).is_file(), "{line}");
}

/// A typing error is the configuration's fault, and has a line.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_refused_with_its_line() {
    let mut world = World::new(Kind::Sqlite, 1).await;
    let good = world.config.properties.clone();
    for (properties, words) in [
        (
            &[("sasl.usernam", "erp")][..],
            &["oncebox.toml:", "kafka.properties.\"sasl.usernam\"", "No such"][..],
        ),
        (&[("security.protocol", "tls")], &["kafka.properties.\"security.protocol\"", "Invalid value"]),
        (&[("sasl.mechanism", "GSSAPI")], &["kafka.properties.\"sasl.mechanism\"", "Kerberos"]),
        (&[("sasl.oauthbearer.method", "default")], &["sasl.oauthbearer.method", "oidc"]),
        (&[("security.protocol", "sasl_ssl")], &["kafka.properties.\"sasl.mechanism\"", "nothing says how"]),
        (
            &[("security.protocol", "sasl_ssl"), ("sasl.mechanism", "PLAIN"), ("sasl.username", "erp")],
            &["kafka.properties.\"sasl.password\"", "it is missing"],
        ),
    ] {
        world.config.properties.clone_from(&good);
        set(&mut world, properties);
        for command in ["check", "run", "status"] {
            world.oncebox(&[command]).exits(3).says(words);
        }
    }
}

/// Tokens of an endpoint, which expire every few seconds: the broker checks who has signed them, and ends connections whose
/// token is over.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_asked_for_and_renewed_in_time() {
    let issuer = Issuer::start(5).await;
    let broker = Broker::start(&issuer.keys()).await;
    let (mut world, events) = world_at(&broker).await;
    world.config.brokers = broker.token();
    let (authority, url) = (broker.authority().display().to_string(), issuer.url());
    set(
        &mut world,
        &[
            ("security.protocol", "sasl_ssl"),
            ("ssl.ca.location", &authority),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.client.id", CLIENT),
            ("sasl.oauthbearer.client.secret", SECRET),
            ("sasl.oauthbearer.token.endpoint.url", &url),
            ("sasl.oauthbearer.scope", "kafka read+write"),
            ("sasl.oauthbearer.extensions", "logicalCluster=lkc-1,identityPoolId=pool-2"),
        ],
    );
    let checked = check(&world);
    assert!(of_kafka(&checked).starts_with("ok "), "{checked}");
    assert_eq!(issuer.last_body(), "grant_type=client_credentials&scope=kafka+read%2Bwrite");

    world.topic.send(&orders(0..10));
    let daemon = world.start_with(&["--log", "debug"], &[]);
    world.caught_up().await;
    let first = issuer.issued();
    // The tokens of the first connections have expired several times over.
    eventually("more tokens", async || issuer.issued() >= first + 4).await;
    world.topic.send(&orders(10..20));
    world.caught_up().await;
    eventually("the events are published", async || events.end(0) == 20).await;
    world.turns(&daemon, 200).await;
    world.oncebox(&["status"]).exits(0);
    assert!(world.oncebox(&["status", "--output", "json"]).exits(0).json()["kafka_error"].is_null());

    // The endpoint is away for longer than a token lives, and is back.
    issuer.answer_with(Some(503));
    let errors = format!("{:?}", world.turns(&daemon, 503).await);
    assert!(errors.contains("no token from http://127.0.0.1:") && errors.contains("503"), "{errors}");
    let said = of_kafka(&check(&world).exits(4));
    assert!(said.contains("no token from http://127.0.0.1:") && said.contains("503"), "{said}");
    issuer.answer_with(None);
    world.topic.send(&orders(20..30));
    world.caught_up().await;
    eventually("the events are published", async || events.end(0) == 30).await;
    world.turns(&daemon, 200).await;
    let log = daemon.stop();
    is_silent("the log", &log);
    assert!(
        log.contains("there is no token for Kafka; trying again")
            && log.contains("there is a token for Kafka again")
    );
    world.has_exactly(&orders(0..30)).await;

    // A token that the broker does not take, and a client that the endpoint does not know.
    issuer.sign_for("somebody else");
    let said = of_kafka(&check(&world).exits(4));
    assert!(said.contains("uthentication") && said.contains("sasl.oauthbearer.client.id"), "{said}");
    issuer.sign_for("kafka");
    set(&mut world, &[("sasl.oauthbearer.client.id", "nobody")]);
    let said = of_kafka(&check(&world).exits(4));
    assert!(
        said.contains("401") && said.contains("who are you?") && said.contains("client.secret"),
        "{said}"
    );
    set(&mut world, &[("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/token")]);
    let said = of_kafka(&check(&world).exits(4));
    assert!(
        said.contains("no token from http://127.0.0.1:1") && said.contains("token.endpoint.url"),
        "{said}"
    );
}
