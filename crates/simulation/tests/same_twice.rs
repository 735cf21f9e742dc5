//! The same seed gives the same history, line by line.
//!
//! A test target of its own: the signal that wakes relays is one for a whole process, so histories that run side by side in
//! one process would hear each other.

use oncebox_simulation::simulate;

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..60 {
        let (one, two) = (simulate(seed, true), simulate(seed, true));
        assert_eq!(one.trace, two.trace, "seed {seed}");
    }
}
