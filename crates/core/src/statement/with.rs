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

/// Behind white space and comments; block comments nest. The statement was read before, so they all have an end.
fn skip_blank(sql: &str, mut at: usize) -> usize {
    loop {
        let rest = &sql[at..];
        let trimmed = rest.trim_start();
        at += rest.len() - trimmed.len();
        at += if trimmed.starts_with("--") {
            trimmed.find(['\n', '\r']).unwrap_or(trimmed.len())
        } else if trimmed.starts_with("/*") {
            block_comment_len(trimmed)
        } else {
            return at;
        };
    }
}

fn block_comment_len(sql: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    let bytes = sql.as_bytes();
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") if depth == 1 => return at + 2,
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    sql.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_keeps_its_own_with() {
        assert_eq!(prepend("m AS ()", "UPDATE x"), "WITH m AS () UPDATE x");
        assert_eq!(prepend("m AS ()", "with y AS (z) SELECT"), "WITH m AS (), y AS (z) SELECT");
        assert_eq!(
            prepend("m AS ()", " -- a\n/* b /* c */ */ With\n Recursive y AS (z) SELECT"),
            "WITH RECURSIVE m AS (), y AS (z) SELECT"
        );
        assert_eq!(
            prepend("m AS ()", "WITH recursive_y AS (z) SELECT"),
            "WITH m AS (), recursive_y AS (z) SELECT"
        );
        assert_eq!(prepend("m AS ()", "/* with */ SELECT 1"), "WITH m AS () /* with */ SELECT 1");
    }
}
