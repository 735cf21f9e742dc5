//! Spots a batch statement that the database accepts but that does less than it seems to.

use crate::lexer::{Kind, Token, is_messages};

/// `UPDATE … FROM messages`: where several messages match one row, the database applies only one of them and says
/// nothing. Grouping the messages first is the way out.
pub(super) fn update_from_messages(tokens: &[Token<'_>]) -> Option<String> {
    let tokens: Vec<_> = tokens.iter().filter(|token| token.kind != Kind::Blank).collect();
    let distinct = |at: usize| {
        tokens[at].is_word("distinct") && !tokens.get(at + 1).is_some_and(|next| next.is_word("from"))
    };
    let grouped = (0..tokens.len()).any(|at| tokens[at].is_word("group") || distinct(at));
    if grouped {
        return None;
    }
    let source = from_clause(&tokens)?;
    // A common table expression may stand between the messages and the update.
    let through_with = tokens.first().is_some_and(|token| token.is_word("with"));
    (through_with || source.iter().any(|token| is_messages(token))).then(|| {
        "UPDATE … FROM messages changes a row once even when several messages of a batch match it, so all but one of \
         them would have no effect; join a subquery that adds them up: FROM (SELECT …, sum(…) FROM messages GROUP BY …)"
            .to_owned()
    })
}

/// The tokens of the `FROM` clause of the first `UPDATE`, without those of its `WHERE`.
fn from_clause<'t, 's>(tokens: &'t [&'s Token<'s>]) -> Option<&'t [&'s Token<'s>]> {
    // `DO UPDATE` and `FOR [NO KEY] UPDATE` have no FROM of their own.
    let is_update = |at: usize| {
        let before = at.checked_sub(1).map(|before| tokens[before]);
        tokens[at].is_word("update")
            && !before.is_some_and(|t| t.is_word("do") || t.is_word("for") || t.is_word("key"))
    };
    let update = (0..tokens.len()).find(|at| is_update(*at))?;
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
