//! Statements with something else in the place of their parameters.

use oncebox_sql::lexer::{Kind, Token};
use oncebox_sql::{Param, Sql};

/// The statement with each parameter replaced by what `placeholder` gives for it, and with `->` and `->>` written as calls:
/// MariaDB knows only those, and MySQL has the operators for columns alone.
pub(super) fn render(sql: &Sql, placeholder: impl Fn(Param) -> String) -> String {
    let tokens = sql.tokens();
    let mut out = String::with_capacity(sql.source().len() + 16);
    // Where in `out` the value begins that an arrow would look into.
    let mut operand: Option<usize> = None;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        if let (Some(begin), Some(arrow)) = (operand, arrow(&tokens[at..])) {
            let value = out.split_off(begin);
            let value = value.trim_end();
            out.push_str(&match arrow.unquotes {
                true => format!("JSON_UNQUOTE(JSON_EXTRACT({value}, {}))", arrow.path),
                false => format!("JSON_EXTRACT({value}, {})", arrow.path),
            });
            at += arrow.tokens;
            continue;
        }
        let follows_dot = at > 0 && tokens[at - 1].text == ".";
        operand = match token.kind {
            Kind::Param => Some(out.len()),
            Kind::Word => operand.filter(|_| follows_dot).or(Some(out.len())),
            Kind::Quoted if token.text.starts_with('`') => {
                operand.filter(|_| follows_dot).or(Some(out.len()))
            }
            Kind::Blank => operand,
            _ if token.text == "." => operand,
            _ => None,
        };
        match (token.kind, Param::from_name(token.text.trim_start_matches(':'))) {
            (Kind::Param, Some(param)) => {
                // `IN:id` must not become one name.
                if out.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                    out.push(' ');
                    operand = Some(out.len());
                }
                out.push_str(&placeholder(param));
            }
            _ => out.push_str(token.text),
        }
        at += 1;
    }
    out
}

struct Arrow<'s> {
    unquotes: bool,
    path: &'s str,
    tokens: usize,
}

/// The arrow and the path that these tokens begin with.
fn arrow<'s>(tokens: &[Token<'s>]) -> Option<Arrow<'s>> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token: &Token<'_>| token.text == text);
    if !(is(0, "-") && is(1, ">")) {
        return None;
    }
    let unquotes = is(2, ">");
    let behind = if unquotes { 3 } else { 2 };
    let path = (behind..tokens.len()).find(|at| tokens[*at].kind != Kind::Blank)?;
    let is_path = tokens[path].kind == Kind::Quoted;
    is_path.then(|| Arrow { unquotes, path: tokens[path].text, tokens: path + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(sql: &str) -> String {
        render(&Sql::parse(sql).unwrap(), |param| format!("<{}>", param.name()))
    }

    #[test]
    fn parameters_are_replaced_and_nothing_else() {
        assert_eq!(
            rendered("SELECT ':id', :id, x IN(:key) -- :id"),
            "SELECT ':id', <id>, x IN(<key>) -- :id"
        );
        assert_eq!(rendered("SELECT 1 IN:id"), "SELECT 1 IN <id>");
        assert_eq!(rendered("SELECT a - 1 > 'x', a->b"), "SELECT a - 1 > 'x', a->b");
    }

    #[test]
    fn arrows_are_calls() {
        for (sql, expected) in [
            ("SELECT :payload->>'$.a' + 1", "SELECT JSON_UNQUOTE(JSON_EXTRACT(<payload>, '$.a')) + 1"),
            ("SELECT :payload -> '$.a'", "SELECT JSON_EXTRACT(<payload>, '$.a')"),
            ("SELECT m.`doc`->>'$.a'", "SELECT JSON_UNQUOTE(JSON_EXTRACT(m.`doc`, '$.a'))"),
            ("SELECT IN:payload->'$.a'", "SELECT IN JSON_EXTRACT(<payload>, '$.a')"),
            ("UPDATE t SET a = b.doc->'$.x'", "UPDATE t SET a = JSON_EXTRACT(b.doc, '$.x')"),
        ] {
            assert_eq!(rendered(sql), expected);
        }
    }
}
