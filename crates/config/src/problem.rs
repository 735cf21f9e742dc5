//! What is wrong with a config file, all of it at once.

use std::fmt;

/// One thing that is wrong: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The dotted path of the key, such as `inbox[0].batch.messages`; empty for a syntax error.
    pub key: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong. Never contains the value of a secret.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

impl Problem {
    fn write(&self, file: &str, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{file}:{}: ", self.line)?;
        if !self.key.is_empty() {
            write!(out, "{}: ", self.key)?;
        }
        write!(out, "{}; {}", self.message, self.fix)
    }
}

/// All that is wrong with a config file, in the order of its lines. Never empty as an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        Self(problems)
    }

    /// The problems in the order of their lines.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One line per problem, `FILE:LINE: KEY: what is wrong; what to do`.
    #[must_use]
    pub fn render(&self, file: &str) -> String {
        let mut text = String::new();
        for (nth, problem) in self.0.iter().enumerate() {
            if nth > 0 {
                text.push('\n');
            }
            // Writing to a String cannot fail.
            problem.write(file, &mut text).ok();
        }
        text
    }
}

impl<'p> IntoIterator for &'p Problems {
    type Item = &'p Problem;
    type IntoIter = std::slice::Iter<'p, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("oncebox.toml"))
    }
}

impl std::error::Error for Problems {}
