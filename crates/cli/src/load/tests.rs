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
    let expected: Vec<_> =
        names.zip(6..).map(|(name, line)| (line, format!("kafka.properties.\"{name}\""))).collect();
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
