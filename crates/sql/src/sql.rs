//! A statement with `:name` parameters, checked and ready to be rewritten for a driver.

mod advice;
#[cfg(test)]
mod tests;
mod with;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::lexer::{self, Kind, Token};
use crate::{Param, StatementError};

/// The relation that holds the fresh messages of a batch.
pub const MESSAGES: &str = "messages";

/// Statements that begin with these end or nest the transaction that oncebox holds open, or cannot run inside one.
/// An empty second word matches any.
const REFUSED: [(&str, &str); 15] = [
    ("COMMIT", ""),
    ("ROLLBACK", ""),
    ("BEGIN", ""),
    ("START", "TRANSACTION"),
    ("SAVEPOINT", ""),
    ("RELEASE", ""),
    ("END", ""),
    ("ABORT", ""),
    ("PREPARE", "TRANSACTION"),
    ("SET", "TRANSACTION"),
    ("VACUUM", ""),
    ("COPY", ""),
    ("ATTACH", ""),
    ("DETACH", ""),
    ("CHECKPOINT", ""),
];

/// The SQL of one statement, checked and split at its parameters.
///
/// Parameters are bound, never spliced: [`Sql::render`] rewrites each to the placeholder of a driver. Strings, quoted names,
/// comments and `::` casts are left alone.
///
/// ```
/// use oncebox_sql::{Param, Sql};
///
/// let statement = Sql::parse("UPDATE stock SET qty = (:payload->>'qty')::int WHERE sku = :key;")?;
/// let postgres = statement.render(|param| format!("${}", param.index()));
/// assert_eq!(postgres, "UPDATE stock SET qty = ($3->>'qty')::int WHERE sku = $2");
/// assert!(statement.params().contains(&Param::Key));
/// # Ok::<(), oncebox_sql::StatementError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sql {
    source: String,
    uses: Vec<(Range<usize>, Param)>,
    first_keyword: String,
    batch: bool,
}

impl Sql {
    /// Reads a statement that runs once per message.
    ///
    /// # Errors
    /// An unknown parameter, something unterminated, nothing at all, more than one statement, or a statement that has no
    /// place inside oncebox's transaction.
    pub fn parse(sql: &str) -> Result<Self, StatementError> {
        let mut uses = Vec::new();
        let statement = Self::build(sql, false, |token| {
            let name = token.text.trim_start_matches(':');
            let param =
                Param::from_name(name).ok_or_else(|| StatementError::unknown_param(name, token.start))?;
            uses.push((token.start..token.end(), param));
            Ok(())
        })?;
        Ok(Self { uses, ..statement })
    }

    /// Reads a statement that runs once per batch, over the relation [`MESSAGES`].
    ///
    /// # Errors
    /// As [`Sql::parse`]; also any `:name` parameter, and a statement that does not use the relation: its effect
    /// would depend on how the messages happened to be batched.
    pub fn parse_batch(sql: &str) -> Result<Self, StatementError> {
        Self::build(sql, true, |token| {
            let name = token.text.trim_start_matches(':').to_owned();
            Err(StatementError::ParamInBatch { name, offset: token.start })
        })
    }

    fn build(
        sql: &str,
        batch: bool,
        mut on_param: impl FnMut(&Token<'_>) -> Result<(), StatementError>,
    ) -> Result<Self, StatementError> {
        let tokens = lexer::tokens(sql)?;
        let end = tokens.iter().position(|token| token.kind == Kind::Semicolon).unwrap_or(tokens.len());
        let (statement, rest) = tokens.split_at(end);
        if !statement.iter().any(|token| token.kind != Kind::Blank) {
            return Err(StatementError::Empty);
        }
        if let Some(more) = rest.iter().find(|token| !matches!(token.kind, Kind::Blank | Kind::Semicolon)) {
            return Err(StatementError::SecondStatement { offset: more.start });
        }
        let mut words = statement.iter().filter(|token| token.kind == Kind::Word);
        let first = words.next();
        let first_keyword = first.map(|token| token.text.to_ascii_uppercase()).unwrap_or_default();
        if let Some(first) = first {
            let second = words.next().map(|token| token.text.to_ascii_uppercase()).unwrap_or_default();
            refuse_control(&first_keyword, &second, first.start)?;
        }
        for token in statement {
            match token.kind {
                Kind::Param => on_param(token)?,
                Kind::Positional => {
                    let text = token.text.to_owned();
                    return Err(StatementError::Positional { text, offset: token.start });
                }
                _ => {}
            }
        }
        if batch && !statement.iter().any(lexer::is_messages) {
            return Err(StatementError::WithoutMessages);
        }
        let source = statement.last().map_or("", |last| &sql[..last.end()]).to_owned();
        Ok(Self { source, uses: Vec::new(), first_keyword, batch })
    }

    /// The statement with each parameter replaced by what `placeholder` gives for it.
    pub fn render(&self, mut placeholder: impl FnMut(Param) -> String) -> String {
        let mut sql = String::with_capacity(self.source.len() + 16);
        let mut done = 0;
        for (range, param) in &self.uses {
            sql.push_str(&self.source[done..range.start]);
            let text = placeholder(*param);
            // `IN:id` must not become the identifier `IN$1`.
            if sql.ends_with(lexer::continues_word) && text.starts_with(lexer::continues_word) {
                sql.push(' ');
            }
            sql.push_str(&text);
            done = range.end;
        }
        sql.push_str(&self.source[done..]);
        sql
    }

    /// The parameters it uses, each once.
    #[must_use]
    pub fn params(&self) -> BTreeSet<Param> {
        self.uses.iter().map(|(_, param)| *param).collect()
    }

    /// The statement as written, without a trailing `;` and what follows it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The statement with `expression` (such as `messages AS (…)`) as its first common table expression, in front of those it
    /// has itself.
    #[must_use]
    pub fn with(&self, expression: &str) -> String {
        with::prepend(expression, self)
    }

    /// Its first keyword in upper case, such as `UPDATE` or `WITH`.
    #[must_use]
    pub fn first_keyword(&self) -> &str {
        &self.first_keyword
    }

    /// What is allowed but probably not meant, in words for an operator. Empty when there is nothing to say.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let advice = if self.batch { advice::update_from_messages(&self.tokens()) } else { None };
        advice.into_iter().collect()
    }

    /// Its tokens, for a store that reads something in its own way.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token<'_>> {
        // The source was read once already, so it cannot fail now.
        lexer::tokens(&self.source).unwrap_or_default()
    }
}

fn refuse_control(first: &str, second: &str, offset: usize) -> Result<(), StatementError> {
    let refused = REFUSED.iter().find(|(a, b)| *a == first && (b.is_empty() || *b == second));
    match refused {
        Some((a, b)) => {
            Err(StatementError::Refused { keyword: format!("{a} {b}").trim_end().to_owned(), offset })
        }
        None => Ok(()),
    }
}
