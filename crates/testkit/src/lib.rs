//! What every oncebox store must do, as one suite. A store's own tests run it with [`conformance!`].

pub mod conformance;
