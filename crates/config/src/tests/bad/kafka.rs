//! `[kafka]` and its properties; several clusters.

use super::{BASE, Case, parse, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("brokers", "broker = 1\nbrokers", "kafka.broker", 4, "did you mean `brokers`"),
    // Wrong types.
    ("\"plaintext\"", "[1]", "kafka.properties.\"security.protocol\"", 6, "this is an array"),
    // Missing.
    ("brokers = \"localhost:9092\"", "", "kafka.brokers", 3, "it is missing"),
    // Bad values.
    ("localhost:9092", "a:1,,b:2", "kafka.brokers", 4, "an empty name"),
    (
        "\"security.protocol\"",
        "\"enable.auto.commit\"",
        "kafka.properties.\"enable.auto.commit\"",
        6,
        "it commits; remove it",
    ),
    (
        "\"security.protocol\"",
        "\"auto.offset.reset\"",
        "kafka.properties.\"auto.offset.reset\"",
        6,
        "use `start` under [[inbox]]",
    ),
    (
        "\"security.protocol\"",
        "\"group.id\"",
        "kafka.properties.\"group.id\"",
        6,
        "use `group` under [[inbox]]",
    ),
    (
        "\"security.protocol\" = \"plaintext\"",
        "\"statistics.interval.ms\" = 0",
        "kafka.properties.\"statistics.interval.ms\"",
        6,
        "it reads them; remove it",
    ),
    (
        "\"security.protocol\"",
        "\"bootstrap.servers\"",
        "kafka.properties.\"bootstrap.servers\"",
        6,
        "use `brokers` under [kafka]",
    ),
    (
        "\"security.protocol\"",
        "security.protocol",
        "kafka.properties.\"security\"",
        6,
        "put the whole name in quotes",
    ),
    ("[http]", "[kafka.west]\n[http]", "kafka.west.brokers", 7, "it is missing"),
    ("[http]", "[kafka.\"a b\"]\nbrokers = \"k\"\n[http]", "kafka.\"a b\"", 7, "no name of a cluster"),
    (
        "\"security.protocol\" = \"plaintext\"",
        "\"half\" = 1",
        "kafka.properties.\"whole\"",
        3,
        "half is nothing; add it",
    ),
    // Variables.
    ("\"plaintext\"", "\"${PW}\"", "kafka.properties.\"security.protocol\"", 6, "variable PW is not set"),
];

#[test]
fn a_refused_property_with_a_wrong_value_is_two_problems() {
    let text = BASE.replace("\"security.protocol\" = \"plaintext\"", "\"group.id\" = \"${UNSET}\"");
    assert_eq!(problems(&text).len(), 2, "{}", problems(&text));
}

#[test]
fn the_value_of_a_refused_property_is_not_shown() {
    let text = BASE.replace("\"security.protocol\" = \"plaintext\"", "\"group.id\" = \"hunter2\"");
    let problems = problems(&text);
    assert!(!format!("{problems} {problems:?}").contains("hunter2"), "{problems}");
}

const CLUSTERS: &str = r#"[store]
url = "postgres://erp@localhost/erp"
[kafka.west]
brokers = "w"
[kafka.east]
brokers = "e"
[[inbox]]
consumer = "stock"
topics = ["t"]
id = "key"
handler.each = ["SELECT :id"]
"#;

#[test]
fn where_all_clusters_have_names_one_has_to_be_named() {
    let said = problems(CLUSTERS).render("x.toml");
    let expected = "x.toml:9: inbox[0].topics: there is no [kafka] with `brokers`, so the cluster has to be named; write \
                    `kafka = NAME`, with one of \"east\", \"west\"";
    assert_eq!(said, expected);
    let said = problems(&CLUSTERS.replace("topics", "kafka = \"south\"\ntopics")).render("x.toml");
    let expected = "x.toml:9: inbox[0].kafka: there is no cluster \"south\"; use one of \"east\", \"west\", or add [kafka.south]";
    assert_eq!(said, expected);
    let relay = format!("{}[outbox]\nrelay = true\n", CLUSTERS.replace("topics", "kafka = \"east\"\ntopics"));
    let said = problems(&relay).render("x.toml");
    assert!(
        said.starts_with("x.toml:14: outbox.relay: the relay has nothing to publish to; say which cluster"),
        "{said}"
    );
}

/// Each inbox brings its own half: what it has in common with the others is not whole, and need not be.
#[test]
fn what_a_cluster_lacks_an_inbox_may_bring() {
    let half = CLUSTERS
        .replace("[kafka.west]\nbrokers = \"w\"\n", "")
        .replace("brokers = \"e\"", "brokers = \"e\"\nproperties = { half = 1 }");
    let with = |properties: &str| half.replace("topics", &format!("kafka = \"east\"\n{properties}\ntopics"));
    assert!(parse(&with("properties = { whole = 1 }")).is_ok());
    let said = problems(&with("")).render("x.toml");
    assert_eq!(said, "x.toml:3: kafka.east.properties.\"whole\": half is nothing; add it");
    let relayed = format!("{}[outbox]\nrelay = true\nkafka = \"east\"\n", with("properties = { whole = 1 }"));
    let said = problems(&relayed).render("x.toml");
    assert_eq!(
        said, "x.toml:3: kafka.east.properties.\"whole\": half is nothing; add it",
        "the relay is not whole"
    );
}
