//! Where events go: exchanges, webhooks; and the sweeps that make some.

use std::time::Duration;

use oncebox_core::backoff::Backoff;
use oncebox_core::inbox::RetryPolicy;
use oncebox_core::secret::Secret;
use oncebox_core::store::Sweep;

use super::{RELAYING, parse};
use crate::*;

#[test]
fn events_go_to_exchanges_by_their_topics() {
    let config = parse(
        r#"
        [store]
        url = "sqlite://stock.db"
        [rabbitmq]
        url = "amqp://h"
        [outbox]
        relay = true
        exchange = "events"
        [[outbox.route]]
        topics = ["invoice.*", "mail"]
        exchange = ""
        routing_key = "{topic}.{key}"
        [[outbox.route]]
        topics = ["audit"]
        exchange = "audit"
        "#,
    );
    assert_eq!(config.outbox.exchange.as_deref(), Some("events"));
    let [invoices, audit] = config.outbox.routes.as_slice() else { unreachable!() };
    assert_eq!(
        (invoices.topics.len(), invoices.exchange.as_str(), invoices.routing_key.as_str()),
        (2, "", "{topic}.{key}")
    );
    assert_eq!((audit.exchange.as_str(), audit.routing_key.as_str()), ("audit", "{topic}"));
}

#[test]
fn every_key_of_webhooks_and_sweeps() {
    // Neither an inbox nor [kafka] is needed.
    let config = parse(
        r#"
        [store]
        url = "postgres://erp@db/erp"
        [outbox]
        relay = true
        [[webhook]]
        topics = ["invoice.*", "mail"]
        url = "https://u:p@mail.example.com:8443/in?token=x"
        secret = "s"
        timeout = "5m"
        retry = { attempts = 20, backoff = "1s..10m" }
        at_once = 256
        park_on = [410, 300, 599]
        on_failure = "park-key"
        headers = { "X-Team" = "erp", "x-level" = 5 }
        [[webhook]]
        topics = ["*"]
        url = "http://[::1]:8080"
        retry = { backoff = "1s..2s" }
        [[webhook]]
        name = "crm"
        copy = true
        topics = ["invoice.*", "*"]
        url = "http://localhost:8081"
        [[sweep]]
        name = "due"
        every = "1s"
        sql = "WITH d AS (SELECT 1 AS id) SELECT id, 'a'::text AS customer FROM d; -- all of them"
        key = "id"
        window = "7d"
        emit = { topic = "invoice.mail", key = "customer" }
        limit = 10000
        "#,
    );
    let [mail, rest, crm] = config.webhooks.as_slice() else { unreachable!() };
    assert_eq!((mail.name.as_deref(), mail.copy), (None, false));
    assert_eq!(
        (crm.name.as_deref(), crm.copy, crm.topics.len()),
        (Some("crm"), true, 2),
        "it takes nothing away"
    );
    assert_eq!(mail.topics, ["invoice.*", "mail"]);
    assert_eq!(mail.url.expose(), "https://u:p@mail.example.com:8443/in?token=x");
    assert_eq!(
        (mail.url.origin().as_str(), mail.url.is_in_the_clear()),
        ("https://mail.example.com:8443", false)
    );
    assert_eq!(mail.secret, Some(Secret::new("s")));
    assert_eq!((mail.parks_keys, rest.parks_keys), (true, false));
    assert_eq!((mail.park_on.as_deref(), &rest.park_on), (Some(&[410, 300, 599][..]), &None));
    assert_eq!((mail.timeout, mail.at_once), (Some(Duration::from_secs(300)), Some(256)));
    let (second, minutes) = (Duration::from_secs(1), Duration::from_secs(600));
    assert_eq!(mail.retry, RetryPolicy { attempts: 20, backoff: Backoff { min: second, max: minutes } });
    let headers: Vec<_> = mail.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(headers, [("X-Team", "erp"), ("x-level", "5")]);
    assert_eq!((rest.retry.attempts, rest.timeout, rest.at_once), (u32::MAX, None, None));

    let [due] = config.sweeps.as_slice() else { unreachable!() };
    let sweep = Sweep {
        name: "due".to_owned(),
        query: "WITH d AS (SELECT 1 AS id) SELECT id, 'a'::text AS customer FROM d".to_owned(),
        row_key: "id".to_owned(),
        window: Duration::from_secs(7 * 86_400),
        topic: "invoice.mail".to_owned(),
        event_key: Some("customer".to_owned()),
        limit: 10_000,
    };
    assert_eq!(*due, SweepConfig { every: second, sweep });
}

#[test]
fn a_sweep_needs_no_relay() {
    let text = RELAYING.replace("relay = true", "relay = false").replace("[kafka]\nbrokers = \"k\"\n", "");
    let sweep = "name = \"a\"\nevery = \"1m\"\nsql = \"SELECT 1 AS id\"\nkey = \"id\"\nemit.topic = \"t\"\n";
    let config = parse(&format!("{text}[[sweep]]\n{sweep}"));
    let sweep = &config.sweeps[0].sweep;
    assert_eq!((sweep.window, sweep.limit), (Duration::from_secs(86_400), 1000));
    assert_eq!(sweep.event_key, None);
}

#[test]
fn plain_http_is_safe_on_this_machine_only() {
    for (url, in_the_clear) in [
        ("http://localhost:80/x", false),
        ("http://mail.localhost", false),
        ("http://127.3.0.1", false),
        ("http://[::1]/", false),
        ("http://[::ffff:127.0.0.1]/", false),
        ("http://10.0.0.1", true),
        ("http://localhost.example.com", true),
        ("https://10.0.0.1", false),
    ] {
        let config = parse(&format!("{RELAYING}[[webhook]]\ntopics = [\"t\"]\nurl = \"{url}\"\n"));
        assert_eq!(config.webhooks[0].url.is_in_the_clear(), in_the_clear, "{url}");
    }
}
