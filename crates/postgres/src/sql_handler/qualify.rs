//! Calls of our functions in a handler's statements, wherever the handler has moved.
//!
//! A handler may set its search path to the schema of a tenant, where `oncebox_emit` is not. So its calls get our schema in
//! front. Only calls by the bare name: who writes a schema means that one, and strings and comments are left alone.

use oncebox_sql::lexer::{Kind, tokens};

use crate::quote::identifier;

const FUNCTIONS: [&str; 3] = ["oncebox_emit", "oncebox_emit_bytes", "oncebox_claim"];

/// The statement with our functions called in this schema.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    // A statement that cannot be read is for the server to refuse.
    let Ok(tokens) = tokens(sql) else { return sql.to_owned() };
    let prefix = format!("{}.", identifier(schema));
    let mut qualified = String::with_capacity(sql.len());
    let mut before = "";
    for (at, token) in tokens.iter().enumerate() {
        let is_ours = token.kind == Kind::Word && FUNCTIONS.iter().any(|name| token.is_word(name));
        let next = tokens[at + 1..].iter().find(|token| token.kind != Kind::Blank);
        let is_called = next.is_some_and(|next| next.kind == Kind::Open);
        if is_ours && is_called && before != "." {
            qualified.push_str(&prefix);
        }
        qualified.push_str(token.text);
        if token.kind != Kind::Blank {
            before = token.text;
        }
    }
    qualified
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
