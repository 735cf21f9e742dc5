//! `[[webhook]]`.

use super::{BASE, Case, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("url = \"https", "urk = 1\nurl = \"https", "webhook[0].urk", 23, "did you mean `url`"),
    // Bad values.
    (
        "relay = true",
        "relay = false",
        "webhook[0]",
        21,
        "from the relay; write `relay = true` under [outbox]",
    ),
    ("[[webhook]]", "[webhook]", "webhook", 21, "this is a table; write [[webhook]], with two brackets"),
    ("topics = [\"invoice.*\"]", "", "webhook[0].topics", 21, "it is missing"),
    ("[\"invoice.*\"]", "[]", "webhook[0].topics", 22, "the list is empty"),
    ("[\"invoice.*\"]", "[\"a b\"]", "webhook[0].topics[0]", 22, "neither a topic nor a pattern"),
    ("[\"invoice.*\"]", "[\"a\", \"a\"]", "webhook[0].topics[1]", 22, "takes these events already"),
    ("url = \"https://host/path\"", "", "webhook[0].url", 21, "it is missing"),
    (
        "https://host/path",
        "host/path",
        "webhook[0].url",
        23,
        "not a URL of a web server; write http://HOST/PATH",
    ),
    ("https://host/path", "ftp://host/path", "webhook[0].url", 23, "not a URL of a web server"),
    ("https://host/path", "https://", "webhook[0].url", 23, "not a URL of a web server"),
    ("url = \"https", "secret = \"\"\nurl = \"https", "webhook[0].secret", 23, "this is empty"),
    ("url = \"https", "timeout = \"1ms\"\nurl = \"https", "webhook[0].timeout", 23, "too short"),
    (
        "url = \"https",
        "retry = { attempts = 0 }\nurl = \"https",
        "webhook[0].retry.attempts",
        23,
        "0 is out of range",
    ),
    ("url = \"https", "at_once = 0\nurl = \"https", "webhook[0].at_once", 23, "0 is out of range"),
    (
        "url = \"https",
        "headers = { \"a b\" = \"a\" }\nurl = \"https",
        "webhook[0].headers.\"a b\"",
        23,
        "not a name of a header",
    ),
    (
        "url = \"https",
        "headers = { a = \"b\\n\" }\nurl = \"https",
        "webhook[0].headers.\"a\"",
        23,
        "not a value of a header",
    ),
    (
        "url = \"https",
        "park_on = 400\nurl = \"https",
        "webhook[0].park_on",
        23,
        "write an array of HTTP statuses",
    ),
    ("url = \"https", "park_on = [200]\nurl = \"https", "webhook[0].park_on[0]", 23, "200 is out of range"),
    (
        "url = \"https",
        "park_on = [400, 400]\nurl = \"https",
        "webhook[0].park_on[1]",
        23,
        "400 stands there twice",
    ),
    (
        "url = \"https",
        "on_failure = \"halt\"\nurl = \"https",
        "webhook[0].on_failure",
        23,
        "is not one of park, park-key",
    ),
    (
        "url = \"https",
        "copy = true\nurl = \"https",
        "webhook[0].name",
        21,
        "needs a name; write `name = \"crm\"`",
    ),
    ("url = \"https", "name = \"main\"\nurl = \"https", "webhook[0].name", 23, "not a name for a webhook"),
    (
        "url = \"https",
        "copy = 1\nurl = \"https",
        "webhook[0].copy",
        23,
        "this is an integer; write true or false",
    ),
];

#[test]
fn webhooks_have_names_of_their_own() {
    let copy = "[[webhook]]\nname = \"crm\"\ncopy = true\nurl = \"https://b\"\ntopics = [\"invoice.*\", \"b\", \"b\"]\n";
    let problems = problems(&format!("{BASE}{copy}{copy}"));
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    let expected = [(34, "webhook[1].topics[2]"), (36, "webhook[2].name"), (39, "webhook[2].topics[2]")];
    assert_eq!(found, expected, "{problems}");
    assert!(problems.to_string().contains("another webhook is called crm too; give each a name of its own"));
}
