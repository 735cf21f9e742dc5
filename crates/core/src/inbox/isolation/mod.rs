//! A message fails: it is found in its batch, and then the question is whose fault it is.

mod blame;
mod cut;
mod probe;
mod streak;

pub(super) use blame::{Blame, Next};
pub(super) use cut::cut;
pub(super) use probe::Others;
pub(super) use streak::Streak;
