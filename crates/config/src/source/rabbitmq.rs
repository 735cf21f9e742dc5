//! An inbox that reads a RabbitMQ queue.

use oncebox_core::inbox::Selector;

use crate::inbox::selector;
use crate::reader::{Entry, Section};

/// The keys of an inbox that reads a RabbitMQ queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RabbitmqInbox {
    /// `queue`: its name. Required.
    pub queue: String,
    /// `prefetch`: how many messages may be under way without being acknowledged, 1 to 2,000. Default 500.
    pub prefetch: u16,
    /// `key`: where the key of a message is, for the order and for `park-key`. Default: where the sink puts it.
    pub key: Option<Selector>,
}

/// The keys that a queue has and topics have not.
pub(super) const KEYS: &[&str] = &["prefetch", "key"];

const DEFAULT_PREFETCH: u16 = 500;
/// RabbitMQ caps what quorum queues take.
const MAX_PREFETCH: i64 = 2_000;
/// The tables of oncebox hold no longer name.
const MAX_NAME_BYTES: usize = 249;

pub(super) fn read(
    section: &mut Section<'_, '_>,
    entry: &Entry<'_, '_>,
    has_broker: bool,
    taken: &mut Vec<String>,
) -> Option<RabbitmqInbox> {
    if !has_broker {
        entry.report("an inbox that reads a queue needs a broker", "add [rabbitmq] with its `url`");
    }
    let prefetch = section.or("prefetch", DEFAULT_PREFETCH, |e| {
        e.integer(&(1..=MAX_PREFETCH)).and_then(|messages| u16::try_from(messages).ok())
    });
    let key = section.or("key", None, |e| selector(&e).map(Some));
    let queue = name(entry)?;
    if taken.contains(&queue) {
        entry.report(
            "another inbox reads this queue too, so each would get only a part of the messages",
            "give each inbox a queue of its own, bound to the same exchange",
        );
    }
    taken.push(queue.clone());
    Some(RabbitmqInbox { queue, prefetch, key })
}

fn name(entry: &Entry<'_, '_>) -> Option<String> {
    let name = entry.filled_text()?;
    if name.len() > MAX_NAME_BYTES || name.contains(char::is_control) {
        entry.report("this is not a name of a queue", "use up to 249 bytes without control characters");
        return None;
    }
    Some(name)
}
