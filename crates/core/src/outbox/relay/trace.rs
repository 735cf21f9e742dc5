//! The span of an event that is sent: part of the trace of what it follows from, which its receiver goes on with.

use std::time::Instant;

use crate::outbox::sink::{Delivery, OutgoingEvent};
use crate::telemetry::{Kind, Origin, Span, SpanContext, Telemetry, Timeline, attributes as name, bounded};

/// The spans of a batch of events that is under way; nothing if none of them is traced.
pub(super) struct Sending<'a>(Option<Box<Running<'a>>>);

struct Running<'a> {
    telemetry: &'a Telemetry,
    system: &'static str,
    timeline: Timeline,
    began: Instant,
    events: Vec<Traced>,
}

struct Traced {
    /// Its place in the batch.
    at: usize,
    id: String,
    topic: String,
    origin: Origin,
    context: SpanContext,
}

impl<'a> Sending<'a> {
    /// These events go to a sink that calls itself so. Those that are traced tell their receiver about the span that sends them.
    pub(super) fn begin(
        telemetry: &'a Telemetry,
        system: Option<&'static str>,
        events: &mut [OutgoingEvent],
    ) -> Self {
        let Some(system) = system.filter(|_| telemetry.is_on()) else { return Self(None) };
        let mut traced = Vec::new();
        for (at, event) in events.iter_mut().enumerate() {
            let Some(origin) = telemetry.origin(&event.stored().headers, Some(event.id().as_u128())) else {
                continue;
            };
            let context = origin.above.child();
            *event = event.continued_by(&context);
            let (id, topic) = (event.id().to_string(), event.topic().to_owned());
            traced.push(Traced { at, id, topic, origin, context });
        }
        if traced.is_empty() {
            return Self(None);
        }
        let (timeline, began) = (Timeline::now(), Instant::now());
        Self(Some(Box::new(Running { telemetry, system, timeline, began, events: traced })))
    }

    /// This became of them.
    pub(super) fn answered(self, answers: &[Delivery]) {
        self.end(|at| match answers.get(at) {
            Some(Delivery::Delivered) => Some(None),
            Some(Delivery::Retry { error, .. }) => Some(Some(("retry", error.as_str()))),
            Some(Delivery::Reject { error }) => Some(Some(("reject", error.as_str()))),
            // They were not sent.
            Some(Delivery::Behind | Delivery::Wait { .. } | Delivery::NotTried) | None => None,
        });
    }

    /// None of them is to blame.
    pub(super) fn failed(self, reason: &str) {
        self.end(|_| Some(Some(("away", reason))));
    }

    /// With how each ended, if it was sent: well, or with a kind of error and its text.
    fn end<'e>(self, ended: impl Fn(usize) -> Option<Option<(&'static str, &'e str)>>) {
        let Some(running) = self.0 else { return };
        let Running { telemetry, system, timeline, began, events } = *running;
        let times = (timeline.at(began), timeline.at(Instant::now()));
        let span = |event: Traced| {
            let failure = ended(event.at)?;
            let title = format!("send {}", event.topic);
            let mut span = Span::new(event.context, event.origin.sender(), title, Kind::Producer, times);
            span.say(name::SYSTEM, system);
            span.say(name::DESTINATION, event.topic);
            span.say(name::OPERATION_NAME, "send");
            span.say(name::OPERATION_TYPE, "send");
            // Ours, and made by chance.
            span.say(name::MESSAGE_ID, event.id);
            if let Some((class, text)) = failure {
                span.say(name::ERROR_TYPE, class);
                // What a receiver answered comes after the first line: it may quote the event.
                span.error = Some(bounded(text.lines().next().unwrap_or_default()));
            }
            Some(span)
        };
        telemetry.record(events.into_iter().filter_map(span).collect());
    }
}
