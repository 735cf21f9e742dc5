//! The loop: claim → handler → position → commit, with lanes, isolation and the crash-loop guard.

mod batch;
mod blame;
mod claim;
mod ends;
mod gate;
mod guard;
mod handler;
mod identity;
mod isolation;
mod lane;
pub(crate) mod log;
mod meters;
mod partition;
mod policy;
mod probe;
mod purge;
mod receipt;
mod replay;
mod settings;
pub(crate) mod start;
mod streak;
pub(crate) mod stream;
mod tracker;
mod transaction;
mod turn;
mod worker;

use std::sync::Arc;

pub use claim::Receipt;
pub use handler::{
    Apply, AsBatch, BatchFn, ByMessage, ByPayload, Failure, Handler, HandlerFn, OneByOne, SendFn, TypedFn,
};
pub use identity::{Identity, Limits, SelectError, Selector, SelectorSyntaxError, Unfit};
pub use policy::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
pub use purge::purge_loop;
pub use receipt::ReceiptKey;
pub use replay::{Replay, Replayed, replay};
pub use settings::Settings;
pub use turn::Turn;
pub use worker::{Inbox, Worker};

use crate::monitor::Monitor;
use crate::names::ConsumerName;
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

impl<S, A> Engine<S, A> {
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
