//! The file as a whole: sections that are not known, and what is no TOML.

use super::{BASE, Case, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("[http]", "[htttp]", "htttp", 7, "did you mean `http`? Known here: store, kafka,"),
    ("[outbox]", "[handler]\n[outbox]", "handler", 19, "this key is not known; remove it; known here: store"),
    // Syntax.
    ("retention = \"7d\"", "retention = 7d", "", 13, "not valid TOML"),
    ("retention = \"7d\"", "retention = \"7d", "", 13, "not valid TOML"),
    ("[outbox]", "[store]", "", 19, "not valid TOML"),
    ("retention = \"7d\"", "consumer = \"x\"", "", 13, "keep one of them"),
];

#[test]
fn an_empty_file_lacks_a_store() {
    assert_eq!(
        problems("").render("x.toml"),
        "x.toml:1: store: it is missing; add [store] with the `url` of the database"
    );
}

#[test]
fn six_problems_are_six_problems() {
    let text = r#"[store]
url = "oracle://erp:hunter2@db/erp"
[http]
listen = "0.0.0.0:80"
[[inbox]]
consumer = "stock"
topics = ["t"]
retension = "7d"
handler = { each = ["SELECT :foo"] }
"#;
    let problems = problems(text);
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    assert_eq!(
        found,
        [
            (2, "store.url"),
            (4, "http.listen"),
            (5, "inbox[0].id"),
            (7, "inbox[0].topics"),
            (8, "inbox[0].retension"),
            (9, "inbox[0].handler.each[0]"),
        ]
    );
    let rendered = problems.render("my.toml");
    assert_eq!(rendered.lines().count(), 6);
    let no_brokers =
        "my.toml:7: inbox[0].topics: an inbox that reads topics needs brokers; add [kafka] with `brokers`";
    assert!(rendered.contains(no_brokers), "{rendered}");
    assert!(!rendered.contains("hunter2"));
}

#[test]
fn a_single_bracket_is_explained() {
    let text = BASE.replace("[[inbox]]", "[inbox]");
    assert!(
        problems(&text).to_string().contains("inbox: this is a table; write [[inbox]], with two brackets")
    );
}
