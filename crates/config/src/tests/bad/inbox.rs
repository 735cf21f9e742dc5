//! `[[inbox]]`, whatever it reads from.

use super::{BASE, Case, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("retention =", "retension =", "inbox[0].retension", 13, "did you mean `retention`"),
    ("retention =", "on-failure = 1\nretention =", "inbox[0].on-failure", 13, "did you mean `on_failure`"),
    ("id =", "batch = { message = 1 }\nid =", "inbox[0].batch.message", 12, "did you mean `messages`"),
    ("id =", "retry = { tries = 1 }\nid =", "inbox[0].retry.tries", 12, "known here: attempts, backoff"),
    // Wrong types.
    ("[\"stock.updates\"]", "\"stock.updates\"", "inbox[0].topics", 11, "this is a string; write an array"),
    ("[\"stock.updates\"]", "[1]", "inbox[0].topics[0]", 11, "this is an integer; write a string"),
    ("\"7d\"", "7", "inbox[0].retention", 13, "this is an integer; write a duration"),
    ("id =", "lanes = \"1\"\nid =", "inbox[0].lanes", 12, "this is a string; write an integer from 1 to 64"),
    ("id =", "batch = 5\nid =", "inbox[0].batch", 12, "this is an integer; write a table"),
    ("id =", "start = true\nid =", "inbox[0].start", 12, "this is a boolean; write one of earliest"),
    // Missing.
    ("consumer = \"stock\"", "", "inbox[0].consumer", 9, "it is missing"),
    ("topics = [\"stock.updates\"]", "", "inbox[0].topics", 9, "it is missing"),
    ("id = \"header:event_id\"", "", "inbox[0].id", 9, "there is no default: a wrong guess drops messages"),
    // Bad values.
    ("retention = \"7d\"", "max_connections = 0", "inbox[0].max_connections", 13, "0 is out of range"),
    ("\"stock\"", "\"\"", "inbox[0].consumer", 10, "the consumer name is empty"),
    ("\"stock\"", "\"a b\"", "inbox[0].consumer", 10, "contains ' '"),
    ("[\"stock.updates\"]", "[]", "inbox[0].topics", 11, "the list is empty"),
    ("id =", "queue = \"q\"\nid =", "inbox[0].queue", 12, "topics, a queue or requests"),
    ("id =", "prefetch = 5\nid =", "inbox[0].prefetch", 12, "is for a queue of RabbitMQ"),
    ("id =", "key = \"header:k\"\nid =", "inbox[0].key", 12, "is for a queue of RabbitMQ"),
    (
        "[\"stock.updates\"]",
        "[\"^a(\"]",
        "inbox[0].topics[0]",
        11,
        "no pattern of topics: it is not closed; write a regular",
    ),
    ("[\"stock.updates\"]", "[\"a.*\"]", "inbox[0].topics[0]", 11, "a pattern begins with `^`"),
    ("[\"stock.updates\"]", "[\"^a\", \"^a\"]", "inbox[0].topics[1]", 11, "listed twice"),
    (
        "id = \"header",
        "kafka = \"west\"\nid = \"header",
        "inbox[0].kafka",
        12,
        "no cluster \"west\", and none with a name; add [kafka.west]",
    ),
    (
        "retention = \"7d\"",
        "properties = { \"group.id\" = \"g\" }",
        "inbox[0].properties.\"group.id\"",
        13,
        "use `group` under [[inbox]]",
    ),
    (
        "retention = \"7d\"",
        "properties = { \"half\" = 1 }",
        "inbox[0].properties.\"whole\"",
        9,
        "half is nothing; add it",
    ),
    ("[\"stock.updates\"]", "[\"a\",\n\"a\"]", "inbox[0].topics[1]", 12, "listed twice"),
    ("header:event_id", "uuid", "inbox[0].id", 12, "allowed are key, header:NAME"),
    ("\"header:event_id\"", "[]", "inbox[0].id", 12, "the list is empty; list what is unique only together"),
    ("\"header:event_id\"", "[\"key\"]", "inbox[0].id[0]", 12, "one selector stands alone, without a list"),
    ("\"header:event_id\"", "[\"key\",\n\"key\"]", "inbox[0].id[1]", 13, "the part key is there twice"),
    ("\"header:event_id\"", "[\"key\",\n\"uuid\"]", "inbox[0].id[1]", 13, "allowed are key, header:NAME"),
    ("\"header:event_id\"", "[\"key\", [\"key\"]]", "inbox[0].id[1]", 12, "this is an array"),
    ("id =", "tenant = [\"key\", \"json:/x\"]\nid =", "inbox[0].tenant", 12, "this is an array"),
    ("id =", "tenant = \"json:x\"\nid =", "inbox[0].tenant", 12, "begins with `/`"),
    ("id =", "where = \"x\"\nid =", "inbox[0].where", 12, "this is a string; write a table"),
    ("id =", "where = { equals = [\"a\"] }\nid =", "inbox[0].where", 12, "does not say where to look"),
    (
        "id =",
        "where = { header = \"type\" }\nid =",
        "inbox[0].where.equals",
        12,
        "no message would be wanted",
    ),
    (
        "id =",
        "where = { header = \" \", equals = [\"a\"] }\nid =",
        "inbox[0].where.header",
        12,
        "this is empty",
    ),
    (
        "id =",
        "where = { header = \"type\", equals = [] }\nid =",
        "inbox[0].where.equals",
        12,
        "the list is empty",
    ),
    (
        "id =",
        "where = { header = \"type\", equals = \"a\" }\nid =",
        "inbox[0].where.equals",
        12,
        "an array of strings",
    ),
    (
        "id =",
        "where = { header = \"type\", equals = [[]] }\nid =",
        "inbox[0].where.equals[0]",
        12,
        "this is an array",
    ),
    (
        "id =",
        "where = { header = \"type\", selector = \"key\", equals = [\"a\"] }\nid =",
        "inbox[0].where.selector",
        12,
        "keep one of `header` and `selector`",
    ),
    (
        "id =",
        "where = { selector = \"cloudevents\", equals = [\"a\"] }\nid =",
        "inbox[0].where.selector",
        12,
        "another one for each message",
    ),
    (
        "id =",
        "where = { selector = \"property:type\", equals = [\"a\"] }\nid =",
        "inbox[0].where.selector",
        12,
        "only messages of RabbitMQ have properties",
    ),
    (
        "id =",
        "where = { selector = \"json:x\", equals = [\"a\"] }\nid =",
        "inbox[0].where.selector",
        12,
        "begins with `/`",
    ),
    (
        "id =",
        "where = { header = \"type\", equals = [\"a\"], equal = [\"b\"] }\nid =",
        "inbox[0].where.equal",
        12,
        "did you mean `equals`?",
    ),
    ("id =", "start = \"latestt\"\nid =", "inbox[0].start", 12, "did you mean \"latest\"?"),
    ("id =", "payload = \"xml\"\nid =", "inbox[0].payload", 12, "one of json, text, bytes"),
    ("id =", "on_failure = \"skip\"\nid =", "inbox[0].on_failure", 12, "one of park, park-key, halt"),
    ("id =", "stale = \"drop\"\nid =", "inbox[0].stale", 12, "one of apply, park"),
    ("id =", "retention_check = \"no\"\nid =", "inbox[0].retention_check", 12, "one of warn, refuse"),
    ("id =", "lanes = 65\nid =", "inbox[0].lanes", 12, "65 is out of range"),
    ("id =", "crash_limit = 0\nid =", "inbox[0].crash_limit", 12, "0 is out of range"),
    ("id =", "batch = { messages = 10001 }\nid =", "inbox[0].batch.messages", 12, "10001 is out of range"),
    ("id =", "batch = { bytes = \"4M\" }\nid =", "inbox[0].batch.bytes", 12, "\"4M\" is not a size"),
    ("id =", "batch = { bytes = \"1B\" }\nid =", "inbox[0].batch.bytes", 12, "out of range"),
    ("id =", "batch = { bytes = 1 }\nid =", "inbox[0].batch.bytes", 12, "out of range"),
    ("id =", "retry = { attempts = 0 }\nid =", "inbox[0].retry.attempts", 12, "0 is out of range"),
    (
        "id =",
        "retry = { backoff = \"5s..1s\" }\nid =",
        "inbox[0].retry.backoff",
        12,
        "not a range of durations",
    ),
    ("id =", "group = \"\"\nid =", "inbox[0].group", 12, "this is empty"),
    ("\"7d\"", "\"7 dayz\"", "inbox[0].retention", 13, "\"7 dayz\" is not a duration"),
    ("\"7d\"", "\"30s\"", "inbox[0].retention", 13, "30s is too short; write a duration from 1m"),
    // Variables.
    ("\"7d\"", "\"${SET}\"", "inbox[0].retention", 13, "\"${SET}\" is not a duration"),
    ("\"7d\"", "\"${a b}\"", "inbox[0].retention", 13, "write $${ for a literal ${"),
];

