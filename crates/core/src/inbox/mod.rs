//! The loop: claim → handler → position → commit, with lanes, isolation and the crash-loop guard.

mod batch;
mod builder;
pub(crate) mod call;
mod cause;
mod claim;
mod deliveries;
mod filter;
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
mod memory;
mod meters;
mod ownership;
mod partition;
mod pauses;
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
mod trace;
mod transaction;
mod worker;

use std::sync::Arc;

pub use builder::Inbox;
pub use claim::Receipt;
pub use filter::Filter;
pub use fingerprint::Fingerprint;
pub use gate::Turn;
pub use handler::{Apply, BatchFn, EachFn, EachJsonFn, Failure, Handler, SendFn};
pub use identity::{Identity, Limits, Parts, PartsError, SelectError, Selector, SelectorSyntaxError, Unfit};
pub use memory::Memory;
pub use pauses::PauseWatch;
pub use policy::{BatchBounds, OnFailure, RetryPolicy, StalePolicy, StartPolicy};
pub use purge::purge_loop;
pub use receipt::ReceiptKey;
pub use replay::{Replay, Replayed, replay};
pub use settings::Settings;
pub use worker::Worker;

use crate::connections::Connections;
use crate::line_limit::LineLimit;
use crate::live::Live;
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
    retry: Live<RetryPolicy>,
    monitor: Monitor,
    meters: Meters,
    gate: Gate,
    streak: Streak,
    connections: Connections,
    turns: ownership::Turns,
    /// Of messages that become dead letters untried.
    unseen: LineLimit,
}

impl<S: Store> Engine<S> {
    fn new(
        store: S,
        apply: AnyApply<S>,
        consumer: ConsumerName,
        settings: Settings,
        retry: Live<RetryPolicy>,
        monitor: Monitor,
    ) -> Arc<Self> {
        let meters = Meters::new(&consumer, &monitor);
        let (gate, streak) = (Gate::default(), Streak::default());
        let turns = ownership::Turns::default();
        let (connections, unseen) = (Connections::new(settings.max_connections), LineLimit::default());
        Arc::new(Self {
            store,
            apply,
            consumer,
            settings,
            retry,
            monitor,
            meters,
            gate,
            streak,
            turns,
            connections,
            unseen,
        })
    }
}
