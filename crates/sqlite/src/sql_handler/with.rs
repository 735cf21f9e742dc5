//! Puts a common table expression in front of a statement that may have a WITH of its own.

/// The statement with `expression` as its first common table expression.
pub(super) fn prepend(expression: &str, statement: &str) -> String {
    let start = skip_blank(statement, 0);
    let Some(after_with) = skip_word(statement, start, "with") else {
        return format!("WITH {expression} {statement}");
    };
    let next = skip_blank(statement, after_with);
    match skip_word(statement, next, "recursive") {
        Some(after_recursive) => format!("WITH RECURSIVE {expression},{}", &statement[after_recursive..]),
        None => format!("WITH {expression},{}", &statement[after_with..]),
    }
}

/// Behind the keyword, if it stands there.
fn skip_word(sql: &str, at: usize, keyword: &str) -> Option<usize> {
    let end = at + keyword.len();
    let found = sql.get(at..end)?.eq_ignore_ascii_case(keyword);
    let goes_on = sql[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
    (found && !goes_on).then_some(end)
}

/// Behind white space and comments, which do not nest in SQLite.
fn skip_blank(sql: &str, mut at: usize) -> usize {
    loop {
        let rest = &sql[at..];
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        at += if trimmed.starts_with("--") {
            trimmed.find('\n').unwrap_or(trimmed.len())
        } else if trimmed.starts_with("/*") {
            trimmed.find("*/").map_or(trimmed.len(), |end| end + 2)
        } else {
            return at;
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_keeps_its_own_with() {
        for (statement, expected) in [
            ("UPDATE x", "WITH m AS () UPDATE x"),
            ("with y AS (z) SELECT", "WITH m AS (), y AS (z) SELECT"),
            ("-- a\n/* b */ With\n Recursive y AS (z) SELECT", "WITH RECURSIVE m AS (), y AS (z) SELECT"),
            ("WITH recursive_y AS (z) SELECT", "WITH m AS (), recursive_y AS (z) SELECT"),
            ("/* with */ SELECT 1", "WITH m AS () /* with */ SELECT 1"),
            ("-- with", "WITH m AS () -- with"),
        ] {
            assert_eq!(prepend("m AS ()", statement), expected);
        }
    }
}
