//! The model broker: queues without offsets, channels with a prefetch, and what was delivered and not acknowledged.
//!
//! As RabbitMQ does it: what comes back goes to its old place, marked as delivered before; a channel that is cut, or that
//! keeps a message too long, gives everything back.

mod operate;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use oncebox_core::inbox::{Identity, ReceiptKey};
use oncebox_core::message::{Headers, Message, Record};
use oncebox_core::names::ConsumerName;
use oncebox_core::source::LogId;

pub(crate) use source::QueueSource;

use crate::coverage::Event;
use crate::plan::{Config, Produce};
use crate::store::Spot;
use crate::world::{Actor, Inner};

/// How long a delivery may stay unacknowledged.
const CONSUMER_TIMEOUT_MS: i64 = 30 * 60_000;

/// All queues: each consumer has its own of each name.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    pub(crate) queues: BTreeMap<Spot, Queue>,
    channels: BTreeMap<u64, Channel>,
    next_channel: u64,
    /// Where a process stands still, and why.
    pub(crate) stops: BTreeMap<(Spot, usize), (Actor, String)>,
    /// An operator wants it to be opened anew.
    reopen: BTreeSet<(Spot, usize)>,
    /// The numbers under which the crash guard knows messages.
    guarded: BTreeMap<(Spot, i64), u32>,
    /// Everything that was ever published: how many copies, and the id.
    pub(crate) published: BTreeMap<(Spot, u32), (u32, Option<String>)>,
    /// The messages of each key.
    pub(crate) keys: BTreeMap<Bytes, BTreeSet<u32>>,
    /// Taken out by hand, or given up by its sender.
    pub(crate) taken_out: BTreeSet<(Spot, u32)>,
}

/// One queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// By their place in the queue.
    pub(crate) entries: BTreeMap<i64, Entry>,
    next: i64,
}

/// A message in a queue, delivered or not.
#[derive(Debug)]
pub(crate) struct Entry {
    record: Record,
    pub(crate) number: u32,
    /// The id that a consumer finds in it.
    pub(crate) id: Option<String>,
    pub(crate) appended_ms: i64,
    /// It was delivered and came back.
    delivered: bool,
    pub(crate) held: Option<Held>,
    /// Its sender tries again at that time.
    not_before_ms: i64,
    /// Somebody saw the queue empty while somebody else held this message: nobody could know of it.
    pub(crate) unseen: bool,
}

/// Who holds a message unacknowledged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    channel: u64,
    pub(crate) delivery: i64,
    pub(crate) since_ms: i64,
}

impl Held {
    /// Where a message without an id was seen: what its dead letter is called.
    pub(crate) fn name(&self, spot: Spot) -> String {
        format!("{}@{}#{}", spot.place, self.delivery, self.channel)
    }
}

#[derive(Debug)]
struct Channel {
    spot: Spot,
    actor: Actor,
    next_delivery: i64,
}

impl Broker {
    pub(crate) fn new(config: &Config) -> Self {
        let mut broker = Self { next_channel: 1, ..Self::default() };
        if config.prefetch.is_some() {
            for consumer in 0..config.consumers {
                let spots = config.places().map(|place| Spot { consumer, place });
                broker.queues.extend(spots.map(|spot| (spot, Queue::default())));
            }
        }
        broker
    }

    /// The message that the crash guard knows under this number.
    pub(crate) fn guarded(&self, spot: Spot, number: i64) -> Option<u32> {
        self.guarded.get(&(spot, number)).copied()
    }

    /// Every consumer has a queue of its own.
    pub(crate) fn publish(&mut self, produce: &Produce, identity: &Identity, topic: &str, now_ms: i64) {
        for (spot, queue) in self.queues.iter_mut().filter(|(spot, _)| spot.place == produce.place) {
            let seq = queue.next;
            queue.next += 1;
            let mut headers = Headers::new();
            if produce.has_id {
                headers.push("id", Some(format!("m{}", produce.number).into()));
            }
            headers.push("seq", Some(seq.to_string().into()));
            headers.push("appended", Some(now_ms.to_string().into()));
            let record = Record {
                key: produce.key.map(|key| format!("k{key}").into()),
                payload: Some(produce.number.to_string().into()),
                headers,
                timestamp_ms: Some(now_ms + produce.clock_off_ms),
                ..Record::at(topic, 0, 0)
            };
            if let Some(key) = record.key.clone() {
                self.keys.entry(key).or_default().insert(produce.number);
            }
            let message = identity.identify(record.clone()).ok();
            let guarded = message.as_ref().and_then(|message| guard_number(spot.consumer, message));
            self.guarded.extend(guarded.map(|guarded| ((*spot, guarded), produce.number)));
            let id = message.map(|message| message.id().as_str().to_owned());
            let published = self.published.entry((*spot, produce.number)).or_insert((0, id.clone()));
            published.0 += 1;
            let entry = Entry {
                record,
                number: produce.number,
                id,
                appended_ms: now_ms,
                delivered: false,
                held: None,
                not_before_ms: 0,
                unseen: false,
            };
            queue.entries.insert(seq, entry);
        }
    }

    pub(crate) fn entry(&self, spot: Spot, seq: i64) -> Option<&Entry> {
        self.queues.get(&spot)?.entries.get(&seq)
    }

