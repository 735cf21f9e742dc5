//! `[outbox]`.

use super::{Case, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("relay = true", "relay = true\nrelai = false", "outbox.relai", 21, "did you mean `relay`"),
    // Wrong types.
    ("relay = true", "keep = 1", "outbox.keep", 20, "this is an integer; write a duration"),
    // Bad values.
    ("relay = true", "relay = true\nmax_connections = 1", "outbox.max_connections", 21, "1 is out of range"),
    ("relay = true", "relay = true\nexchange = \"e\"", "outbox.exchange", 21, "needs a broker"),
    (
        "relay = true",
        "relay = true\nkafka = \"west\"",
        "outbox.kafka",
        21,
        "no cluster \"west\", and none with a name; add [kafka.west]",
    ),
    ("relay = true", "relay = true\nkeep = \"forever\"", "outbox.keep", 21, "\"forever\" is not a duration"),
    (
        "relay = true",
        "relay = true\nlease = \"1s\"",
        "outbox.lease",
        21,
        "1s is too short; write a duration from 2s to 5m",
    ),
    (
        "relay = true",
        "relay = true\nlease = \"1h\"",
        "outbox.lease",
        21,
        "1h is too long; write a duration from 2s to 5m",
    ),
    ("relay = true", "relay = true\nmax_age = \"0s\"", "outbox.max_age", 21, "too short"),
    ("relay = true", "relay = true\nsource = \"a b\"", "outbox.source", 21, "not a CloudEvents source"),
    (
        "relay = true",
        "relay = true\nbatch = { messages = 0 }",
        "outbox.batch.messages",
        21,
        "0 is out of range",
    ),
];

#[test]
fn a_relay_needs_somewhere_to_publish_to() {
    let problems = problems("[store]\nurl = \"sqlite://x\"\n[outbox]\nrelay = true\n");
    assert_eq!(
        problems.render("x.toml"),
        "x.toml:4: outbox.relay: the relay has nothing to publish to; add [kafka] with `brokers`, an `exchange` of [rabbitmq], or a [[webhook]]"
    );
}
