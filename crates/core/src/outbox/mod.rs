//! Events, and the relay that publishes them.

mod event;
mod local;
mod relay;
mod sink;
mod time;
pub(crate) mod wake;

pub use crate::inbox::call::current_consumer;
pub use event::{
    Emit, Event, EventError, EventRow, MAX_EVENT_HEADER_BYTES, MAX_EVENT_KEY_BYTES, MAX_EVENT_PAYLOAD_BYTES,
    MAX_TOPIC_BYTES, check_topic, emit_all,
};
pub use local::{LocalQueue, LocalSink};
pub use relay::{Relay, RelaySettings, is_name_of_a_sink, purge_published_loop, topic_fits};
pub use sink::{ByEvent, Deliver, Delivery, KEEP_TRYING, OutgoingEvent, Sink, SinkFn, Standing};
pub use wake::{events_committed, events_written};
