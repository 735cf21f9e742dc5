//! What a request may cost, and how long its sender waits.

use std::time::Duration;

/// What the requests of one inbox may cost, and how long their senders wait. [`Default`] is right for webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The longest body. Default: 1 MiB.
    pub body_bytes: usize,
    /// How long a client may take to send the body. Default: 10 seconds.
    pub body_within: Duration,
    /// The most headers. Default: 100.
    pub header_count: usize,
    /// The most bytes of all header names and values together. Default: 32 KiB.
    pub header_bytes: usize,
    /// The most events in a batch of CloudEvents. Default: 500.
    pub batch_events: usize,
    /// The most requests under way at once; the others are told to come again. Default: 1024.
    pub requests: usize,
    /// The most bytes of the bodies of all requests under way. Default: 64 MiB.
    pub bytes: usize,
    /// How long a request waits for its commit. After that its sender does not know what became of it, and sends it again.
    /// Default: 30 seconds.
    pub answer_within: Duration,
    /// How long a copy waits for the first one, which is still under way. Default: 10 seconds.
    pub copy_within: Duration,
    /// When to come again, for those who are told to. Default: 5 seconds.
    pub retry_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 1024 * 1024,
            body_within: Duration::from_secs(10),
            header_count: 100,
            header_bytes: 32 * 1024,
            batch_events: 500,
            requests: 1024,
            bytes: 64 * 1024 * 1024,
            answer_within: Duration::from_secs(30),
            copy_within: Duration::from_secs(10),
            retry_after: Duration::from_secs(5),
        }
    }
}
