//! A handler has committed by itself: receipts are there whose effects may not be.
//!
//! Its messages would be taken for copies from now on. So they are kept as dead letters before the partition stops: whoever starts
//! it again loses nothing, and each of them can be looked at, replayed or dropped.

use tracing::error;

use super::Engine;
use super::letters::torn_letter;
use super::partition::Partition;
use super::transaction::Trouble;
use crate::backoff;
use crate::error::{describe, describe_whole};
use crate::message::Message;
use crate::store::{DeadLetter, InboxStore, StoreError, StoreResult};

/// More messages than this are counted and not named; the dead letters name all.
const MAX_NAMED: usize = 20;

impl<S: InboxStore> Engine<S> {
    /// Keeps the messages whose receipts were fresh in that transaction, and says why the partition stops.
    pub(super) async fn torn(
        &self,
        partition: &Partition,
        messages: &[&Message],
        why: &StoreError,
    ) -> Trouble {
        let (whole, why) = (describe_whole(why), describe(why));
        let letters: Vec<_> = messages.iter().map(|message| torn_letter(message, &whole)).collect();
        let kept = self.keep(partition, &letters).await;
        let named: Vec<_> =
            messages.iter().take(MAX_NAMED).map(|message| message.id().as_str().to_owned()).collect();
        let named = match messages.len().saturating_sub(MAX_NAMED) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        };
        let what_now = match kept {
            Ok(()) => {
                self.meters.dead(letters.len() as u64);
                "They are kept as dead letters (`oncebox dead list`): compare each with your tables, then replay it if its \
                 effect is missing, or drop it. Take what commits out of the handler, then restart"
                    .to_owned()
            }
            Err(e) => format!(
                "They could not be kept as dead letters ({}), and from now on they are skipped as copies: write their names \
                 down, and compare each with your tables. Take what commits out of the handler, then restart",
                describe(&e)
            ),
        };
        let reason = format!(
            "{why}. Of these messages the receipt is committed, and of the effects nobody knows: {named}. {what_now}"
        );
        error!(position = %partition.key, messages = messages.len(), reason, "a handler has committed by itself");
        Trouble::Torn(reason)
    }

    /// Tried until the source closes the partition: there is no second chance.
    async fn keep(&self, partition: &Partition, letters: &[DeadLetter]) -> StoreResult<()> {
        let mut tries = 0;
        loop {
            let Err(e) = self.keep_once(letters).await else { return Ok(()) };
            if partition.closing.is_cancelled() || !e.class.may_pass() {
                return Err(e);
            }
            tries += 1;
            tokio::select! {
                biased;
                () = partition.closing.cancelled() => {}
                () = tokio::time::sleep(backoff::TROUBLE.delay(tries)) => {}
            }
        }
    }

    async fn keep_once(&self, letters: &[DeadLetter]) -> StoreResult<()> {
        let mut txn = self.store.claim(&self.consumer, &[]).await?.txn;
        match self.store.park(&mut txn, &self.consumer, letters).await {
            Ok(()) => self.store.commit(txn, None).await,
            Err(e) => {
                self.store.rollback(txn).await;
                Err(e)
            }
        }
    }
}
