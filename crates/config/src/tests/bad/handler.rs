//! `[inbox.handler]`.

use super::{BASE, Case, parse, problems};

pub(super) const CASES: &[Case] = &[
    // Unknown keys.
    ("each = [", "eech = 1\neach = [", "inbox[0].handler.eech", 15, "did you mean `each`"),
    (", rows = 1", ", row = 1", "inbox[0].handler.each[1].row", 17, "did you mean `rows`"),
    // Wrong types.
    ("\"SELECT :id\"", "1.5", "inbox[0].handler.each[0]", 16, "this is a float; write a string"),
    // Missing.
    ("sql = \"SELECT :key\", ", "", "inbox[0].handler.each[1].sql", 17, "it is missing"),
    // Bad values.
    ("\"SELECT :id\"", "{ delete = \"t\" }", "inbox[0].handler.each[0]", 16, "an operation of MongoDB"),
    ("SELECT :id", "SELECT :idd", "inbox[0].handler.each[0]", 16, "no parameter `:idd`; did you mean `:id`?"),
    ("SELECT :key", "SELECT 'x", "inbox[0].handler.each[1].sql", 17, "is not closed"),
    ("\"SELECT :id\"", "'''\nSELECT\n:foo'''", "inbox[0].handler.each[0]", 18, "no parameter `:foo`"),
    ("SELECT :id", "COMMIT", "inbox[0].handler.each[0]", 16, "inside oncebox's transaction; remove it"),
    ("SELECT :id", "SELECT 1; SELECT 2", "inbox[0].handler.each[0]", 16, "one statement per list entry"),
    ("SELECT :id", "", "inbox[0].handler.each[0]", 16, "the statement is empty"),
    ("rows = 1", "rows = -1", "inbox[0].handler.each[1].rows", 17, "out of range"),
    ("rows = 1", "rows = \"3..1\"", "inbox[0].handler.each[1].rows", 17, "both ends included"),
    (
        "each = [",
        "batch = [\"SELECT id FROM messages\"]\neach = [",
        "inbox[0].handler",
        14,
        "exclude each other",
    ),
    ("each = [", "each = []\nx = [", "inbox[0].handler.each", 15, "the list is empty"),
    (
        "each = [\n  \"SELECT :id\"",
        "batch = [\n  \"SELECT :id\"",
        "inbox[0].handler.batch[0]",
        16,
        "columns of the relation `messages`",
    ),
    ("each = [", "batch = [", "inbox[0].handler.batch[1].rows", 17, "`rows` is about one message"),
    // Variables.
    ("SELECT :id", "SELECT '${X}'", "inbox[0].handler.each[0]", 16, "variable X is not set"),
];

#[test]
fn what_a_dialect_refuses_has_its_line() {
    let text = BASE.replace("SELECT :id", "SELECT payload ? 'a'");
    assert!(parse(&text).is_ok());
    let text = text.replace("postgres://erp@localhost/erp", "sqlite://x");
    let text = text.replace("FROM invoice", "FROM invoice WHERE id = ?");
    let problems = problems(&text);
    let found: Vec<_> = problems.iter().map(|p| (p.line, p.key.as_str())).collect();
    assert_eq!(found, [(16, "inbox[0].handler.each[0]"), (27, "sweep[0].sql")], "{problems}");
    let said = problems.to_string();
    assert!(said.contains("`?` is a placeholder that nobody binds; use one of :id :key"), "{said}");
    assert!(said.contains("nobody binds; a sweep has no message"), "{said}");
}
