//! A sink: appends events to a file.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use oncebox::BoxError;
use oncebox::sink::{Delivery, OutgoingEvent, Sink};

/// A file that gets a line for each event: its id and its payload.
pub(crate) struct Append {
    path: PathBuf,
}

impl Append {
    pub(crate) fn to(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }
}

impl Sink for Append {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let mut text = Vec::new();
        for event in events {
            write!(text, "{} ", event.id())?;
            text.extend_from_slice(event.payload().map_or(b"", |payload| payload));
            text.push(b'\n');
        }
        // An error here blames no event: the whole batch comes again.
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        file.write_all(&text)?;
        // Only what is on the disk is delivered.
        file.sync_data()?;
        Ok(vec![Delivery::Delivered; events.len()])
    }

    /// One batch at a time, or two would write into each other's lines.
    fn concurrency(&self) -> usize {
        1
    }
}
