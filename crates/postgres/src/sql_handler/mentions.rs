//! Which columns of `messages` a batch statement can see.
//!
//! A column that no statement can see need not be sent, which makes a batch about a sixth faster. To leave one out by
//! mistake would put NULL where a value belongs, so everything that is not plainly harmless counts as "all of them".

use std::collections::BTreeSet;

use oncebox_sql::{MESSAGES, Param};

/// What cannot be the alias of a table, so a table that is followed by it has none.
const NO_ALIAS: [&str; 22] = [
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "fetch",
    "for",
    "window",
    "union",
    "intersect",
    "except",
    "join",
    "inner",
    "left",
    "right",
    "full",
    "cross",
    "on",
    "using",
    "returning",
    "when",
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A name or a keyword, in lower case unless it was quoted.
    Name(String),
    Text,
    Sign(char),
}

/// The columns that a statement may use.
pub(super) fn columns(sql: &str) -> BTreeSet<Param> {
    let all = || Param::ALL.into_iter().collect();
    let Some(tokens) = tokens(sql) else { return all() };
    if !only_by_name(&tokens) {
        return all();
    }
    Param::ALL.into_iter().filter(|param| tokens.iter().any(|token| is(Some(token), param.name()))).collect()
}

/// Whether columns of `messages` can only be reached by their names: no `*`, no row as a whole, no other names for them.
fn only_by_name(tokens: &[Token]) -> bool {
    let sign = |at: usize, sign| tokens.get(at) == Some(&Token::Sign(sign));
    let mut aliases = BTreeSet::new();
    let mut declared = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('*') if !(at > 0 && sign(at - 1, '(') && sign(at + 1, ')')) => return false,
            Token::Name(name) if name == "natural" || name == "table" => return false,
            Token::Name(name) if name == MESSAGES && !sign(at + 1, '.') => {
                if !is_read_from(tokens, at) {
                    return false;
                }
                let next = if is(tokens.get(at + 1), "as") { at + 2 } else { at + 1 };
                if let Some(Token::Name(alias)) = tokens.get(next)
                    && !NO_ALIAS.contains(&alias.as_str())
                {
                    if sign(next + 1, '(') {
                        return false;
                    }
                    aliases.insert(alias);
                    declared.insert(next);
                }
            }
            _ => {}
        }
    }
    let whole_row = |(at, token): (usize, &Token)| {
        let Token::Name(name) = token else { return false };
        aliases.contains(name) && !declared.contains(&at) && !sign(at + 1, '.')
    };
    !tokens.iter().enumerate().any(whole_row)
}

/// Whether the relation at this place is what a FROM, JOIN or USING reads. A comma before it may separate relations, but
/// columns as well.
fn is_read_from(tokens: &[Token], at: usize) -> bool {
    let before = |steps: usize| at.checked_sub(steps).and_then(|at| tokens.get(at));
    let clause = ["from", "join", "using"].iter().any(|clause| is(before(1), clause));
    clause && !is(before(2), "distinct")
}

fn is(token: Option<&Token>, name: &str) -> bool {
    matches!(token, Some(Token::Name(found)) if found == name)
}

/// `None` if there is more in it than names, signs and plain strings.
fn tokens(sql: &str) -> Option<Vec<Token>> {
    if sql.contains(['$', '\\']) || sql.contains("--") || sql.contains("/*") {
        return None;
    }
    let mut tokens = Vec::new();
    let mut rest = sql.trim_start();
    while let Some(first) = rest.chars().next() {
        let in_name = |c: char| c.is_alphanumeric() || c == '_';
        let (token, len) = match first {
            '\'' => (Token::Text, quoted_len(rest, '\'')?),
            '"' => {
                let len = quoted_len(rest, '"')?;
                (Token::Name(rest[1..len - 1].replace("\"\"", "\"")), len)
            }
            c if in_name(c) => {
                let len = rest.find(|c| !in_name(c)).unwrap_or(rest.len());
                (Token::Name(rest[..len].to_lowercase()), len)
            }
            c => (Token::Sign(c), c.len_utf8()),
        };
        tokens.push(token);
        rest = rest[len..].trim_start();
    }
    Some(tokens)
}

/// The length of what stands between two quotes, with them; a doubled quote stands for itself.
fn quoted_len(text: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        at += text[at..].find(quote)? + 1;
        if !text[at..].starts_with(quote) {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sql: &str) -> Vec<&'static str> {
        columns(sql).into_iter().map(Param::name).collect()
    }

    #[test]
    fn named_columns_are_enough() {
        let update = "UPDATE stock s SET on_hand = on_hand - m.qty FROM (SELECT payload->>'sku' AS sku, \
             sum((payload->>'qty')::int) AS qty FROM messages GROUP BY 1) m WHERE s.sku = m.sku";
        assert_eq!(names(update), ["payload"]);
        assert_eq!(names("INSERT INTO l SELECT m.id, M.\"offset\" FROM messages AS m"), ["id", "offset"]);
        assert_eq!(names("INSERT INTO c SELECT count(*) FROM messages"), [""; 0]);
        assert_eq!(names("DELETE FROM t USING messages WHERE t.k = messages.key"), ["key"]);
        assert_eq!(names("INSERT INTO l SELECT 'it''s the \"key\"', Tenant FROM messages"), ["tenant"]);
    }

    #[test]
    fn whatever_may_see_a_whole_row_gets_it() {
        for sql in [
            "INSERT INTO l SELECT * FROM messages",
            "INSERT INTO l SELECT m.* FROM messages m",
            "INSERT INTO l SELECT to_jsonb(m) FROM messages m",
            "INSERT INTO l SELECT to_jsonb(messages) FROM messages",
            "INSERT INTO l SELECT id, messages FROM messages",
            "INSERT INTO l SELECT (m).id FROM messages m",
            "INSERT INTO l SELECT b FROM messages AS m(a, b)",
            "INSERT INTO l SELECT a FROM stock NATURAL JOIN messages",
            "INSERT INTO l TABLE messages",
            "INSERT INTO l SELECT x FROM stock s, messages m",
            "INSERT INTO l SELECT 1 FROM messages m WHERE m IS DISTINCT FROM NULL",
            "INSERT INTO l SELECT 1 FROM stock, messages WHERE stock IS DISTINCT FROM messages",
            "INSERT INTO l SELECT id /* m */ FROM messages m",
            "INSERT INTO l SELECT $$ x $$, id FROM messages",
            "INSERT INTO l SELECT E'\\'', id FROM messages",
            "WITH m AS (SELECT id FROM messages) INSERT INTO l SELECT row(x) FROM messages x",
        ] {
            assert_eq!(columns(sql).len(), 9, "{sql}");
        }
    }
}
