//! Names, and the numbers under which the model knows them.

/// Every name that was ever used.
#[derive(Debug)]
pub(super) struct Names(Vec<String>);

impl Names {
    /// The names of a history: a letter and a number.
    pub(super) fn numbered(letter: char, count: usize) -> Self {
        Self((0..count).map(|number| format!("{letter}{number}")).collect())
    }

    /// The number of a name; a new one gets the next.
    pub(super) fn index(&mut self, name: &str) -> usize {
        self.0.iter().position(|known| known == name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    /// The name with that number.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.0[index]
    }
}