    /// The place in its queue of what a channel got under this number, if it still holds it.
    pub(crate) fn delivered(&self, spot: Spot, channel: u64, delivery: i64) -> Option<i64> {
        let mut of_channel = self.queues.get(&spot)?.of(channel);
        let is_it = |entry: &Entry| entry.held.is_some_and(|held| held.delivery == delivery);
        of_channel.find(|(_, entry)| is_it(entry)).map(|(seq, _)| *seq)
    }

    /// It is acknowledged.
    pub(crate) fn remove(&mut self, spot: Spot, seq: i64) {
        if let Some(queue) = self.queues.get_mut(&spot) {
            queue.entries.remove(&seq);
        }
    }

    /// It was not acknowledged, and is there again from that time on.
    pub(crate) fn put_back(&mut self, spot: Spot, seq: i64, not_before_ms: i64) {
        if let Some(entry) = self.queues.get_mut(&spot).and_then(|queue| queue.entries.get_mut(&seq)) {
            (entry.held, entry.delivered, entry.not_before_ms) = (None, true, not_before_ms);
        }
    }

    fn open_channel(&mut self, spot: Spot, actor: Actor) -> u64 {
        let channel = self.next_channel;
        self.next_channel += 1;
        self.channels.insert(channel, Channel { spot, actor, next_delivery: 1 });
        channel
    }

    fn is_open(&self, channel: u64) -> bool {
        self.channels.contains_key(&channel)
    }

    /// The next messages for a channel, as far as its prefetch allows.
    fn deliver(&mut self, channel: u64, most: usize, now_ms: i64) -> Vec<Record> {
        let Some(open) = self.channels.get_mut(&channel) else { return Vec::new() };
        let Some(queue) = self.queues.get_mut(&open.spot) else { return Vec::new() };
        let unacknowledged = queue.of(channel).count();
        let ready =
            queue.entries.values_mut().filter(|entry| entry.is_ready() && entry.not_before_ms <= now_ms);
        let mut records = Vec::new();
        for entry in ready.take(most.saturating_sub(unacknowledged)) {
            let delivery = open.next_delivery;
            open.next_delivery += 1;
            entry.held = Some(Held { channel, delivery, since_ms: now_ms });
            let mut record = entry.record.clone();
            (record.offset, record.redelivered) = (delivery, entry.delivered);
            record.log = Some(LogId::new(format!("channel-{channel}")));
            record.headers.push("writing", Some(channel.to_string().into()));
            records.push(record);
        }
        records
    }

    /// A channel is gone: what it held is there again. How many messages that were.
    fn close_channel(&mut self, channel: u64) -> usize {
        let Some(closed) = self.channels.remove(&channel) else { return 0 };
        let Some(queue) = self.queues.get_mut(&closed.spot) else { return 0 };
        let mut returned = 0;
        for entry in queue.entries.values_mut().filter(|entry| entry.is_held_by(channel)) {
            (entry.held, entry.delivered) = (None, true);
            returned += 1;
        }
        returned
    }

    /// Nothing waits in the queue of a channel; what others hold is not seen.
    fn looks_empty(&mut self, channel: u64) -> bool {
        let queue = self.channels.get(&channel).and_then(|open| self.queues.get_mut(&open.spot));
        let Some(queue) = queue.filter(|queue| !queue.entries.values().any(Entry::is_ready)) else {
            return false;
        };
        queue.entries.values_mut().filter(|entry| !entry.is_held_by(channel)).for_each(|e| e.unseen = true);
        true
    }
}

impl Queue {
    fn of(&self, channel: u64) -> impl Iterator<Item = (&i64, &Entry)> {
        self.entries.iter().filter(move |(_, entry)| entry.is_held_by(channel))
    }
}

impl Entry {
    pub(crate) fn key(&self) -> Option<&Bytes> {
        self.record.key.as_ref()
    }

    fn is_ready(&self) -> bool {
        self.held.is_none()
    }

    fn is_held_by(&self, channel: u64) -> bool {
        self.held.is_some_and(|held| held.channel == channel)
    }
}

/// As the engine computes it from the key of the receipt.
fn guard_number(consumer: usize, message: &Message) -> Option<i64> {
    let consumer = ConsumerName::new(format!("c{consumer}")).ok()?;
    let key = ReceiptKey::of(&consumer, message.tenant(), message.id());
    i64::try_from((u128::from_be_bytes(*key.as_bytes()) as u64) >> 1).ok()
}

impl Inner {
    /// The connection of a process is lost, or of its earlier lives only.
    pub(crate) fn cut_channels(&mut self, which: impl Fn(Actor) -> bool) {
        let channels = self.broker.channels.iter().filter(|(_, open)| which(open.actor));
        let cut: Vec<u64> = channels.map(|(channel, _)| *channel).collect();
        for channel in cut {
            let returned = self.broker.close_channel(channel);
            self.note(|| format!("channel {channel} is gone: {returned} messages come back"));
            self.saw(Event::ConnectionCut);
        }
    }

    /// The broker ends channels that keep a message too long.
    fn end_slow_channels(&mut self) {
        let now = self.now_ms();
        let entries = self.broker.queues.values().flat_map(|queue| queue.entries.values());
        let late =
            entries.filter_map(|entry| entry.held).filter(|held| now - held.since_ms > CONSUMER_TIMEOUT_MS);
        let late: BTreeSet<u64> = late.map(|held| held.channel).collect();
        for channel in late {
            let returned = self.broker.close_channel(channel);
            self.note(|| format!("channel {channel} was too slow: {returned} messages come back"));
            self.saw(Event::ConsumerTimeout);
        }
    }
}