#[test]
fn names_are_taken_once() {
    let second = |keys: &str| {
        let handler = "handler = { each = [\"SELECT 1\"] }";
        problems(&format!("{BASE}[[inbox]]\ntopics = [\"t\"]\nid = \"key\"\n{keys}\n{handler}\n"))
    };
    for (keys, key, part) in [
        ("consumer = \"stock\"", "inbox[1].consumer", "another inbox is called stock too"),
        ("consumer = \"b\"\ngroup = \"stock\"", "inbox[1].group", "this Kafka group"),
        // Also when this inbox has another problem.
        ("consumer = \"stock\"\nlanes = 0", "inbox[1].consumer", "another inbox is called stock too"),
    ] {
        let problems = second(keys);
        let problem = problems.iter().find(|problem| problem.key == key).unwrap();
        assert!(problem.line >= 30 && problem.message.contains(part), "{problems}");
    }
    let text = BASE.replace("topics =", "group = \"b\"\ntopics =");
    let text = format!(
        "{text}[[inbox]]\nconsumer = \"b\"\ntopics = [\"t\"]\nid = \"key\"\nhandler.each = [\"SELECT 1\"]\n"
    );
    assert!(
        problems(&text).to_string().contains("inbox[1].consumer: another inbox has this Kafka group too")
    );
}
