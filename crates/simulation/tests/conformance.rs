//! The model database does what every store must do, so that what the simulation finds is true of them, too.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_simulation::{Conn, Model, ModelStore};
use oncebox_testkit::conformance::Subject;

/// A model database without a history, in real time: the suite asks several processes at once and looks at the clock.
struct Quiet(Model);

impl Subject for Quiet {
    type Store = ModelStore;

    async fn start() -> Result<Self, BoxError> {
        Ok(Self(Model::default()))
    }

    async fn connect(&self) -> Result<ModelStore, BoxError> {
        Ok(self.0.store())
    }

    async fn connection(&self) -> Result<Conn, BoxError> {
        Ok(self.0.connection())
    }

    async fn add_effect(conn: &mut Conn, id: &str) -> Result<(), BoxError> {
        Ok(conn.add_effect(id).await?)
    }

    async fn violate_unique(conn: &mut Conn) -> Result<(), BoxError> {
        Ok(conn.violate_unique().await?)
    }

    async fn effects(&self) -> Result<Vec<String>, BoxError> {
        Ok(self.0.effects())
    }

    async fn receipts(&self, consumer: &str) -> Result<Vec<String>, BoxError> {
        Ok(self.0.receipts(consumer))
    }

    async fn age_receipts(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.0.age_receipts(consumer, by);
        Ok(())
    }

    async fn age_positions(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.0.age_positions(consumer, by);
        Ok(())
    }

    /// The model tells the group of a letter by its error.
    async fn forget_groups(&self) -> Result<(), BoxError> {
        Ok(())
    }

    async fn expire_purger(&self) -> Result<(), BoxError> {
        self.0.expire_purger();
        Ok(())
    }
}

// Not the schema: the model has no tables that somebody makes. Not the sweeps: it knows no query language. No history has
// to do with either.
oncebox_testkit::conformance!(receipts of Quiet);
oncebox_testkit::conformance!(positions of Quiet);
oncebox_testkit::conformance!(outbox of Quiet);
