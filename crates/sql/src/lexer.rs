//! Cuts SQL into tokens, just finely enough to tell a parameter from everything that only looks like one.
//!
//! It follows PostgreSQL, whose rules for strings and comments are the widest; what SQLite reads differently (a nested
//! comment, `[name]`) is rare and ends in an error of the database, never in a value taken for SQL. What MySQL reads differently
//! (a backslash in a string, `#`) its store refuses.

use crate::{MESSAGES, StatementError};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// White space or a comment.
    Blank,
    /// A string, a quoted name or a dollar-quoted string.
    Quoted,
    /// A keyword or a name.
    Word,
    /// `:name`.
    Param,
    /// `$1` or `$name`.
    Positional,
    /// `;`.
    Semicolon,
    /// `(`.
    Open,
    /// `)`.
    Close,
    /// A number, an operator or any other sign.
    Other,
}

/// A piece of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'s> {
    /// What it is.
    pub kind: Kind,
    /// Where it begins, in bytes.
    pub start: usize,
    /// As written.
    pub text: &'s str,
}

impl Token<'_> {
    /// Where it ends, in bytes.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Whether it is this keyword or name, in any case.
    #[must_use]
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }
}

/// Whether a token names the relation `messages`.
pub(crate) fn is_messages(token: &Token<'_>) -> bool {
    let quoted_by =
        |quote| token.text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote)) == Some(MESSAGES);
    token.is_word(MESSAGES) || (token.kind == Kind::Quoted && (quoted_by('"') || quoted_by('`')))
}

/// Whether a name goes on with this character.
pub(crate) fn continues_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

fn starts_word(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

/// All tokens; their texts put together are `sql`.
///
/// # Errors
/// [`StatementError::Unterminated`]: a string, a quoted name or a comment without an end.
pub fn tokens(sql: &str) -> Result<Vec<Token<'_>>, StatementError> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while start < sql.len() {
        let (kind, len) = scan(&sql[start..])
            .map_err(|Unclosed(what)| StatementError::Unterminated { what, offset: start })?;
        tokens.push(Token { kind, start, text: &sql[start..start + len] });
        start += len;
    }
    Ok(tokens)
}

/// Names what has no end.
struct Unclosed(&'static str);

/// The kind and the length in bytes of the token that `rest` begins with.
fn scan(rest: &str) -> Result<(Kind, usize), Unclosed> {
    let mut chars = rest.chars();
    let first = chars.next().unwrap_or_default();
    let second = chars.next().unwrap_or_default();
    let run = |while_: fn(char) -> bool| rest.find(|c| !while_(c)).unwrap_or(rest.len());
    Ok(match (first, second) {
        (c, _) if is_blank(c) => (Kind::Blank, run(is_blank)),
        ('-', '-') => (Kind::Blank, rest.find(['\n', '\r']).unwrap_or(rest.len())),
        ('/', '*') => (Kind::Blank, block_comment(rest).ok_or(Unclosed("comment"))?),
        ('\'', _) => (Kind::Quoted, quoted(rest, '\'').ok_or(Unclosed("string"))?),
        ('"', _) => (Kind::Quoted, quoted(rest, '"').ok_or(Unclosed("quoted name"))?),
        ('`', _) => (Kind::Quoted, quoted(rest, '`').ok_or(Unclosed("quoted name"))?),
        ('E' | 'e', '\'') => (Kind::Quoted, escape_string(rest).ok_or(Unclosed("string"))?),
        ('$', _) => dollar(rest)?,
        (':', ':' | '=') => (Kind::Other, 2),
        (':', c) if starts_word(c) => (Kind::Param, 1 + word_len(&rest[1..])),
        (c, _) if starts_word(c) => (Kind::Word, word_len(rest)),
        (c, _) if c.is_ascii_digit() => (Kind::Other, word_len(rest)),
        (';', _) => (Kind::Semicolon, 1),
        ('(', _) => (Kind::Open, 1),
        (')', _) => (Kind::Close, 1),
        _ => (Kind::Other, first.len_utf8()),
    })
}

fn word_len(rest: &str) -> usize {
    rest.find(|c| !continues_word(c)).unwrap_or(rest.len())
}

/// Comments nest in PostgreSQL.
fn block_comment(rest: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let bytes = &rest.as_bytes()[at..];
        if bytes.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    None
}

/// Between two `quote`s; a doubled one stands for itself.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + 1);
        }
    }
    None
}

/// `E'...'`, where a backslash escapes too. Over a line break the string goes on with the next quote, still escaping.
fn escape_string(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(2).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '\'' if chars.next_if(|(_, next)| *next == '\'').is_none() => {
                let end = at + 1;
                let after = &rest[end..];
                let gap = after.len() - after.trim_start_matches(is_blank).len();
                if !(after[..gap].contains(['\n', '\r']) && after[gap..].starts_with('\'')) {
                    return Some(end);
                }
                while chars.next_if(|(next, _)| *next <= end + gap).is_some() {}
            }
            _ => {}
        }
    }
    None
}

/// `$tag$...$tag$`, a placeholder, or a lone `$`.
fn dollar(rest: &str) -> Result<(Kind, usize), Unclosed> {
    let tag_len = rest[1..].find(|c| c == '$' || !continues_word(c)).unwrap_or(rest.len() - 1);
    let (tag, after) = rest.split_at(1 + tag_len);
    let is_tag = !tag[1..].starts_with(|c: char| c.is_ascii_digit());
    if is_tag && after.starts_with('$') {
        let open = tag.len() + 1;
        let close = &rest[..open];
        let len = rest[open..].find(close).ok_or(Unclosed("dollar-quoted string"))?;
        return Ok((Kind::Quoted, open + len + close.len()));
    }
    Ok(if tag_len > 0 { (Kind::Positional, tag.len()) } else { (Kind::Other, 1) })
}
