//! A span that has ended.

use std::borrow::Cow;
use std::time::{Instant, SystemTime};

use super::{SpanContext, SpanId, TraceId};

/// Who a span is about, seen from its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A step within.
    Internal,
    /// It sends a message.
    Producer,
    /// It takes a message in.
    Consumer,
}

/// What an attribute says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// The span that it is part of, or follows from.
    pub parent: Option<SpanId>,
    /// What happened.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// When it began.
    pub start: SystemTime,
    /// When it ended; not before it began.
    pub end: SystemTime,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Spans of other traces that it has to do with.
    pub links: Vec<SpanContext>,
    /// Why it failed, if it did, without the values that messages brought.
    pub error: Option<String>,
}

impl Span {
    pub(crate) fn new(
        context: SpanContext,
        parent: Option<SpanId>,
        name: impl Into<String>,
        kind: Kind,
        (start, end): (SystemTime, SystemTime),
    ) -> Self {
        Self {
            trace_id: context.trace_id,
            span_id: context.span_id,
            parent,
            name: name.into(),
            kind,
            start,
            end: end.max(start),
            attributes: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn say(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }
}

/// The names of attributes: those of the conventions for messaging, and our own.
pub(crate) mod attributes {
    pub(crate) const SYSTEM: &str = "messaging.system";
    pub(crate) const DESTINATION: &str = "messaging.destination.name";
    pub(crate) const PARTITION: &str = "messaging.destination.partition.id";
    pub(crate) const OPERATION_NAME: &str = "messaging.operation.name";
    pub(crate) const OPERATION_TYPE: &str = "messaging.operation.type";
    pub(crate) const MESSAGE_COUNT: &str = "messaging.batch.message_count";
    pub(crate) const MESSAGE_ID: &str = "messaging.message.id";
    pub(crate) const ERROR_TYPE: &str = "error.type";
    pub(crate) const CONSUMER: &str = "oncebox.consumer";
    pub(crate) const OFFSET: &str = "oncebox.offset";
    pub(crate) const OUTCOME: &str = "oncebox.outcome";
}

/// The longest text of an error, in characters.
const LONGEST_ERROR: usize = 1000;

/// A text that is not too long for a span.
pub(crate) fn bounded(text: &str) -> String {
    text.chars().take(LONGEST_ERROR).collect()
}

/// Turns what a steady clock measured into times of day. A clock that is set meanwhile makes no span end before it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline {
    wall: SystemTime,
    steady: Instant,
}

impl Timeline {
    pub(crate) fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    pub(crate) fn at(&self, moment: Instant) -> SystemTime {
        let before = self.steady.saturating_duration_since(moment);
        let moved = self.wall.checked_sub(before).unwrap_or(self.wall);
        moved.checked_add(moment.saturating_duration_since(self.steady)).unwrap_or(moved)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_before_and_after_keep_their_distance() {
        let timeline = Timeline::now();
        let second = Duration::from_secs(1);
        assert_eq!(timeline.at(timeline.steady + second), timeline.wall + second);
        assert_eq!(timeline.at(timeline.steady.checked_sub(second).unwrap()), timeline.wall - second);
    }
}
