//! What the parts say of each other: the reader of the file, the Kafka client, the stores, the template and the guide.

mod defaults;

use super::*;

const BASE: &str = "[store]\nurl = \"sqlite://x\"\n[kafka]\nbrokers = \"k\"\n[kafka.properties]\n";

#[test]
fn every_reserved_property_is_named_with_its_line() {
    let reserved: Vec<_> = oncebox_kafka::reserved_properties().collect();
    let lines = reserved.iter().map(|name| format!("\"{name}\" = \"1\"\n"));
    let text = format!("{BASE}{}\"statistics.interval.ms\" = 0\nlisten = [1]\n", lines.collect::<String>());
    let problems = parse(&text).unwrap_err();
    let found: Vec<_> = problems.iter().map(|problem| (problem.line, problem.key.clone())).collect();
    let names = reserved.into_iter().chain(["statistics.interval.ms", "listen"]);
    let mut expected: Vec<_> =
        names.zip(6..).map(|(name, line)| (line, format!("kafka.properties.\"{name}\""))).collect();
    // It has a wrong value, and librdkafka does not know it.
    expected.extend(expected.last().cloned());
    assert_eq!(found, expected);
    let said = problems.to_string();
    for fix in ["use `brokers` under [kafka]", "use `group` under [[inbox]]", "use `start` under [[inbox]]"] {
        assert!(said.contains(fix), "{said}");
    }
}

#[test]
fn placeholders_are_refused_where_a_question_mark_is_one() {
    let inbox = "[[inbox]]\nconsumer = \"a\"\ntopics = [\"t\"]\nid = \"key\"\n\
                 handler.each = [\"SELECT :payload ? 'a'\"]\n";
    let text = format!("{BASE}{inbox}");
    let problems = parse(&text).unwrap_err();
    assert!(
        problems.to_string().contains(
            ":10: inbox[0].handler.each[0]: `?` is a placeholder that nobody binds; use one of :id"
        ),
        "{problems}"
    );
    let problems = parse(&text.replace("sqlite://x", "mysql://db/x")).unwrap_err();
    assert!(problems.to_string().contains(":10: inbox[0].handler.each[0]: `?`"), "{problems}");
    assert!(parse(&text.replace("sqlite://x", "postgres://db/x")).is_ok());
}

const MONGODB: &str = "[store]\nurl = \"mongodb://db/erp?replicaSet=rs\"\n[kafka]\nbrokers = \"k\"\n[[inbox]]\n\
                       consumer = \"a\"\ntopics = [\"t\"]\nid = \"key\"\n";

#[test]
fn what_is_wrong_with_an_operation_has_its_line() {
    let handler = "[inbox.handler]\neach = [\n  { update = \"stock\", filter = { _id = \":payload.sku\" }, with = [\n    \
                   { \"$set\" = { qty = \":paylod.qty\" } },\n  ], row = 1 },\n  \"DELETE FROM stock\",\n]\n";
    let sweep = "[[sweep]]\nname = \"s\"\nevery = \"5m\"\naggregate = \"t\"\npipeline = [{ \"$match\" = { a = \":id\" } }]\n\
                 key = \"_id\"\nemit.topic = \"t\"\n";
    let said = parse(&format!("{MONGODB}{handler}{sweep}")).unwrap_err().to_string();
    let expected = [
        "oncebox.toml:12: inbox[0].handler.each[0].with[0].\"$set\".qty: there is no parameter `:paylod`; did you mean \
         `:payload`?",
        "oncebox.toml:13: inbox[0].handler.each[0].row: this key is not known; did you mean `rows`?",
        "oncebox.toml:14: inbox[0].handler.each[1]: this is no operation, and the store does not speak SQL; write an operation",
        "oncebox.toml:20: sweep[0].pipeline[0].\"$match\".a: nothing is filled into a pipeline",
    ];
    assert_eq!(said.lines().count(), expected.len(), "{said}");
    for (line, expected) in said.lines().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn the_examples_of_the_guide_are_right() {
    let guide = include_str!("../../../../docs/guides/mongodb.md");
    let examples: Vec<_> =
        guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3);
    let handler = "handler.each = [{ delete = \"t\", filter = {} }]\n";
    for example in examples.into_iter().filter(|example| !example.contains("[store]")) {
        let handler = if example.contains("[inbox.handler]") { "" } else { handler };
        if let Err(problems) = parse(&format!("{MONGODB}{handler}{example}")) {
            panic!("{example}\n{problems}");
        }
    }
}
