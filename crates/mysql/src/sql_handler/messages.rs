//! The relation `messages` in a statement of `batch`: found where a table is read, and put there as a derived table.
//!
//! A common table expression in front, as the other stores have it, is not for MariaDB: it knows none before INSERT, UPDATE and
//! DELETE. A temporary table is not for MySQL: it can be mentioned only once in a statement.

use std::collections::BTreeSet;

use oncebox_sql::lexer::{Kind, Token, tokens};
use oncebox_sql::{MESSAGES, Param};

/// What cannot be the alias of a table, so a table that is followed by it has none.
const NO_ALIAS: [&str; 29] = [
    "cross",
    "except",
    "fetch",
    "for",
    "force",
    "group",
    "having",
    "ignore",
    "inner",
    "intersect",
    "into",
    "join",
    "left",
    "limit",
    "lock",
    "natural",
    "offset",
    "on",
    "order",
    "partition",
    "procedure",
    "returning",
    "right",
    "set",
    "straight_join",
    "union",
    "use",
    "using",
    "where",
];

/// Words behind which no table is listed any more.
const ENDS_TABLES: [&str; 13] = [
    "except",
    "group",
    "having",
    "intersect",
    "into",
    "limit",
    "order",
    "returning",
    "select",
    "set",
    "union",
    "values",
    "where",
];

/// What is known inside of one pair of parentheses.
#[derive(Debug, Clone, Copy, Default)]
struct Scope {
    /// There is a statement in it, and not the arguments of a function, so that FROM lists tables.
    statement: bool,
    /// It stands where tables are listed.
    lists: bool,
    /// The next name is a table.
    expects: bool,
}

