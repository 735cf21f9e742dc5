//! [`Source`] of the model log: opens streams, pushes records, commits what is settled.

use std::collections::BTreeMap;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::source::{Intake, OpenStream, Source, Stream};
use oncebox_core::source::{Known, StartError, start_at};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Stop;
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::store::Spot;
use crate::world::{About, Actor, Inner, World};

/// The shortest and the longest wait between two looks.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_BUSY: Duration = Duration::from_secs(4);
const LOOK_IDLE: Duration = Duration::from_secs(90);
/// How often the end of a log is told.
const TELL_END_MS: i64 = 20_000;
/// A fenced stream is opened anew after this time, if the partition is still ours.
const FENCED_MS: i64 = 20_000;
/// Records that one look pushes.
const FETCH: usize = 10;

/// The source of one consumer in one life of a process.
pub(crate) struct ModelSource {
    pub(crate) world: World,
    pub(crate) actor: Actor,
    pub(crate) consumer: usize,
}

/// A partition that is being read.
struct Reading {
    spot: Spot,
    stream: Stream,
    /// Where the next record is read, once that is decided.
    next: Option<i64>,
    /// Which writing of the log it reads.
    writing: u32,
    told_end_ms: Option<i64>,
    committed: Option<i64>,
    stopped_ms: Option<i64>,
    cannot_begin: Option<StartError>,
    closing: bool,
}

impl Source for ModelSource {
    async fn run(&self, intake: Intake, stop: CancellationToken) -> Result<(), BoxError> {
        let mut open: BTreeMap<Spot, Reading> = BTreeMap::new();
        let mut wait = LOOK_MIN;
        while !stop.is_cancelled() || !open.is_empty() {
            self.world.alive(self.actor).await;
            let mut change = std::pin::pin!(self.world.next(About::Log));
            change.as_mut().enable();
            let moved = self.look(&intake, &mut open, stop.is_cancelled());
            let idle = open.values().all(Reading::is_idle);
            let longest = if idle { LOOK_IDLE } else { LOOK_BUSY };
            wait = if moved { LOOK_MIN } else { (wait * 2).min(longest) };
            // What others do is noticed after a moment, not at once.
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
                || self.next.is_some_and(|next| self.stream.settled().is_none_or(|settled| settled >= next)))
    }
}

impl ModelSource {
    /// One round over all partitions. True if something moved.
    fn look(&self, intake: &Intake, open: &mut BTreeMap<Spot, Reading>, stopping: bool) -> bool {
        let mut moved = false;
        let mine = if stopping { Vec::new() } else { self.world.lock().log.mine(self.consumer, self.actor) };
        for spot in &mine {
            open.entry(*spot).or_insert_with(|| {
                moved = true;
                self.open(intake, *spot)
            });
        }
        for reading in open.values_mut() {
            let leaves = !mine.contains(&reading.spot) || self.must_reopen(reading);
            if leaves && !reading.closing {
                reading.closing = true;
                reading.stream.close();
                moved = true;
            }
            moved |= self.step(intake, reading);
        }
        let closed: Vec<Spot> = open
            .values()
            .filter(|reading| reading.closing && reading.stream.wait_closed(Duration::ZERO))
            .map(|reading| reading.spot)
            .collect();
        for spot in closed {
            if let Some(mut reading) = open.remove(&spot) {
                self.commit(&mut reading);
                let mut inner = self.world.lock();
                inner.log.give_up(spot, self.actor);
                if inner.log.stops.get(&spot).is_some_and(|(by, _)| *by == self.actor) {
                    inner.log.stops.remove(&spot);
                }
                drop(inner);
                self.world.stir(About::Log);
            }
            moved = true;
        }
        moved
    }

    fn open(&self, intake: &Intake, spot: Spot) -> Reading {
        let topic = {
            let mut inner = self.world.lock();
            inner.log.stops.remove(&spot);
            inner.log.topic_name(spot.place.topic)
        };
        let partition = i32::try_from(spot.place.partition).unwrap_or_default();
        let stream = intake.open(OpenStream::new(topic, partition));
        Reading {
            spot,
            stream,
            next: None,
            writing: 0,
            told_end_ms: None,
            committed: None,
            stopped_ms: None,
            cannot_begin: None,
            closing: false,
        }
    }

    /// The log is another one, an operator has asked for it, or the stream was fenced although the partition is ours.
    fn must_reopen(&self, reading: &mut Reading) -> bool {
        let mut inner = self.world.lock();
        let now = inner.now_ms();
        if inner.log.reopen.remove(&reading.spot) {
            return true;
        }
        if reading.stream.is_fenced() {
            return now - *reading.stopped_ms.get_or_insert(now) > FENCED_MS;
        }
        reading.next.is_some() && inner.log.partition(reading.spot.place).writing != reading.writing
    }

    fn step(&self, intake: &Intake, reading: &mut Reading) -> bool {
        if let Some(reason) = reading.stream.stopped() {
            if !reading.stream.is_fenced() {
                let mut inner = self.world.lock();
                if inner.log.stops.get(&reading.spot).is_none_or(|(by, _)| *by != self.actor) {
                    self.report(&mut inner, reading, reason);
                }
            }
            return false;
        }
        let moved = match reading.next {
            None => self.begin(intake, reading),
            Some(next) => !reading.closing && self.push(reading, next),
        };
        self.commit(reading) || moved
    }

