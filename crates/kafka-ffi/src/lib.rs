//! What librdkafka can do and its Rust binding cannot: the ids of topics and who leads their partitions, tokens with
//! extensions, the patterns of topics as librdkafka reads them, and what stands beside committed offsets.
//!
//! The only crate of the workspace with `unsafe` in it. It knows nothing of oncebox.

mod commit_notes;
#[cfg(feature = "fatal-errors")]
mod fatal;
mod owned;
mod token;
mod topic_ids;
mod topic_pattern;

pub use commit_notes::commit_notes;
#[cfg(feature = "fatal-errors")]
pub use fatal::raise_fatal_error;
pub use token::{Token, set_token, set_token_failure};
pub use topic_ids::{Topic, TopicIds, Topics, describe_topics, topic_ids};
pub use topic_pattern::TopicPattern;
