//! [`Source`] of the model broker: opens a stream for each channel, hands over, acknowledges what is answered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use oncebox_core::backoff::GIVEN_BACK;
use oncebox_core::error::BoxError;
use oncebox_core::message::Record;
use oncebox_core::source::{Answered, Instant, Intake, OpenStream, Source, Stream};
use tokio_util::sync::CancellationToken;

use crate::coverage::Event;
use crate::store::Spot;
use crate::world::{About, Actor, World};

/// The shortest and the longest wait between two looks.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_BUSY: Duration = Duration::from_secs(4);
const LOOK_IDLE: Duration = Duration::from_secs(90);
/// How often the broker is asked whether something waits.
const ASK_EVERY_MS: i64 = 60_000;
/// A lost connection is opened again after at most this time.
const RECONNECT_MS: i64 = 5_000;

/// The source of one consumer in one life of a process.
pub(crate) struct QueueSource {
    pub(crate) world: World,
    pub(crate) actor: Actor,
    pub(crate) consumer: usize,
}

/// A channel and its stream.
struct Reading {
    spot: Spot,
    channel: u64,
    stream: Stream,
    /// What the engine has answered and the broker was not told yet.
    answers: Arc<Mutex<Vec<Answered>>>,
    /// Delivered, but the stream is full.
    waiting: VecDeque<Record>,
    /// Handed over and not answered.
    open: BTreeSet<i64>,
    /// When the broker was last asked, and the question that it has not answered yet.
    asked_ms: i64,
    asking: Option<Instant>,
    closing: bool,
}

impl Source for QueueSource {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        let mut open: BTreeMap<Spot, Reading> = BTreeMap::new();
        let mut connect_ms: BTreeMap<Spot, i64> = BTreeMap::new();
        let mut wait = LOOK_MIN;
        while !stop.is_cancelled() || !open.is_empty() {
            self.world.alive(self.actor).await;
            let mut change = std::pin::pin!(self.world.next(About::Log));
            change.as_mut().enable();
            let mut moved = false;
            // What is delivered and not answered while the consumer is paused would run into the broker's timeout.
            let leaves = stop.is_cancelled() || intake.is_paused();
            if !leaves {
                moved |= self.connect(&intake, &mut open, &connect_ms);
            }
            for reading in open.values_mut() {
                moved |= self.look(reading, leaves);
            }
            moved |= self.remove_closed(&mut open, &mut connect_ms);
            let idle = open.values().all(Reading::is_idle);
            let longest = if idle { LOOK_IDLE } else { LOOK_BUSY };
            wait = if moved { LOOK_MIN } else { (wait * 2).min(longest) };
            let ears = async {
                change.await;
                tokio::time::sleep(LOOK_MIN).await;
            };
            tokio::select! {
                biased;
                () = stop.cancelled(), if !stop.is_cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = ears, if idle => wait = LOOK_MIN,
            }
        }
        Ok(())
    }
}

impl Reading {
    /// Nothing is to be expected of it soon.
    fn is_idle(&self) -> bool {
        !self.closing
            && (self.stream.stopped().is_some()
                || (self.open.is_empty() && self.waiting.is_empty() && self.asking.is_none()))
    }
}

impl QueueSource {
    fn connect(
        &self,
        intake: &Intake,
        open: &mut BTreeMap<Spot, Reading>,
        connect_ms: &BTreeMap<Spot, i64>,
    ) -> bool {
        let mut inner = self.world.lock();
        let now = inner.now_ms();
        let mine: Vec<Spot> =
            inner.broker.queues.keys().copied().filter(|spot| spot.consumer == self.consumer).collect();
        let due = |spot: &Spot| connect_ms.get(spot).is_none_or(|at| *at <= now);
        let mut moved = false;
        for spot in mine.into_iter().filter(due) {
            if open.contains_key(&spot) {
                continue;
            }
            moved = true;
            let channel = inner.broker.open_channel(spot, self.actor);
            inner.note(|| format!("p{} opens channel {channel} to {}", self.actor.process, spot.place));
            let answers: Arc<Mutex<Vec<Answered>>> = Arc::default();
            let heard = Arc::clone(&answers);
            let mut queue =
                OpenStream::queue(inner.log.topic_name(spot.place.topic)).on_answer(move |answered| {
                    heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(answered);
                });
            // Half of the queues are those of a broker, the others have senders who wait.
            if inner.config.prefetch.is_some_and(|messages| messages % 2 == 0) {
                queue = queue.give_back_after(GIVEN_BACK);
            }
            let reading = Reading {
                spot,
                channel,
                stream: intake.open(queue),
                answers,
                waiting: VecDeque::new(),
                open: BTreeSet::new(),
                asked_ms: now,
                asking: None,
                closing: false,
            };
            open.insert(spot, reading);
        }
        moved
    }

