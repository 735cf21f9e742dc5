//! Whether the role may do what a handler's statements do.

use oncebox_core::store::StoreResult;
use sqlx::Row;

use crate::classify::Context;
use crate::quote::identifier;
use crate::store::PgStore;
use crate::txn::PgTxn;

/// The USING clause that gives NULL for every parameter of these types.
pub(super) fn nulls(types: &str) -> String {
    let nulls: Vec<_> = types.split(',').map(|kind| format!("NULL::{kind}")).collect();
    format!(" USING {}", nulls.join(", "))
}

/// Whether a statement may change the search path or the role of those behind it.
pub(super) fn moves(sql: &str) -> bool {
    let words = sql.to_ascii_lowercase();
    let words: Vec<&str> = words.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '\'')).collect();
    let set = |at: usize| {
        let before = words[..at].iter().rev().filter(|word| !word.is_empty());
        before.take(2).any(|word| matches!(*word, "set" | "reset"))
    };
    words.iter().enumerate().any(|(at, word)| match word.trim_matches('\'') {
        "search_path" => true,
        "role" | "authorization" => word.contains('\'') || set(at),
        _ => false,
    })
}

pub(super) async fn role(store: &PgStore, txn: &mut PgTxn) -> StoreResult<String> {
    let doing = "checking a handler's statements";
    let row = store.query("SELECT current_user::text").fetch_one(&mut **txn).await.context(doing)?;
    row.try_get(0).context(doing)
}

/// What to grant, as far as the first keyword says it.
pub(super) fn advice(first_keyword: &str, role: &str) -> String {
    let rights = match first_keyword {
        "INSERT" => "INSERT, SELECT",
        "UPDATE" => "UPDATE, SELECT",
        "DELETE" => "DELETE, SELECT",
        "SELECT" | "TABLE" | "VALUES" => "SELECT",
        _ => "SELECT, INSERT, UPDATE, DELETE",
    };
    format!("GRANT {rights} ON … TO {}", identifier(role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_move_are_told_from_those_that_do_not() {
        for sql in [
            "SELECT set_config('search_path', $9, true)",
            "SET LOCAL search_path = acme",
            "SELECT set_config('role', $9, true)",
            "SET LOCAL ROLE acme",
            "SET ROLE acme",
            "RESET ROLE",
            "SET SESSION AUTHORIZATION acme",
        ] {
            assert!(moves(sql), "{sql}");
        }
        for sql in [
            "UPDATE users SET name = $1 WHERE role = $2",
            "SELECT role FROM users",
            "INSERT INTO roles (role)",
        ] {
            assert!(!moves(sql), "{sql}");
        }
    }

    #[test]
    fn every_parameter_gets_its_null() {
        assert_eq!(nulls("text,jsonb[]"), " USING NULL::text, NULL::jsonb[]");
    }
}
