//! What operators do: they look after what stands still, replay, move, retire. Each act is a process of its own.

use oncebox_core::inbox::{Inbox, OnFailure, Replayed, Settings};
use oncebox_core::names::ConsumerName;
use oncebox_core::outbox::{Event as Emitted, emit_all};
use oncebox_core::source::StartError;
use oncebox_core::store::{
    DeadFilter, DeadLetters, EventFilter, OutboxAdmin, PauseNote, Pauses, Positions, Store,
};

use crate::coverage::Event;
use crate::handler::{OneMessage, WholeBatch};
use crate::log::Stop;
use crate::store::{ModelStore, Spot};
use crate::world::{Actor, World};

/// Somebody with a command line.
pub(crate) struct Operator {
    world: World,
    store: ModelStore,
}

impl Operator {
    pub(crate) fn new(world: &World) -> Self {
        let mut inner = world.lock();
        let process = inner.config.processes;
        let state = &mut inner.processes[process];
        if !state.up {
            state.up = true;
            state.life += 1;
        }
        let actor = Actor { process, life: state.life };
        drop(inner);
        Self { world: world.clone(), store: ModelStore { world: world.clone(), actor } }
    }

    /// Looks after everything that stands still.
    pub(crate) async fn look_after(&self) {
        self.world.lock().cure_queues();
        let stops: Vec<(Spot, Stop)> =
            self.world.lock().log.stops.iter().map(|(spot, (_, stop))| (*spot, stop.clone())).collect();
        for (spot, stop) in stops {
            if !self.world.lock().log.topics[spot.place.topic].exists {
                continue;
            }
            match stop {
                Stop::Halted(reason) => self.cure(spot, &reason).await,
                Stop::Start(StartError::Gap { next, .. }) => {
                    let (low, stored) = {
                        let inner = self.world.lock();
                        let row = inner.db.tables.positions.get(&spot);
                        (inner.log.partition(spot.place).low, row.and_then(|row| row.next_offset))
                    };
                    // What was read and not applied is lost as well.
                    let next = stored.map_or(next, |stored| stored.min(next));
                    self.move_to(spot, low).await;
                    let mut inner = self.world.lock();
                    inner.forgive(spot, next, low);
                    inner.saw(Event::MovedForward);
                }
                Stop::Start(_) => {
                    let (low, end, forward) = {
                        let mut inner = self.world.lock();
                        let partition = inner.log.partition(spot.place);
                        let (low, end) = (partition.low, partition.end());
                        (low, end, inner.one_in(8) && !inner.config.rewrites)
                    };
                    let to = if forward { end } else { low };
                    self.move_to(spot, to).await;
                    let mut inner = self.world.lock();
                    inner.forgive(spot, 0, to);
                    inner.saw(if forward { Event::MovedForward } else { Event::MovedBack });
                }
            }
            self.world.lock().log.reopen.insert(spot);
            self.world.stir_all();
        }
        self.retire_what_is_gone().await;
    }

    /// Mends what is wrong with the next messages, and clears what the crash guard has counted.
    async fn cure(&self, spot: Spot, reason: &str) {
        let next = {
            let mut inner = self.world.lock();
            let next = inner.db.tables.positions.get(&spot).and_then(|row| row.next_offset).unwrap_or(0);
            let ahead = next..next + 40;
            let numbers: Vec<u32> = ahead
                .filter_map(|offset| inner.log.partition(spot.place).at(offset))
                .map(|e| e.number)
                .collect();
            for number in numbers {
                if let Some(sent) = inner.messages.get_mut(number) {
                    sent.mended = true;
                }
            }
            inner.saw(Event::Mended);
            next
        };
        if reason.contains("position move") {
            self.move_to(spot, next).await;
        }
    }

    /// Pauses a consumer. If the answer gets lost, it may be paused all the same.
    pub(crate) async fn pause(&self, consumer: usize) {
        let Ok(name) = ConsumerName::new(format!("c{consumer}")) else { return };
        self.world.lock().saw(Event::Paused);
        self.store.pause(&name, &PauseNote::by("an operator")).await.ok();
    }

    /// Lets it go on.
    pub(crate) async fn resume(&self, consumer: usize) {
        let Ok(name) = ConsumerName::new(format!("c{consumer}")) else { return };
        if self.store.resume(&name).await.unwrap_or(false) {
            self.world.lock().saw(Event::Resumed);
        }
    }

    /// Moves a position. If the answer gets lost, it may have moved all the same.
    async fn move_to(&self, spot: Spot, offset: i64) {
        let (key, log) = {
            let mut inner = self.world.lock();
            inner.note(|| format!("an operator moves c{} in {} to {offset}", spot.consumer, spot.place));
            // Also when the answer gets lost, everything from there on may be read again.
            let now = inner.now_ms();
            inner.log.reread.push((spot, offset, now));
            (inner.log.key(spot), inner.log.id(spot.place.topic))
        };
        if let Some(key) = key {
            self.store.move_position(&key, offset, Some(&log)).await.ok();
        }
    }

