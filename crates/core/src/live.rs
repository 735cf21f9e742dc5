//! A setting that may change while it is used.

use std::sync::{Arc, Mutex};

use crate::monitor::lock;

/// A value that its owner may change while others use it: each use sees the value of that moment. Clones share it.
///
/// ```
/// use oncebox::settings::Live;
///
/// let attempts = Live::new(5);
/// let of_the_inbox = attempts.clone();
/// attempts.set(20);
/// assert_eq!(of_the_inbox.get(), 20);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Live<T>(Arc<Mutex<T>>);

impl<T: Clone> Live<T> {
    /// Begins with this value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Mutex::new(value)))
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> T {
        lock(&self.0).clone()
    }

    /// From now on it is this.
    pub fn set(&self, value: T) {
        *lock(&self.0) = value;
    }
}
