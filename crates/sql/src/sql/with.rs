//! Puts a common table expression in front of a statement that may have a WITH of its own.

use super::Sql;
use crate::lexer::Kind;

/// The statement with `expression` as its first common table expression.
pub(super) fn prepend(expression: &str, sql: &Sql) -> String {
    let (source, tokens) = (sql.source(), sql.tokens());
    let mut words = tokens.iter().filter(|token| token.kind != Kind::Blank);
    let Some(with) = words.next().filter(|first| first.is_word("with")) else {
        return format!("WITH {expression} {source}");
    };
    match words.next().filter(|second| second.is_word("recursive")) {
        Some(recursive) => format!("WITH RECURSIVE {expression},{}", &source[recursive.end()..]),
        None => format!("WITH {expression},{}", &source[with.end()..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_keeps_its_own_with() {
        let with = |sql: &str| Sql::parse(sql).unwrap().with("m AS ()");
        assert_eq!(with("UPDATE x"), "WITH m AS () UPDATE x");
        assert_eq!(with("with y AS (z) SELECT"), "WITH m AS (), y AS (z) SELECT");
        assert_eq!(
            with(" -- a\n/* b /* c */ */ With\n Recursive y AS (z) SELECT"),
            "WITH RECURSIVE m AS (), y AS (z) SELECT"
        );
        assert_eq!(with("WITH recursive_y AS (z) SELECT"), "WITH m AS (), recursive_y AS (z) SELECT");
        assert_eq!(with("/* with */ SELECT 1"), "WITH m AS () /* with */ SELECT 1");
    }
}