    /// Moves a position back, if it belongs to the log that is there.
    pub(crate) async fn move_back(&self, spot: Spot, records: i64) {
        let to = {
            let inner = self.world.lock();
            let partition = inner.log.partition(spot.place);
            let row = inner.db.tables.positions.get(&spot);
            let same = inner.log.begun.get(&spot) == Some(&partition.writing)
                && inner.log.topics[spot.place.topic].exists
                && !inner.log.stops.contains_key(&spot);
            let next = row.and_then(|row| row.next_offset).filter(|next| same && *next >= partition.low);
            next.map(|next| (next - records).max(partition.low))
        };
        if let Some(to) = to {
            self.move_to(spot, to).await;
            self.world.lock().saw(Event::MovedBack);
        }
    }

    async fn retire_what_is_gone(&self) {
        let (topics, consumers) = {
            let inner = self.world.lock();
            let gone = inner.log.topics.iter().enumerate().filter(|(_, topic)| !topic.exists);
            (gone.map(|(at, _)| at).collect::<Vec<_>>(), inner.config.consumers)
        };
        for topic in topics {
            for consumer in 0..consumers {
                let Ok(name) = ConsumerName::new(format!("c{consumer}")) else { continue };
                if self.store.retire_positions(&name, &format!("t{topic}")).await.is_ok_and(|rows| rows > 0) {
                    self.world.lock().saw(Event::Retired);
                }
            }
        }
    }

    async fn letters(&self) -> Vec<(i64, String)> {
        let filter = DeadFilter { limit: 100, ..DeadFilter::default() };
        let letters = self.store.dead_letters(&filter).await.unwrap_or_default();
        letters.into_iter().map(|letter| (letter.number, letter.consumer)).collect()
    }

    /// Replays a letter, mostly after mending it.
    pub(crate) async fn replay(&self, forced: bool) {
        let letters = self.letters().await;
        if letters.is_empty() {
            return;
        }
        let (number, consumer) = letters[self.world.lock().rng.usize(0..letters.len())].clone();
        let (settings, set_based, handler) = {
            let mut inner = self.world.lock();
            let consumer = inner.log.consumer_index(&consumer);
            let sent = inner
                .db
                .tables
                .letters
                .get(&number)
                .map(|row| crate::log::number_of(&row.stored.letter.record));
            let mends = !inner.one_in(4);
            if let Some(sent) = sent.and_then(|sent| inner.messages.get_mut(sent)).filter(|_| mends) {
                sent.mended = true;
            }
            inner.forced_replay |= forced;
            let on_failure = if forced { OnFailure::Park } else { inner.config.on_failure };
            let mut settings = Settings::default();
            (settings.identity, settings.on_failure) = (inner.config.identity(), on_failure);
            let handler = OneMessage { world: self.world.clone(), actor: self.store.actor, consumer };
            (settings, inner.config.set_based, handler)
        };
        let Ok(inbox) = Inbox::new(consumer, self.store.clone()) else { return };
        let inbox = inbox.settings(settings);
        let worker = if set_based { inbox.apply(WholeBatch(handler)) } else { inbox.with(handler) };
        let replayed = worker.replay(number).await;
        self.world.lock().saw(match replayed {
            Ok(Replayed::Applied) if forced => Event::ReplayedForced,
            Ok(Replayed::Applied) => Event::Replayed,
            Ok(Replayed::Behind(_)) => Event::ReplayBehind,
            _ => return,
        });
    }

    /// Drops a letter for good.
    pub(crate) async fn drop_letter(&self) {
        let letters = self.letters().await;
        if letters.is_empty() {
            return;
        }
        let (number, _) = letters[self.world.lock().rng.usize(0..letters.len())];
        let filter = DeadFilter { numbers: vec![number], limit: 1, ..DeadFilter::default() };
        if self.store.drop_dead(&filter).await.is_ok_and(|dropped| dropped > 0) {
            self.world.lock().saw(Event::Dropped);
        }
    }

    /// An application writes events in a transaction of its own.
    pub(crate) async fn emit(&self, key: u32) {
        let mut txn = self.store.begin();
        let events: Vec<Emitted> =
            (0..2).map(|n| Emitted::to("out0").key(format!("k{key}")).bytes(format!("{n}"))).collect();
        if emit_all::<ModelStore>(&mut txn, &events).await.is_err() {
            return;
        }
        if self.world.lock().one_in(4) {
            self.store.rollback(txn).await;
        } else if self.store.commit(txn, None).await.is_ok() {
            oncebox_core::outbox::events_committed();
            self.world.lock().saw(Event::AppEmitted);
        }
    }

    /// Gives parked events another chance.
    pub(crate) async fn retry_events(&self) {
        if self
            .store
            .retry_events(&EventFilter { limit: u32::MAX, ..EventFilter::default() })
            .await
            .is_ok_and(|retried| retried > 0)
        {
            self.world.lock().saw(Event::EventRetried);
        }
    }
}
