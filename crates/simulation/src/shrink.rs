//! Makes a failing plan short enough to read: takes steps out and runs it again, as long as it still fails.

use crate::plan::Plan;
use crate::run::{Ended, run};

/// How many runs the search may take.
const MAX_RUNS: usize = 600;

/// The shortest failing plan that was found, with what came of it.
pub(crate) fn shrink(mut plan: Plan) -> (Plan, Ended) {
    let mut runs = 0;
    let mut piece = plan.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut smaller = false;
        while at < plan.steps.len() && runs < MAX_RUNS {
            let mut less = plan.clone();
            less.steps.drain(at..(at + piece).min(plan.steps.len()));
            runs += 1;
            if run(&less, false).violation.is_some() {
                plan = less;
                smaller = true;
            } else {
                at += piece;
            }
        }
        if runs >= MAX_RUNS || (piece == 1 && !smaller) {
            break;
        }
        if !smaller {
            piece = piece.div_ceil(2);
        }
    }
    let ended = run(&plan, true);
    (plan, ended)
}