    /// Says why the partition stands still; again, if somebody else has had it meanwhile.
    fn report(&self, inner: &mut Inner, reading: &Reading, reason: &str) {
        let spot = reading.spot;
        let stop = match &reading.cannot_begin {
            Some(error) => Stop::Start(error.clone()),
            None if reason.contains("written anew") => {
                Stop::Start(StartError::Rewritten { offset: 0, next: 0 })
            }
            None => Stop::Halted(reason.to_owned()),
        };
        if inner.log.stand_still(spot, self.actor, stop.clone()) {
            inner.note(|| format!("p{} stands still at {}: {reason}", self.actor.process, spot.place));
            inner.saw(match stop {
                Stop::Halted(_) => Event::Halted,
                Stop::Start(StartError::Gap { .. }) => Event::StopGap,
                Stop::Start(StartError::Truncated { .. } | StartError::LostEnd { .. }) => {
                    Event::StopTruncated
                }
                Stop::Start(StartError::OtherLog { .. }) => Event::StopOtherLog,
                Stop::Start(StartError::Rewritten { .. }) => Event::StopRewritten,
                Stop::Start(StartError::GroupOnly { .. } | StartError::Unknown) => Event::StopGroupOnly,
            });
        }
    }

    fn begin(&self, intake: &Intake, reading: &mut Reading) -> bool {
        let Some(stored) = reading.stream.acquired() else { return false };
        let mut inner = self.world.lock();
        let spot = reading.spot;
        let partition = inner.log.partition(spot.place);
        let (writing, low, high) = (partition.writing, partition.low, partition.end());
        let mut known = Known {
            stored,
            committed: inner.log.committed.get(&spot).copied(),
            log: Some(inner.log.id(spot.place.topic)),
            low,
            high,
        };
        if made(Mistake::LogWithoutIdentity) {
            (known.log, known.stored.log, known.stored.mark) = (None, None, None);
        }
        if made(Mistake::JumpOverGap) {
            known.stored.next_offset = known.stored.next_offset.map(|next| next.max(low));
        }
        match start_at(known, intake.start_policy()) {
            Ok(start) => {
                reading.writing = writing;
                reading.next = Some(start.read_from);
                inner.log.begun.insert(spot, writing);
                if inner.log.reached.get(&spot).is_some_and(|reached| start.offset < *reached) {
                    // What was read before is there again.
                    let now = inner.now_ms();
                    inner.log.reread.push((spot, start.offset, now));
                }
                inner.note(|| {
                    format!("p{} reads {} from {}", self.actor.process, spot.place, start.read_from)
                });
                drop(inner);
                reading.stream.start(start);
            }
            Err(error) => {
                drop(inner);
                reading.stream.stop(error.explain(reading.stream.key()));
                reading.cannot_begin = Some(error);
            }
        }
        true
    }

    fn push(&self, reading: &mut Reading, next: i64) -> bool {
        let (records, low, high, now) = {
            let inner = self.world.lock();
            let partition = inner.log.partition(reading.spot.place);
            let until = next + i64::try_from(FETCH).unwrap_or_default();
            let records: Vec<_> = (next..partition.end().min(until))
                .map(|o| (o, partition.at(o).map(|e| e.record.clone())))
                .collect();
            (records, partition.low, partition.end(), inner.now_ms())
        };
        if next < low && !made(Mistake::JumpOverGap) {
            let error = StartError::Gap { next, low };
            reading.stream.stop(error.explain(reading.stream.key()));
            reading.cannot_begin = Some(error);
            return true;
        }
        let mut moved = false;
        let mut skipped = false;
        for (offset, record) in records {
            if reading.stream.is_full() {
                break;
            }
            skipped = record.is_none();
            if let Some(record) = record {
                reading.stream.push(record);
            }
            reading.next = Some(offset + 1);
            moved = true;
        }
        if let Some(next) = reading.next.filter(|_| skipped) {
            reading.stream.skip_to(next);
        }
        if reading.told_end_ms.is_none_or(|told| now - told >= TELL_END_MS) {
            reading.told_end_ms = Some(now);
            reading.stream.log_ends_at(high, Instant::now());
        }
        moved
    }

    /// Commits what is settled, if the broker still takes it.
    fn commit(&self, reading: &mut Reading) -> bool {
        let settled = reading.stream.settled();
        if settled.is_none() || settled <= reading.committed {
            return false;
        }
        reading.committed = settled;
        let mut inner = self.world.lock();
        let holds = inner.log.assigned.get(&reading.spot).is_some_and(|a| a.holder == Some(self.actor));
        // Kafka knows topics by their names; here an offset of the log that was is not committed for the one that is.
        let same = inner.log.partition(reading.spot.place).writing == reading.writing;
        if let Some(offset) = settled.filter(|_| holds && same) {
            inner.check_acknowledged(reading.spot, offset);
            inner.log.committed.insert(reading.spot, offset);
        }
        true
    }
}
