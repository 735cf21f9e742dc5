//! The loop: claim → handler → position → commit, with lanes, isolation and the crash-loop guard.

mod blame;
mod gate;
mod guard;
mod lane;
mod meters;
mod partition;
mod probe;
mod purge;
mod replay;
mod settle;
mod streak;
mod transact;
mod turn;
mod worker;

use std::sync::Arc;

pub use purge::purge_loop;
pub use replay::{Replay, Replayed, replay};
pub use turn::Turn;
pub use worker::{Inbox, Worker};

use crate::handler::Apply;
use crate::monitor::Monitor;
use crate::names::ConsumerName;
use crate::settings::Settings;
use crate::store::Store;
use gate::Gate;
use meters::Meters;
use streak::Streak;

/// What the tasks of one consumer share.
pub(crate) struct Engine<S, A> {
    pub(crate) store: S,
    pub(crate) apply: A,
    pub(crate) consumer: ConsumerName,
    pub(crate) settings: Settings,
    pub(crate) monitor: Monitor,
    pub(crate) meters: Meters,
    gate: Gate,
    streak: Streak,
}

impl<S: Store, A: Apply<S>> Engine<S, A> {
    pub(crate) fn new(
        store: S,
        apply: A,
        consumer: ConsumerName,
        settings: Settings,
        monitor: Monitor,
    ) -> Arc<Self> {
        let meters = Meters::new(&consumer);
        let (gate, streak) = (Gate::default(), Streak::default());
        Arc::new(Self { store, apply, consumer, settings, monitor, meters, gate, streak })
    }
}
