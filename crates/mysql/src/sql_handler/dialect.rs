//! What MySQL and MariaDB read in their own way, and what ends a transaction here.

use oncebox_sql::lexer::{Kind, Token};
use oncebox_sql::{Sql, StatementError};

use super::names::{OURS, RESERVED};

/// Statements that begin with these commit by themselves, cannot run in a routine, or change the connection for those who come
/// after.
const REFUSED: [&str; 33] = [
    "ALTER",
    "ANALYZE",
    "BACKUP",
    "CACHE",
    "CHANGE",
    "CHECK",
    "CLONE",
    "CREATE",
    "DEALLOCATE",
    "DELIMITER",
    "DROP",
    "EXECUTE",
    "FLUSH",
    "GRANT",
    "IMPORT",
    "INSTALL",
    "KILL",
    "LOAD",
    "LOCK",
    "OPTIMIZE",
    "PREPARE",
    "PURGE",
    "RENAME",
    "REPAIR",
    "RESET",
    "REVOKE",
    "SHUTDOWN",
    "STOP",
    "TRUNCATE",
    "UNINSTALL",
    "UNLOCK",
    "USE",
    "XA",
];

/// Refuses what would be read otherwise than [`Sql`] has read it, or would end the transaction.
pub(super) fn check(sql: &Sql) -> Result<(), StatementError> {
    let tokens = sql.tokens();
    let visible: Vec<&Token<'_>> = tokens.iter().filter(|token| token.kind != Kind::Blank).collect();
    if REFUSED.contains(&sql.first_keyword()) {
        let offset = visible.first().map_or(0, |token| token.start);
        return Err(StatementError::Refused { keyword: sql.first_keyword().to_owned(), offset });
    }
    for token in &tokens {
        if let Some((message, fix)) = read_otherwise(token) {
            return Err(foreign(token, message, fix));
        }
    }
    for (at, token) in visible.iter().enumerate() {
        if token.kind == Kind::Other && token.text == "?" {
            return Err(StatementError::Positional { text: "?".to_owned(), offset: token.start });
        }
        let ours = |next: &&&Token<'_>| {
            next.text.trim_start_matches(['`', '\'', '"']).to_ascii_lowercase().starts_with(OURS)
        };
        if token.text == "@" && visible.get(at + 1).filter(ours).is_some() {
            let message = format!("variables that begin with @{OURS} are those of oncebox");
            return Err(foreign(token, message, "use another name"));
        }
        let is_arrow = token.text == ">" && at > 0 && visible[at - 1].text == "-";
        if let Some(path) = visible[at + 1..].iter().find(|token| token.text != ">").filter(|_| is_arrow)
            && path.kind == Kind::Quoted
            && !path.text[1..].starts_with('$')
        {
            return Err(foreign(
                path,
                format!("`{}` is no path here", path.text),
                "begin it with $, as in :payload->>'$.qty'",
            ));
        }
    }
    if sql.first_keyword() == "SET" { only_user_variables(&visible) } else { Ok(()) }
}

/// What a token is here, if that is not what it was taken for.
fn read_otherwise(token: &Token<'_>) -> Option<(String, &'static str)> {
    let text = token.text;
    match token.kind {
        Kind::Blank if text.starts_with("/*!") || text.starts_with("/*M!") => Some((
            format!("`{}…` is no comment: the server runs what is in it", &text[..3]),
            "write it outside of a comment",
        )),
        Kind::Blank if text.starts_with("/*") && text[2..].contains("/*") => {
            Some(("comments do not nest here".to_owned(), "write one comment after the other"))
        }
        Kind::Blank
            if text.starts_with("--") && !text[2..].is_empty() && !text[2..].starts_with([' ', '\t']) =>
        {
            Some(("`--` begins a comment only if a blank follows".to_owned(), "write a blank behind it"))
        }
        Kind::Quoted if text.starts_with('$') => {
            Some(("there are no dollar-quoted strings here".to_owned(), "write '…'"))
        }
        Kind::Quoted if !text.starts_with('`') && escapes_its_quote(text) => Some((
            format!("the string {text} ends elsewhere: a backslash escapes the quote"),
            "write '' for a quote, and \\\\ for a backslash",
        )),
        Kind::Other if text == "#" => Some(("`#` begins a comment".to_owned(), "write --")),
        Kind::Word | Kind::Quoted
            if text.trim_start_matches('`').to_ascii_lowercase().starts_with(RESERVED) =>
        {
            Some((format!("names that begin with {RESERVED} stand for the parameters"), "use another name"))
        }
        _ => None,
    }
}

