//! The engine and the relay of oncebox in a simulated world.
//!
//! The real code of `oncebox-core` runs on tokio's paused clock, in one thread, against a model database, a model log and a
//! model sink. Everything random comes from one seed, so the same seed gives the same history. A history is a random mixture
//! of messages, duplicates, poison, faults, restarts and hours that pass; during and after it the promises of
//! `ARCHITECTURE.md` are checked against the simplest possible reference.

mod broker;
mod check;
mod coverage;
mod handler;
mod log;
mod messages;
mod mistake;
mod operator;
mod plan;
mod process;
mod run;
mod shrink;
mod sink;
mod store;
mod world;

use std::fmt::Write as _;
use std::sync::Once;

pub use coverage::{Coverage, Event};
pub use mistake::{Mistake, make};
pub use run::Ended;
pub use store::{Conn, Model, ModelStore, Txn};

/// Runs the history of a seed.
#[must_use]
pub fn simulate(seed: u64, traced: bool) -> Ended {
    hush_planned_panics();
    run::run(&plan::Plan::of(seed), traced)
}

/// The history of a seed that fails, made short, for people.
#[must_use]
pub fn explain(seed: u64) -> String {
    hush_planned_panics();
    let (plan, ended) = shrink::shrink(plan::Plan::of(seed));
    let mut text = format!("seed {seed}: {}\n", ended.violation.as_deref().unwrap_or("does not fail"));
    // Writing to a string cannot fail.
    writeln!(text, "with {:?}\nthe history, cut to {} steps:", plan.config, plan.steps.len()).ok();
    for line in ended.trace {
        writeln!(text, "  {line}").ok();
    }
    writeln!(text, "again: cargo xtask simulate --seed {seed}").ok();
    text
}

/// Panics that belong to a plan are not printed.
fn hush_planned_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<run::Planned>() {
                usual(info);
            }
        }));
    });
}
