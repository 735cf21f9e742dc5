//! A fixed number of histories, as part of `cargo test`.

use oncebox_simulation::{explain, simulate};

const HISTORIES: u64 = 800;

#[test]
fn the_promise_holds_in_every_history() {
    if let Some(seed) = (0..HISTORIES).find(|seed| simulate(*seed, false).violation.is_some()) {
        panic!("{}", explain(seed));
    }
}
