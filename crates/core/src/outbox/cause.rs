//! Which message is being handled right now: what links an event to its receipt and to its trace.
//!
//! A handler emits through its connection, which knows nothing of messages. The engine says here whose handler runs on this
//! task, and on which message.

use std::cell::RefCell;
use std::future::Future;

use crate::message::Message;
use crate::names::ConsumerName;

tokio::task_local! {
    static CURRENT: RefCell<Current>;
}

struct Current {
    consumer: ConsumerName,
    message: Option<Message>,
    events: bool,
}

/// What is known of the cause of an event.
#[derive(Debug, Default)]
pub(crate) struct Cause {
    pub(crate) consumer: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) traceparent: Option<String>,
}

/// Runs the handlers of a consumer; also says whether they have written events.
pub(crate) async fn scope<F: Future>(consumer: &ConsumerName, work: F) -> (F::Output, bool) {
    let current = Current { consumer: consumer.clone(), message: None, events: false };
    let work = async {
        let output = work.await;
        (output, CURRENT.with(|current| current.borrow().events))
    };
    CURRENT.scope(RefCell::new(current), work).await
}

/// Notes that the handler of this task has written events. False outside of an engine: then nobody takes note.
pub(crate) fn note_events_written() -> bool {
    CURRENT.try_with(|current| current.borrow_mut().events = true).is_ok()
}

/// The consumer whose handler runs on this task. Stores tell it to SQL that writes events by itself.
#[must_use]
pub fn current_consumer() -> Option<ConsumerName> {
    CURRENT.try_with(|current| current.borrow().consumer.clone()).ok()
}

/// From now on this task handles that message.
pub(crate) fn set_message(message: &Message) {
    // Outside of an engine there is nobody to tell.
    CURRENT.try_with(|current| current.borrow_mut().message = Some(message.clone())).ok();
}

/// The cause of an event that is written now; `named` is the message that the event itself names.
pub(crate) fn of(named: Option<&Message>) -> Cause {
    let known = CURRENT.try_with(|current| {
        let current = current.borrow();
        (current.consumer.as_str().to_owned(), current.message.clone())
    });
    let (consumer, handled) = match known {
        Ok((consumer, handled)) => (Some(consumer), handled),
        Err(_) => (None, None),
    };
    let Some(message) = named.or(handled.as_ref()) else {
        return Cause { consumer, ..Cause::default() };
    };
    Cause {
        consumer,
        tenant: Some(message.tenant().as_str().to_owned()),
        message_id: Some(message.id().as_str().to_owned()),
        traceparent: message.header("traceparent").map(str::to_owned),
    }
}
