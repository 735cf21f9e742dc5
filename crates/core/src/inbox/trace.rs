//! The spans of a message on its way through an inbox. Without telemetry, one question for each batch.
//!
//! A message that is traced has a span of its own, under the span of its sender: `process`. The steps of its transaction are part of
//! it if no other message of the batch is traced; else they are part of a span of the batch, in a trace of its own, which is linked
//! with them.

use std::time::Instant;

use super::Engine;
use super::item::Item;
use super::partition::Partition;
use super::transaction::{Task, Trouble};
use crate::error::describe;
use crate::message::{Message, Record};
use crate::source::{Answer, Answered};
use crate::store::InboxStore;
use crate::telemetry::{
    Kind, Origin, Span, SpanContext, Telemetry, Timeline, attributes as name, bounded, set_traceparent,
};

/// What a collector keeps of the links of a span, by default.
const MOST_LINKS: usize = 128;

/// A step of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Claim,
    Handler,
    Commit,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Handler => "handler",
            Self::Commit => "commit",
        }
    }
}

/// The spans of a transaction; nothing if none of its messages is traced.
pub(super) struct Trace(Option<Box<Running>>);

struct Running {
    timeline: Timeline,
    began: Instant,
    /// In the order of the batch.
    messages: Vec<Traced>,
    /// What the steps are part of.
    whole: SpanContext,
    step: Option<(Step, Instant)>,
    steps: Vec<Span>,
}

struct Traced {
    /// Its place in the batch.
    at: usize,
    origin: Origin,
    context: SpanContext,
    outcome: &'static str,
}

impl Trace {
    /// A step begins.
    pub(super) fn begin(&mut self, step: Step) {
        if let Some(running) = &mut self.0 {
            running.step = Some((step, Instant::now()));
        }
    }

    /// The step that has begun ends.
    pub(super) fn end_step(&mut self, trouble: Option<&Trouble>) {
        if let Some(running) = &mut self.0 {
            running.end_step(trouble.and_then(Told::of).as_ref());
        }
    }

    /// The message, as its handler sees it: whatever follows from it goes on from our span.
    pub(super) fn message(&self, at: usize, message: &Message) -> Message {
        let traced = self.0.as_ref().and_then(|running| {
            let place = running.messages.binary_search_by_key(&at, |traced| traced.at).ok()?;
            running.messages.get(place)
        });
        let Some(traced) = traced else { return message.clone() };
        let record = message.record();
        let headers = set_traceparent(&record.headers, &traced.context);
        let record = Record { headers, ..record.clone() };
        Message::new(message.id().clone(), message.tenant().clone(), record)
    }

    /// This became of the messages.
    pub(super) fn answered(&mut self, answers: &[Answered]) {
        for traced in self.0.iter_mut().flat_map(|running| &mut running.messages) {
            traced.outcome = match answers.get(traced.at).map(|one| &one.answer) {
                Some(Answer::Applied) => "applied",
                Some(Answer::Duplicate) => "duplicate",
                Some(Answer::Differs) => "differs",
                Some(Answer::Parked) => PARKED,
                _ => UNDONE,
            };
        }
    }
}

const PARKED: &str = "parked";
/// The transaction has left nothing behind. The message is tried again, or given up later.
const UNDONE: &str = "undone";

impl Running {
    fn end_step(&mut self, told: Option<&Told>) {
        let Some((step, began)) = self.step.take() else { return };
        let times = (self.timeline.at(began), self.timeline.at(Instant::now()));
        let mut span =
            Span::new(self.whole.child(), Some(self.whole.span_id), step.name(), Kind::Internal, times);
        if let Some(told) = told {
            told.fail(&mut span);
        }
        self.steps.push(span);
    }
}

/// What a span says of trouble.
struct Told {
    class: &'static str,
    /// The message that is to blame, if it is known.
    at: Option<usize>,
    text: String,
}

impl Told {
    fn of(trouble: &Trouble) -> Option<Self> {
        let (class, at, text) = match trouble {
            Trouble::Away(text) => ("away", None, text.clone()),
            Trouble::Transient { error, .. } => ("transient", None, describe(error.as_ref())),
            Trouble::Environment { at, error } => ("environment", *at, describe(error.as_ref())),
            Trouble::Fenced => ("fenced", None, "another process has taken over".to_owned()),
            Trouble::Failed { at, error } => ("failed", *at, describe(error.as_ref())),
            Trouble::KeepsCrashing(text) => ("crash", None, text.clone()),
            Trouble::BeginAnew(text) => ("unknown", None, text.clone()),
            Trouble::Torn(text) => ("torn", None, text.clone()),
            Trouble::NothingToTry => return None,
        };
        Some(Self { class, at, text: bounded(&text) })
    }

    fn fail(&self, span: &mut Span) {
        span.say(name::ERROR_TYPE, self.class);
        span.error = Some(self.text.clone());
    }
}

