//! `[[sweep]]`.

use super::{BASE, Case, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("key = \"id\"", "kye = 1\nkey = \"id\"", "sweep[0].kye", 28, "did you mean `key`"),
    (", key = \"customer\"", ", ky = \"customer\"", "sweep[0].emit.ky", 29, "did you mean `key`"),
    // Wrong types.
    (
        "= { topic = \"invoice.mail\", key = \"customer\" }",
        "= \"t\"",
        "sweep[0].emit",
        29,
        "this is a string; write a table",
    ),
    // Bad values.
    ("[[sweep]]", "[[sweep]]\naggregate = \"t\"", "sweep[0].aggregate", 25, "write `sql` instead"),
    ("[[sweep]]", "[sweep]", "sweep", 24, "this is a table; write [[sweep]], with two brackets"),
    ("name = \"due\"", "", "sweep[0].name", 24, "it is missing"),
    ("\"due\"", "\"a b\"", "sweep[0].name", 25, "not a name for a sweep"),
    ("every = \"5m\"", "", "sweep[0].every", 24, "it is missing"),
    ("\"5m\"", "\"10ms\"", "sweep[0].every", 26, "too short"),
    ("sql = \"SELECT id, customer FROM invoice\"", "", "sweep[0].sql", 24, "it is missing"),
    (
        "SELECT id, customer FROM invoice",
        "DELETE FROM invoice",
        "sweep[0].sql",
        27,
        "not a query; write a SELECT",
    ),
    ("FROM invoice", "FROM invoice WHERE id = :id", "sweep[0].sql", 27, "nobody binds `:id` in a sweep"),
    ("FROM invoice", "FROM invoice WHERE id = :ix", "sweep[0].sql", 27, "a sweep has no message"),
    ("FROM invoice", "FROM invoice WHERE id = $1", "sweep[0].sql", 27, "a sweep has no message"),
    ("FROM invoice", "FROM invoice; SELECT 1", "sweep[0].sql", 27, "keep one query"),
    ("SELECT id, customer FROM invoice", " ", "sweep[0].sql", 27, "the statement is empty; write a query"),
    ("key = \"id\"", "", "sweep[0].key", 24, "it is missing"),
    ("key = \"id\"", "key = \" \"", "sweep[0].key", 28, "this is empty"),
    ("key = \"id\"", "key = \"id\"\nwindow = \"0s\"", "sweep[0].window", 29, "too short"),
    ("key = \"id\"", "key = \"id\"\nlimit = 10001", "sweep[0].limit", 29, "10001 is out of range"),
    ("emit = { topic = \"invoice.mail\", key = \"customer\" }", "", "sweep[0].emit", 24, "it is missing"),
    ("topic = \"invoice.mail\", ", "", "sweep[0].emit.topic", 29, "it is missing"),
    ("invoice.mail", "invoice.*", "sweep[0].emit.topic", 29, "not a name of a topic"),
];

#[test]
fn sweeps_have_names_of_their_own_and_webhooks_topics_of_their_own() {
    let sweep = &BASE[BASE.find("[[sweep]]").unwrap()..];
    let problems = problems(&format!(
        "{BASE}{sweep}[[webhook]]\nurl = \"https://b\"\ntopics = [\"b\", \"invoice.*\"]\n"
    ));
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    assert_eq!(found, [(31, "sweep[1].name"), (38, "webhook[1].topics[1]")], "{problems}");
    assert!(problems.to_string().contains("another sweep is called due too"), "{problems}");
}
