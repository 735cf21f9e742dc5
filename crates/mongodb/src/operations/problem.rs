//! What is wrong with an operation of the configuration.

/// What is wrong with an operation, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where in the operation: keys, and numbers of items counted from 0.
    pub path: Vec<String>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub fix: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path.join("."))?;
        }
        write!(f, "{}; {}", self.message, self.fix)
    }
}
