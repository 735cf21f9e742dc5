//! Spots a batch statement that the database accepts but that does less than it seems to.

use crate::lexer::{Kind, Token, is_messages};

/// `UPDATE … FROM messages`, or `UPDATE … JOIN messages`: where several messages match one row, the database applies only one of
/// them and says nothing. Grouping the messages first is the way out.
pub(super) fn update_from_messages(tokens: &[Token<'_>]) -> Option<String> {
    let tokens: Vec<_> = tokens.iter().filter(|token| token.kind != Kind::Blank).collect();
    let distinct = |at: usize| {
        tokens[at].is_word("distinct") && !tokens.get(at + 1).is_some_and(|next| next.is_word("from"))
    };
    let grouped = (0..tokens.len()).any(|at| tokens[at].is_word("group") || distinct(at));
    if grouped {
        return None;
    }
    let reads = |tables: &[&Token<'_>]| tables.iter().any(|token| is_messages(token));
    let update = update(&tokens)?;
    if reads(joined_tables(&tokens[update..])) {
        return Some(once("JOIN"));
    }
    let source = from_clause(&tokens, update)?;
    // A common table expression may stand between the messages and the update.
    let through_with = tokens.first().is_some_and(|token| token.is_word("with"));
    (through_with || reads(source)).then(|| once("FROM"))
}

fn once(clause: &str) -> String {
    format!(
        "UPDATE … {clause} messages changes a row once even when several messages of a batch match it, so all but one of \
         them would have no effect; join a subquery that adds them up: {clause} (SELECT …, sum(…) FROM messages GROUP BY …)"
    )
}

/// Where the first `UPDATE` stands. `DO UPDATE` and `FOR [NO KEY] UPDATE` have no tables of their own.
fn update(tokens: &[&Token<'_>]) -> Option<usize> {
    let is_update = |at: &usize| {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        tokens[*at].is_word("update")
            && !before.is_some_and(|t| t.is_word("do") || t.is_word("for") || t.is_word("key"))
    };
    (0..tokens.len()).find(is_update)
}

/// The tables between `UPDATE` and its `SET`: several, in MySQL.
fn joined_tables<'t, 's>(tokens: &'t [&'s Token<'s>]) -> &'t [&'s Token<'s>] {
    let set = tokens.iter().position(|token| token.is_word("set")).unwrap_or(tokens.len());
    &tokens[..set]
}

/// The tokens of the `FROM` clause of the first `UPDATE`, without those of its `WHERE`.
fn from_clause<'t, 's>(tokens: &'t [&'s Token<'s>], update: usize) -> Option<&'t [&'s Token<'s>]> {
    let mut depth = 0_usize;
    let mut from = None;
    for at in update..tokens.len() {
        match tokens[at].kind {
            Kind::Open => depth += 1,
            Kind::Close if depth == 0 => return from.map(|from| &tokens[from..at]),
            Kind::Close => depth -= 1,
            Kind::Word if depth == 0 => {
                let token = tokens[at];
                if from.is_none() && token.is_word("from") && !tokens[at - 1].is_word("distinct") {
                    from = Some(at);
                } else if token.is_word("where") || token.is_word("returning") {
                    return from.map(|from| &tokens[from..at]);
                }
            }
            _ => {}
        }
    }
    from.map(|from| &tokens[from..])
}
