//! Calls of our functions in a handler's statements, wherever the handler has moved.
//!
//! A handler may set its search path to the schema of a tenant, where `oncebox_emit` is not. So its calls get our schema in
//! front. Only calls by the bare name: who writes a schema means that one, and strings and comments are left alone.

use crate::quote::identifier;

const FUNCTIONS: [&str; 3] = ["oncebox_emit", "oncebox_emit_bytes", "oncebox_claim"];

/// The statement with our functions called in this schema.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    let prefix = format!("{}.", identifier(schema));
    let mut qualified = String::with_capacity(sql.len());
    let mut before = None;
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let len = token_len(rest, first);
        let (token, after) = rest.split_at(len);
        let called = FUNCTIONS.iter().any(|name| token.eq_ignore_ascii_case(name));
        if called && before != Some('.') && after.trim_start().starts_with('(') {
            qualified.push_str(&prefix);
        }
        qualified.push_str(token);
        if !first.is_whitespace() {
            before = token.chars().next_back();
        }
        rest = after;
    }
    qualified
}

/// The length of a string, a quoted name, a comment, a name, or a single sign. What has no end goes to the end.
fn token_len(rest: &str, first: char) -> usize {
    let in_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
    match first {
        '\'' => quoted(rest, '\'', false),
        '"' => quoted(rest, '"', false),
        'e' | 'E' if rest[1..].starts_with('\'') => 1 + quoted(&rest[1..], '\'', true),
        '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
        '/' if rest.starts_with("/*") => comment(rest),
        '$' => dollar_quoted(rest).unwrap_or(1),
        c if in_name(c) => rest.find(|c| !in_name(c)).unwrap_or(rest.len()),
        c => c.len_utf8(),
    }
}

/// A doubled quote stands for itself: what follows it is read as a string of its own.
fn quoted(rest: &str, quote: char, escapes: bool) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = escapes && c == '\\' && !escaped;
    }
    rest.len()
}

/// Comments nest in PostgreSQL.
fn comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn dollar_quoted(rest: &str) -> Option<usize> {
    let tag_end = rest[1..].find('$')? + 2;
    let tag = &rest[..tag_end];
    let inner = &tag[1..tag_end - 1];
    if inner.starts_with(|c: char| c.is_ascii_digit())
        || !inner.chars().all(|c| c.is_alphanumeric() || c == '_')
    {
        return None;
    }
    Some(rest[tag_end..].find(tag).map_or(rest.len(), |end| tag_end + end + tag_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_calls_get_the_schema() {
        for (sql, expected) in [
            ("SELECT oncebox_emit('t', $2, $3)", "SELECT \"erp\".oncebox_emit('t', $2, $3)"),
            ("SELECT Oncebox_Emit_Bytes (1)", "SELECT \"erp\".Oncebox_Emit_Bytes (1)"),
            (
                "SELECT 1 /* a */ WHERE oncebox_claim('c')",
                "SELECT 1 /* a */ WHERE \"erp\".oncebox_claim('c')",
            ),
            ("SELECT x.e'", "SELECT x.e'"),
            ("SELECT 'it''s', oncebox_emit()", "SELECT 'it''s', \"erp\".oncebox_emit()"),
            (r"SELECT E'\'', oncebox_emit()", "SELECT E'\\'', \"erp\".oncebox_emit()"),
        ] {
            assert_eq!(in_schema(sql, "erp"), expected);
        }
    }

    #[test]
    fn nothing_else_changes() {
        for sql in [
            "SELECT other.oncebox_emit()",
            "SELECT other . oncebox_emit()",
            "SELECT 'oncebox_emit()'",
            "SELECT E'\\'oncebox_emit()'",
            "SELECT \"oncebox_emit\"()",
            "SELECT $$oncebox_emit()$$, $a$ oncebox_emit() $$ $a$",
            "SELECT 1 -- oncebox_emit()\n",
            "/* /* */ oncebox_emit() */ SELECT $1",
            "SELECT my_oncebox_emit(), oncebox_emitted(), oncebox_emit$(1)",
            "SELECT oncebox_emit FROM t",
            "UPDATE t SET oncebox_emit = (1)",
            "SELECT 'ünï', \"ü\", ü",
        ] {
            assert_eq!(in_schema(sql, "erp"), sql);
        }
    }

    #[test]
    fn a_schema_may_have_any_name() {
        assert_eq!(in_schema("SELECT oncebox_emit()", "a\"b"), "SELECT \"a\"\"b\".oncebox_emit()");
    }
}