    /// One look at a channel. True if something moved.
    fn look(&self, reading: &mut Reading, stopping: bool) -> bool {
        let mut inner = self.world.lock();
        inner.end_slow_channels();
        let wanted = (reading.spot, self.actor.process);
        let leaves =
            stopping || !inner.broker.is_open(reading.channel) || inner.broker.reopen.remove(&wanted);
        if leaves && !reading.closing {
            reading.closing = true;
            drop(inner);
            reading.stream.close();
            return true;
        }
        drop(inner);
        let mut moved = self.tell_answers(reading);
        if reading.closing {
            return moved;
        }
        if let Some(reason) = reading.stream.stopped() {
            let mut inner = self.world.lock();
            if inner.broker.stops.insert(wanted, (self.actor, reason.to_owned())).is_none() {
                inner.note(|| {
                    format!("p{} stands still at {}: {reason}", self.actor.process, reading.spot.place)
                });
                inner.saw(Event::QueueHalted);
            }
            return moved;
        }
        moved |= self.ask(reading);
        moved |= self.receive(reading);
        moved
    }

    /// Whether something waits: asked at one look, behind the acknowledgements, and answered at the next.
    fn ask(&self, reading: &mut Reading) -> bool {
        let mut inner = self.world.lock();
        let now = inner.now_ms();
        if let Some(asked) = reading.asking.take() {
            if reading.waiting.is_empty() && inner.broker.looks_empty(reading.channel) {
                drop(inner);
                reading.stream.nothing_waits(asked);
            }
            return true;
        }
        if now - reading.asked_ms >= ASK_EVERY_MS {
            (reading.asked_ms, reading.asking) = (now, Some(Instant::now()));
            return true;
        }
        false
    }

    fn receive(&self, reading: &mut Reading) -> bool {
        {
            let mut inner = self.world.lock();
            let (now, most) = (inner.now_ms(), inner.config.prefetch.unwrap_or(1));
            let records = inner.broker.deliver(reading.channel, most, now);
            for record in &records {
                inner.saw(if record.redelivered { Event::Redelivered } else { Event::Delivered });
            }
            reading.waiting.extend(records);
        }
        let mut moved = false;
        while !reading.stream.is_full()
            && let Some(record) = reading.waiting.pop_front()
        {
            let delivery = record.offset;
            if reading.stream.push(record) {
                reading.open.insert(delivery);
            } else if reading.stream.stopped().is_none() {
                self.world.lock().violate(format!("a stream does not take delivery {delivery}"));
            }
            moved = true;
        }
        moved
    }

    /// Acknowledges what is settled, and returns what was given back.
    fn tell_answers(&self, reading: &mut Reading) -> bool {
        let answers = std::mem::take(&mut *reading.answers.lock().unwrap_or_else(PoisonError::into_inner));
        let moved = !answers.is_empty();
        let mut inner = self.world.lock();
        for Answered { delivery, answer, .. } in answers {
            if !reading.open.remove(&delivery) {
                inner.violate(format!("delivery {delivery} of {} is answered twice", reading.spot.place));
            }
            inner.answered(reading.spot, reading.channel, delivery, &answer);
        }
        moved
    }

    /// Channels whose stream has ended are closed in good order.
    fn remove_closed(
        &self,
        open: &mut BTreeMap<Spot, Reading>,
        connect_ms: &mut BTreeMap<Spot, i64>,
    ) -> bool {
        let ended = |reading: &&Reading| reading.closing && reading.stream.wait_closed(Duration::ZERO);
        let closed: Vec<Spot> = open.values().filter(ended).map(|reading| reading.spot).collect();
        for spot in &closed {
            let Some(mut reading) = open.remove(spot) else { continue };
            self.tell_answers(&mut reading);
            let mut inner = self.world.lock();
            if let Some(left) = reading.open.first() {
                let what =
                    format!("a stream has closed without an answer to delivery {left} of {}", spot.place);
                inner.violate(what);
            }
            inner.broker.close_channel(reading.channel);
            inner.broker.stops.remove(&(*spot, self.actor.process));
            let wait = inner.rng.i64(0..RECONNECT_MS);
            connect_ms.insert(*spot, inner.now_ms() + wait);
            drop(inner);
            self.world.stir(About::Log);
        }
        !closed.is_empty()
    }
}
