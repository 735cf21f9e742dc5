//! Spans: how long each step of the way of a message took, in the trace that its sender began.
//!
//! Off unless a [`Recorder`] is given, and then a message is traced if it says so itself: its `traceparent` has the flag `sampled`.
//! [`Telemetry::sample`] begins traces for others. What a span holds are names, counts and what the log may hold too: never a payload,
//! a key, a header or a tenant; ids of messages only if [asked for](Telemetry::message_ids).
//!
//! The spans are those of the conventions of OpenTelemetry for messaging. Nothing here knows how they are sent.

mod context;
mod ratio;
mod span;

use std::fmt;
use std::sync::Arc;

pub(crate) use self::context::set_traceparent;
pub use self::context::{SpanContext, SpanId, TRACEPARENT, TraceId};
pub use self::ratio::Ratio;
pub use self::span::{Kind, Span, Value};
pub(crate) use self::span::{Timeline, attributes, bounded};

use crate::message::Headers;

/// Takes spans. Called where messages are handled: it must not block, and drops what it has no room for.
pub trait Recorder: Send + Sync + 'static {
    /// These have ended.
    fn record(&self, spans: Vec<Span>);
}

/// Whether spans are recorded, of which messages, and who gets them. Cheap to clone; [`Default`] is off.
///
/// ```
/// use oncebox::telemetry::{Recorder, Span, Telemetry};
///
/// struct Print;
///
/// impl Recorder for Print {
///     fn record(&self, spans: Vec<Span>) {
///         spans.iter().for_each(|span| println!("{} {:?}", span.name, span.trace_id));
///     }
/// }
/// assert!(Telemetry::new(Print).is_on() && !Telemetry::default().is_on());
/// ```
#[derive(Clone, Default)]
pub struct Telemetry(Option<Arc<Settings>>);

#[derive(Clone)]
struct Settings {
    recorder: Arc<dyn Recorder>,
    sample: Ratio,
    message_ids: bool,
}

impl Telemetry {
    /// Spans go there.
    pub fn new(recorder: impl Recorder) -> Self {
        let recorder = Arc::new(recorder);
        Self(Some(Arc::new(Settings { recorder, sample: Ratio::default(), message_ids: false })))
    }

    /// Which part of the messages without a `traceparent` begins a trace. Default: none.
    #[must_use]
    pub fn sample(self, ratio: Ratio) -> Self {
        self.with(|settings| settings.sample = ratio)
    }

    /// Whether spans hold the id of their message. Default: no, because ids may be telling.
    #[must_use]
    pub fn message_ids(self, shown: bool) -> Self {
        self.with(|settings| settings.message_ids = shown)
    }

    fn with(self, change: impl FnOnce(&mut Settings)) -> Self {
        Self(self.0.map(|settings| {
            let mut settings = Arc::unwrap_or_clone(settings);
            change(&mut settings);
            Arc::new(settings)
        }))
    }

    /// Whether anything is recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn shows_message_ids(&self) -> bool {
        self.0.as_ref().is_some_and(|settings| settings.message_ids)
    }

    /// The trace that something with these headers belongs to, if it is recorded: the one that it names, or one of its own, which
    /// follows from `seed`, so that it is the same at each try.
    pub(crate) fn origin(&self, headers: &Headers, seed: Option<u128>) -> Option<Origin> {
        let settings = self.0.as_ref()?;
        match headers.last(TRACEPARENT).and_then(SpanContext::parse) {
            Some(parent) => parent.is_sampled().then_some(Origin { above: parent, begins_here: false }),
            None => {
                let above = SpanContext::root(seed?);
                settings.sample.takes(above.trace_id).then_some(Origin { above, begins_here: true })
            }
        }
    }

    pub(crate) fn record(&self, spans: Vec<Span>) {
        if let Some(settings) = self.0.as_ref().filter(|_| !spans.is_empty()) {
            settings.recorder.record(spans);
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Telemetry(on)" } else { "Telemetry(off)" })
    }
}

/// Where the trace of a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The span of its sender; of a trace that begins here, its first one.
    pub(crate) above: SpanContext,
    pub(crate) begins_here: bool,
}

impl Origin {
    /// The span of the sender, if the trace comes from there.
    pub(crate) fn sender(&self) -> Option<SpanId> {
        (!self.begins_here).then_some(self.above.span_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Recorder for Nobody {
        fn record(&self, _: Vec<Span>) {}
    }

    fn headers(traceparent: &str) -> Headers {
        [(TRACEPARENT, Some(traceparent.to_owned().into()))].into_iter().collect()
    }

    #[test]
    fn a_message_is_traced_if_it_says_so() {
        let telemetry = Telemetry::new(Nobody);
        let sampled = headers("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let origin = telemetry.origin(&sampled, Some(7)).unwrap();
        assert_eq!(origin.sender(), Some(SpanId([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31])));
        let other = headers("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
        for telemetry in [&telemetry, &telemetry.clone().sample(Ratio::new(1.0).unwrap())] {
            assert_eq!(telemetry.origin(&other, Some(7)), None, "who says no is believed");
        }
        assert_eq!(telemetry.origin(&Headers::new(), Some(7)), None);
        assert_eq!(Telemetry::default().origin(&sampled, None), None, "it is off");
    }

    #[test]
    fn a_trace_that_begins_here_is_the_same_at_each_try() {
        let telemetry = Telemetry::new(Nobody).sample(Ratio::new(1.0).unwrap());
        for headers in [Headers::new(), headers("nonsense")] {
            let [first, again, other] = [7, 7, 8].map(|seed| telemetry.origin(&headers, Some(seed)).unwrap());
            assert_eq!((first, first.sender()), (again, None));
            assert_ne!(first.above.trace_id, other.above.trace_id);
            assert_eq!(telemetry.origin(&headers, None), None, "nothing tells it from others");
        }
    }
}
