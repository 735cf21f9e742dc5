//! What SQLite reads in its own way.

use oncebox_sql::lexer::Kind;
use oncebox_sql::{Sql, StatementError};

/// Refuses `?` and `@name`. PostgreSQL has operators of that look; in SQLite each is a parameter that nobody binds, and would
/// silently be NULL or another parameter's value.
pub(super) fn check(sql: &Sql) -> Result<(), StatementError> {
    let tokens = sql.tokens();
    for (at, token) in tokens.iter().enumerate() {
        let name = tokens.get(at + 1).filter(|next| next.kind == Kind::Word).map(|next| next.text);
        let text = match (token.text, name) {
            ("?", _) => "?".to_owned(),
            ("@", Some(name)) => format!("@{name}"),
            _ => continue,
        };
        return Err(StatementError::Positional { text, offset: token.start });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_of_sqlite_are_found() {
        let find = |sql| check(&Sql::parse(sql).unwrap()).err().map(|error| error.offset());
        assert_eq!(find("UPDATE t SET a = ? WHERE id = :id"), Some(17));
        assert_eq!(find("SELECT @name"), Some(7));
        assert_eq!(find("SELECT '?', \"@x\", a @> b -- ?"), None);
    }
}