impl<S: InboxStore> Engine<S> {
    /// The messages of this batch are taken out of their queue: `receive` is how long each has waited there.
    pub(super) fn trace_arrivals(&self, partition: &Partition, items: &[Item], arrivals: &[(i64, Instant)]) {
        let telemetry = &self.settings.telemetry;
        if arrivals.is_empty() || !telemetry.is_on() {
            return;
        }
        let (timeline, now) = (Timeline::now(), Instant::now());
        let (mut arrivals, mut spans) = (arrivals.iter(), Vec::new());
        for item in items {
            // Both in the order of the queue; what was not wanted is left out of the items.
            let Some((_, since)) = arrivals.find(|(offset, _)| *offset == item.offset()) else { break };
            let Some(origin) = origin_of(telemetry, item) else { continue };
            let context = if origin.begins_here { origin.above } else { origin.above.child() };
            let times = (timeline.at(*since), timeline.at(now));
            let title = format!("receive {}", partition.key.topic);
            let mut span = Span::new(context, origin.sender(), title, Kind::Internal, times);
            self.say_where(&mut span, partition, "receive", "receive");
            spans.push(span);
        }
        telemetry.record(spans);
    }

    /// A transaction begins.
    pub(super) fn trace(&self, items: &[Item], task: &Task) -> Trace {
        let telemetry = &self.settings.telemetry;
        // A probe is undone whatever it finds out, and its message runs again.
        if !telemetry.is_on() || matches!(task, Task::Probe) {
            return Trace(None);
        }
        let traced = |(at, item)| {
            let origin = origin_of(telemetry, item)?;
            Some(Traced { at, origin, context: origin.above.child(), outcome: UNDONE })
        };
        let messages: Vec<Traced> = items.iter().enumerate().filter_map(traced).collect();
        let whole = match messages.as_slice() {
            [] => return Trace(None),
            [one] => one.context,
            _ => SpanContext::random(),
        };
        let timeline = Timeline::now();
        Trace(Some(Box::new(Running {
            timeline,
            began: Instant::now(),
            messages,
            whole,
            step: None,
            steps: Vec::new(),
        })))
    }

    /// The transaction has ended.
    pub(super) fn trace_ended(
        &self,
        partition: &Partition,
        items: &[Item],
        trace: Trace,
        result: &Result<(), Trouble>,
    ) {
        let Some(mut running) = trace.0 else { return };
        let told = match result.as_ref().map_err(Told::of) {
            Ok(()) => None,
            Err(Some(told)) => Some(told),
            // Nothing was tried.
            Err(None) => return,
        };
        running.end_step(told.as_ref());
        let Running { timeline, began, messages, whole, steps, .. } = *running;
        let times = (timeline.at(began), timeline.at(Instant::now()));
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let mut spans = steps;
        if messages.len() > 1 {
            let mut span = Span::new(whole, None, title("batch", partition), Kind::Consumer, times);
            self.say_where(&mut span, partition, "batch", "process");
            span.say(name::MESSAGE_COUNT, count);
            span.links = messages.iter().take(MOST_LINKS).map(|traced| traced.origin.above).collect();
            if let Some(told) = &told {
                told.fail(&mut span);
            }
            spans.push(span);
        }
        for traced in &messages {
            let above = Some(traced.origin.above.span_id);
            let mut span =
                Span::new(traced.context, above, title("process", partition), Kind::Consumer, times);
            self.say_where(&mut span, partition, "process", "process");
            self.say_which(&mut span, partition, &items[traced.at]);
            span.say(name::OUTCOME, traced.outcome);
            if messages.len() > 1 {
                span.links.push(whole);
            } else if count > 1 {
                span.say(name::MESSAGE_COUNT, count);
            }
            match &told {
                Some(told) if told.at.is_none_or(|at| at == traced.at) => told.fail(&mut span),
                None if traced.outcome == PARKED => span.error = Some("kept as a dead letter".to_owned()),
                _ => {}
            }
            spans.push(span);
        }
        self.settings.telemetry.record(spans);
    }

    fn say_where(&self, span: &mut Span, partition: &Partition, operation: &'static str, kind: &'static str) {
        span.say(name::SYSTEM, partition.system);
        span.say(name::DESTINATION, partition.key.topic.to_string());
        span.say(name::OPERATION_NAME, operation);
        span.say(name::OPERATION_TYPE, kind);
        span.say(name::CONSUMER, self.consumer.as_str().to_owned());
    }

    fn say_which(&self, span: &mut Span, partition: &Partition, item: &Item) {
        // The numbers of a queue mean nothing to anybody.
        if partition.deliveries.is_none() {
            span.say(name::PARTITION, partition.key.partition.to_string());
            span.say(name::OFFSET, item.offset());
        }
        if let Item::Fit(message, _) = item
            && self.settings.telemetry.shows_message_ids()
        {
            span.say(name::MESSAGE_ID, message.id().as_str().to_owned());
        }
    }
}

fn title(operation: &str, partition: &Partition) -> String {
    format!("{operation} {}", partition.key.topic)
}

/// The trace of a message. One that begins here is the same for each try of a delivery; a copy has its own.
fn origin_of(telemetry: &Telemetry, item: &Item) -> Option<Origin> {
    let seed = match item {
        Item::Fit(_, key) => Some(u128::from_be_bytes(*key.as_bytes()) ^ item.offset() as u128),
        Item::Unfit(_) => None,
    };
    telemetry.origin(&item.record().headers, seed)
}
