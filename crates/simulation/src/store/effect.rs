//! What handlers do with their connection.

use oncebox_core::store::{ErrorClass, StoreResult};

use super::access::{away, error};
use super::{Conn, Effect};
use crate::coverage::Event;
use crate::mistake::{Mistake, made};
use crate::plan::Fault;

impl Conn {
    /// The handler's own statement: writes the effect of a message.
    pub(crate) async fn write_effect(&mut self, effect: Effect) -> StoreResult<()> {
        let store = self.store.clone();
        store
            .statement(self.id, |inner, id| {
                if inner.db.table_missing {
                    return Err(error(ErrorClass::Environment, "the table is missing"));
                }
                if inner.db.takes(Fault::Deadlock) {
                    inner.saw(Event::Deadlock);
                    inner.expose(id);
                    if let Some(open) = inner.db.open.get_mut(&id) {
                        open.poisoned = true;
                    }
                    return Err(error(ErrorClass::Transient, "deadlock"));
                }
                if made(Mistake::TwoTransactions) {
                    inner.apply_at_once(effect);
                    return Ok(());
                }
                let Some(open) = inner.db.open.get_mut(&id) else { return Err(away()) };
                open.effects.push(Effect {
                    true_ms: open.began_ms,
                    replayed: open.taken.is_some(),
                    ..effect
                });
                Ok(())
            })
            .await
    }

    /// The transaction is about this message, too.
    pub(crate) fn is_about(&mut self, number: u32) {
        if let Some(open) = self.store.world.lock().db.open.get_mut(&self.id) {
            open.numbers.push(number);
        }
    }

    /// The handler has swallowed an error: nothing else works in this transaction.
    pub(crate) fn poison(&mut self) {
        if let Some(open) = self.store.world.lock().db.open.get_mut(&self.id) {
            open.poisoned = true;
        }
    }
}