/// The statement with `relation` in the place of `messages`. `None` if it reads no such table.
pub(super) fn with_relation(sql: &str, relation: &str) -> Option<String> {
    let tokens = tokens(sql).ok()?;
    let mut out = String::with_capacity(sql.len() + relation.len() + 16);
    let mut found = false;
    for (token, mention) in tokens.iter().zip(mentions(&tokens)) {
        match mention {
            Mention::Other => out.push_str(token.text),
            Mention::WithAlias => out.push_str(relation),
            Mention::Bare => out.push_str(&format!("{relation} AS {MESSAGES}")),
        }
        found |= mention != Mention::Other;
    }
    found.then_some(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mention {
    Other,
    WithAlias,
    Bare,
}

/// For each token, whether it is the table.
fn mentions(tokens: &[Token<'_>]) -> Vec<Mention> {
    let mut scopes = vec![Scope::default()];
    let mut mentions = Vec::with_capacity(tokens.len());
    let mut before = "";
    for (at, token) in tokens.iter().enumerate() {
        let mut mention = Mention::Other;
        if token.kind != Kind::Blank {
            let scope = scopes.last().copied().unwrap_or_default();
            let next = tokens[at + 1..].iter().find(|token| token.kind != Kind::Blank);
            if scope.expects && names_messages(token) && next.is_none_or(|next| next.text != ".") {
                mention = if has_alias(next) { Mention::WithAlias } else { Mention::Bare };
            }
            step(&mut scopes, token, before, next);
            before = token.text;
        }
        mentions.push(mention);
    }
    mentions
}

fn names_messages(token: &Token<'_>) -> bool {
    token.is_word(MESSAGES)
        || token.text.strip_prefix('`').and_then(|t| t.strip_suffix('`')) == Some(MESSAGES)
}

fn has_alias(next: Option<&Token<'_>>) -> bool {
    next.is_some_and(|next| match next.kind {
        Kind::Word => !NO_ALIAS.contains(&next.text.to_ascii_lowercase().as_str()),
        Kind::Quoted => next.text.starts_with('`'),
        _ => false,
    })
}

/// Goes on behind a token.
fn step(scopes: &mut Vec<Scope>, token: &Token<'_>, before: &str, next: Option<&Token<'_>>) {
    let is_outermost = scopes.len() == 1;
    let Some(scope) = scopes.last_mut() else { return };
    let expected = std::mem::take(&mut scope.expects);
    match token.kind {
        Kind::Open => scopes.push(Scope { statement: false, lists: expected, expects: expected }),
        Kind::Close if !is_outermost => drop(scopes.pop()),
        Kind::Word => {
            let word = token.text.to_ascii_lowercase();
            match word.as_str() {
                "select" | "delete" => *scope = Scope { statement: true, lists: false, expects: false },
                // Not ON DUPLICATE KEY UPDATE, nor FOR UPDATE.
                "update" if !before.eq_ignore_ascii_case("key") && !before.eq_ignore_ascii_case("for") => {
                    *scope = Scope { statement: true, lists: true, expects: true };
                }
                "from" if scope.statement => (scope.lists, scope.expects) = (true, true),
                // DELETE FROM t USING t JOIN …, but not JOIN … USING (column).
                "using" if scope.lists => scope.expects = next.is_none_or(|next| next.kind != Kind::Open),
                "join" | "straight_join" => scope.expects = scope.lists,
                // Between UPDATE and its first table.
                "low_priority" | "ignore" | "quick" | "lateral" => scope.expects = expected,
                word if ENDS_TABLES.contains(&word) => scope.lists = false,
                _ => {}
            }
        }
        Kind::Other if token.text == "," => scope.expects = scope.lists,
        _ => {}
    }
}

/// The columns of `messages` that the statements may use. To leave one out by mistake would put NULL where a value belongs, so
/// everything that may reach columns without their names counts as "all of them".
pub(super) fn columns<'s>(statements: impl Iterator<Item = &'s str> + Clone) -> BTreeSet<Param> {
    let mut used = BTreeSet::from([Param::Id]);
    for sql in statements {
        let lower = sql.to_lowercase();
        let stars = lower.replace("(*)", "");
        let all = stars.contains('*') || lower.contains("natural") || names_columns(sql);
        used.extend(Param::ALL.into_iter().filter(|param| all || lower.contains(param.name())));
    }
    used
}

/// Whether an alias of the relation may have a list of columns: `messages AS m (a, b, …)`.
fn names_columns(sql: &str) -> bool {
    let Ok(tokens) = tokens(sql) else { return true };
    let visible: Vec<_> = tokens.iter().filter(|token| token.kind != Kind::Blank).collect();
    (0..visible.len()).filter(|at| names_messages(visible[*at])).any(|at| {
        let next = if visible.get(at + 1).is_some_and(|token| token.is_word("as")) { at + 2 } else { at + 1 };
        let is_name = visible.get(next).is_some_and(|token| has_alias(Some(token)));
        is_name && visible.get(next + 1).is_some_and(|token| token.kind == Kind::Open)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(sql: &str) -> Option<String> {
        with_relation(sql, "(R)")
    }

    #[test]
    fn the_relation_stands_where_tables_are_read() {
        for (sql, expected) in [
            ("INSERT INTO l SELECT id FROM messages", "INSERT INTO l SELECT id FROM (R) AS messages"),
            ("INSERT INTO l SELECT id FROM Messages AS m", "INSERT INTO l SELECT id FROM (R) AS m"),
            (
                "INSERT INTO l SELECT id FROM `messages` m WHERE 1",
                "INSERT INTO l SELECT id FROM (R) m WHERE 1",
            ),
            (
                "INSERT INTO l SELECT id FROM messages ON DUPLICATE KEY UPDATE a = 1",
                "INSERT INTO l SELECT id FROM (R) AS messages ON DUPLICATE KEY UPDATE a = 1",
            ),
            (
                "UPDATE s JOIN (SELECT a, SUM(b) FROM messages GROUP BY a) d ON d.a = s.a SET s.b = d.b",
                "UPDATE s JOIN (SELECT a, SUM(b) FROM (R) AS messages GROUP BY a) d ON d.a = s.a SET s.b = d.b",
            ),
            ("UPDATE s, messages SET x = messages.id", "UPDATE s, (R) AS messages SET x = messages.id"),
            ("DELETE t FROM t JOIN messages USING (id)", "DELETE t FROM t JOIN (R) AS messages USING (id)"),
            (
                "DELETE FROM t USING t, messages m WHERE t.id = m.id",
                "DELETE FROM t USING t, (R) m WHERE t.id = m.id",
            ),
            (
                "SELECT 1 FROM a JOIN b ON a.x = b.x, (messages m JOIN c) ",
                "SELECT 1 FROM a JOIN b ON a.x = b.x, ((R) m JOIN c) ",
            ),
            (
                "INSERT INTO l WITH x AS (SELECT id FROM messages) SELECT id FROM x WHERE id IN (SELECT id FROM messages)",
                "INSERT INTO l WITH x AS (SELECT id FROM (R) AS messages) SELECT id FROM x \
                 WHERE id IN (SELECT id FROM (R) AS messages)",
            ),
            (
                "SELECT id FROM messages UNION ALL SELECT id FROM messages LIMIT 1",
                "SELECT id FROM (R) AS messages UNION ALL SELECT id FROM (R) AS messages LIMIT 1",
            ),
        ] {
            assert_eq!(replaced(sql).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_column_or_another_table_of_that_name_is_left_alone() {
        for sql in [
            "SELECT a, messages FROM t",
            "SELECT TRIM(a FROM messages) FROM t",
            "SELECT EXTRACT(DAY FROM messages), messages.id FROM t",
            "SELECT 1 FROM other.messages",
            "SELECT 1 FROM messages.t",
            "INSERT INTO messages SELECT 1 FROM t",
            "UPDATE t SET a = 1, messages = 2",
            "SELECT 1 FROM t JOIN u USING (id, messages)",
            "SELECT 1 FROM t GROUP BY a, messages",
            "SELECT 'FROM messages', \"FROM messages\" -- FROM messages",
            "INSERT INTO t (a, messages) VALUES (1, messages) ON DUPLICATE KEY UPDATE a = 1, messages = 2",
            "TABLE messages",
        ] {
            assert_eq!(replaced(sql), None, "{sql}");
        }
    }

    #[test]
    fn columns_that_nobody_names_are_not_sent() {
        let names =
            |sql: &'static str| columns([sql].into_iter()).into_iter().map(Param::name).collect::<Vec<_>>();
        assert_eq!(names("SELECT COUNT(*), payload FROM messages"), ["id", "payload"]);
        assert_eq!(names("SELECT m.`KEY` FROM messages m WHERE 1"), ["id", "key"]);
        for sql in [
            "SELECT * FROM messages",
            "SELECT 1 FROM t NATURAL JOIN messages",
            "SELECT a FROM messages AS m (a)",
        ] {
            assert_eq!(names(sql).len(), 9, "{sql}");
        }
    }
}
