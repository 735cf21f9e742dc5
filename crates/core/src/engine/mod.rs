//! The loop: claim → handler → position → commit, with lanes, isolation and the crash-loop guard.

mod lane;
mod meters;
mod partition;
mod purge;
mod replay;
mod settle;
mod transact;
mod worker;

use std::sync::Arc;

pub use purge::purge_loop;
pub use replay::{Replayed, replay};
pub use worker::{Inbox, Worker};

use crate::handler::Apply;
use crate::monitor::Monitor;
use crate::names::ConsumerName;
use crate::settings::Settings;
use crate::store::Store;
use meters::Meters;

/// What the tasks of one consumer share.
pub(crate) struct Engine<S, A> {
    pub(crate) store: S,
    pub(crate) apply: A,
    pub(crate) consumer: ConsumerName,
    pub(crate) settings: Settings,
    pub(crate) monitor: Monitor,
    pub(crate) meters: Meters,
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
        Arc::new(Self { store, apply, consumer, settings, monitor, meters })
    }
}
