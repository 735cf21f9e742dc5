//! The loop: claim → handler → position → commit, with lanes, isolation and the crash-loop guard.

mod batch;
mod builder;
pub(crate) mod call;
mod claim;
mod deliveries;
mod fingerprint;
mod gate;
mod guard;
mod handler;
mod held;
mod identity;
mod isolation;
mod item;
mod lane;
mod letters;
mod meters;
mod ownership;
mod partition;
mod policy;
mod progress;
mod purge;
mod queue;
mod queue_lane;
mod queue_notes;
mod receipt;
mod replay;
mod settings;
mod torn;
mod transaction;
mod worker;

use std::sync::Arc;

pub use builder::Inbox;
pub use claim::Receipt;
pub use fingerprint::Fingerprint;
pub use gate::Turn;
pub use handler::{Apply, BatchFn, EachFn, EachJsonFn, Failure, Handler, SendFn};
pub use identity::{Identity, Limits, Parts, PartsError, SelectError, Selector, SelectorSyntaxError, Unfit};
pub use policy::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
pub use purge::purge_loop;
pub use receipt::ReceiptKey;
pub use replay::{Replay, Replayed, replay};
pub use settings::Settings;
pub use worker::Worker;

use crate::monitor::Monitor;
use crate::names::ConsumerName;
use crate::store::Store;
use call::AnyApply;
use gate::Gate;
use isolation::Streak;
use meters::Meters;
pub(crate) use partition::Partition;

/// What the tasks of one consumer share.
struct Engine<S: Store> {
    store: S,
    apply: AnyApply<S>,
    consumer: ConsumerName,
    settings: Settings,
    monitor: Monitor,
    meters: Meters,
    gate: Gate,
    streak: Streak,
}

impl<S: Store> Engine<S> {
    fn new(
        store: S,
        apply: AnyApply<S>,
        consumer: ConsumerName,
        settings: Settings,
        monitor: Monitor,
    ) -> Arc<Self> {
        let meters = Meters::new(&consumer);
        let (gate, streak) = (Gate::default(), Streak::default());
        Arc::new(Self { store, apply, consumer, settings, monitor, meters, gate, streak })
    }
}
