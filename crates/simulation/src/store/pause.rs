//! Consumers that an operator has paused, and who knows of it.

use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Pause, PauseNote, Pauses, StoreResult};

use super::ModelStore;
use super::access::away_error;
use crate::world::{Actor, Inner};

/// Who has known of a pause for so long has had time to end everything, also if it was frozen meanwhile.
const OBEYED_WITHIN_MS: i64 = 300_000;

impl Pauses for ModelStore {
    async fn pause(&self, consumer: &ConsumerName, note: &PauseNote) -> StoreResult<bool> {
        self.operation(|inner| {
            let pause = Pause {
                consumer: consumer.to_string(),
                since_ms: inner.db_now_ms(),
                by: note.who().to_owned(),
                reason: note.reason().map(str::to_owned),
            };
            let paused = &mut inner.db.tables.paused;
            let is_new = !paused.contains_key(consumer.as_str());
            paused.entry(consumer.to_string()).or_insert(pause);
            Ok(is_new)
        })
        .await
    }

    async fn resume(&self, consumer: &ConsumerName) -> StoreResult<bool> {
        self.operation(|inner| Ok(inner.db.tables.paused.remove(consumer.as_str()).is_some())).await
    }

    /// Takes no time and draws no chance: every process asks again and again.
    async fn paused(&self) -> StoreResult<Vec<Pause>> {
        self.world.alive(self.actor).await;
        let mut inner = self.world.lock();
        if inner.db.away {
            return Err(away_error());
        }
        inner.knows_of_pauses(self.actor);
        Ok(inner.db.tables.paused.values().cloned().collect())
    }
}

impl Inner {
    /// The process is told who is paused.
    fn knows_of_pauses(&mut self, actor: Actor) {
        let now = self.now_ms();
        let paused: Vec<String> = self.db.tables.paused.keys().cloned().collect();
        let known = self.db.pauses_known.entry(actor).or_default();
        known.retain(|consumer, _| paused.contains(consumer));
        for consumer in paused {
            known.entry(consumer).or_insert(now);
        }
    }

    /// A process begins a transaction.
    pub(super) fn check_pause(&mut self, actor: Actor, consumer: &ConsumerName) {
        let since = self.db.pauses_known.get(&actor).and_then(|known| known.get(consumer.as_str()).copied());
        let known_ms = since.map(|since| self.now_ms() - since);
        if known_ms.is_some_and(|known_ms| known_ms > OBEYED_WITHIN_MS) {
            let p = actor.process;
            self.violate(format!(
                "p{p} begins something for {consumer} long after it has heard that it is paused"
            ));
        }
    }
}