/// Whether a backslash stands before a quote of the string, so that this server goes on reading, or stops earlier.
fn escapes_its_quote(text: &str) -> bool {
    let Some(begin) = text.find(['\'', '"']) else { return false };
    let quote = text[begin..].chars().next().unwrap_or_default();
    let mut escaped = false;
    for c in text[begin + 1..].chars() {
        if escaped && c == quote {
            return true;
        }
        escaped = c == '\\' && !escaped;
    }
    false
}

/// A setting of the session would stay with its connection, and `autocommit` ends the transaction.
fn only_user_variables(tokens: &[&Token<'_>]) -> Result<(), StatementError> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
        let assigns = at == 0 || (depth == 0 && token.text == ",");
        let text = |further: usize| tokens.get(at + further).map_or("", |token| token.text);
        if assigns && (text(1) != "@" || text(2) == "@") {
            return Err(foreign(
                token,
                "SET of anything but @variables is refused, since it would stay with the connection"
                    .to_owned(),
                "remove it",
            ));
        }
    }
    Ok(())
}

fn foreign(token: &Token<'_>, message: String, fix: &str) -> StatementError {
    StatementError::Foreign { message, fix: fix.to_owned(), offset: token.start }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(sql: &str) -> Option<usize> {
        check(&Sql::parse(sql).unwrap()).err().map(|error| error.offset())
    }

    #[test]
    fn what_ends_the_transaction_is_refused() {
        for sql in [
            "CREATE TABLE t (a INT)",
            "create temporary table t (a INT)",
            "TRUNCATE t",
            "LOCK TABLES t WRITE",
            "SET autocommit = 1",
            "SET SESSION sql_mode = ''",
            "SET @@autocommit = 1",
            "SET @a = GREATEST(1, 2), autocommit = 1",
            "USE other",
            "EXECUTE IMMEDIATE 'COMMIT'",
        ] {
            assert!(refusal(sql).is_some(), "{sql}");
        }
        assert_eq!(refusal("SET @a = GREATEST(1, 2), @b := :id"), None);
    }

    #[test]
    fn what_is_read_in_another_way_is_refused() {
        for (sql, at) in [
            (r"SELECT 'it\'s', 'it\'s'", 7),
            (r#"SELECT "a\"b", "\"""#, 7),
            ("SELECT 1 # it", 9),
            ("SELECT 1 --:id", 9),
            ("SELECT 1 /*! , 2 */", 9),
            ("SELECT 1 /*M! , 2 */", 9),
            ("SELECT /* /* */ 1 */ 2", 7),
            ("SELECT $$ ; COMMIT ; $$", 7),
            ("SELECT ?", 7),
            ("SELECT Oncebox_P_Id", 7),
            ("SELECT `oncebox_p_id`", 7),
            ("SELECT :payload ->> 'qty'", 20),
            ("SET @x = 1, @oncebox_message = 7", 12),
            ("SELECT @`oncebox_message`", 7),
        ] {
            assert_eq!(refusal(sql), Some(at), "{sql}");
        }
    }

    #[test]
    fn what_means_the_same_is_let_through() {
        for sql in [
            r"SELECT 'a\\', 'it''s', '\n', '?', '#'",
            "SELECT 1 -- why\n, :payload->>'$.qty', :payload -> '$.a'",
            "SELECT 1 --",
            "SELECT a > 'x', a - 1 > 'y', `#` FROM t /* ? */",
        ] {
            assert_eq!(refusal(sql), None, "{sql}");
        }
    }
}
