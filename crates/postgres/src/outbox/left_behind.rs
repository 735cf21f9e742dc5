//! Events that wait for nobody.
//!
//! The trigger that makes the next event of a key due sees only what is committed, and an operator can switch it off or write
//! `held_until` by hand. So the housekeeping looks for keys whose first held event waits until infinity.

use oncebox_core::outbox::events_committed;
use oncebox_core::store::StoreResult;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::classify::Context;
use crate::store::PgStore;

/// How many keys one step looks at.
const STEP_KEYS: i64 = 1000;

const DOING: &str = "looking for events that wait for nobody";

/// The first held event of each key, by a loose walk over the index: as long as there are keys, however many events wait.
const FIRSTS: &str = "WITH RECURSIVE firsts AS ( \
         (SELECT topic, sha256(key) AS hash, seq, held_until FROM oncebox_outbox \
          WHERE held_until IS NOT NULL AND key IS NOT NULL AND (topic, sha256(key)) > ($1, $2) \
          ORDER BY topic, sha256(key), seq LIMIT 1) \
         UNION ALL \
         SELECT n.* FROM firsts f CROSS JOIN LATERAL ( \
             SELECT o.topic, sha256(o.key), o.seq, o.held_until FROM oncebox_outbox o \
             WHERE o.held_until IS NOT NULL AND o.key IS NOT NULL AND (o.topic, sha256(o.key)) > (f.topic, f.hash) \
             ORDER BY o.topic, sha256(o.key), o.seq LIMIT 1) n) \
     SELECT topic, hash, seq, held_until = 'infinity' FROM firsts LIMIT $3";

/// One that is locked is left to whoever has it, and to the next time.
const MAKE_DUE: &str = "UPDATE oncebox_outbox SET held_until = clock_timestamp() \
     WHERE seq IN (SELECT seq FROM oncebox_outbox WHERE seq = ANY ($1) AND held_until = 'infinity' \
         ORDER BY seq FOR UPDATE SKIP LOCKED)";

/// Where a step ended.
type Key = (String, Vec<u8>);

/// Finds events that wait for one that is gone, and lets them go on.
pub(super) async fn free_left_behind(store: &PgStore) -> StoreResult<()> {
    let mut after = Some(Key::default());
    while let Some(key) = after {
        after = store.patiently(DOING, free_after(store, key)).await?;
    }
    Ok(())
}

/// One step; `None` after the last key.
async fn free_after(store: &PgStore, (topic, hash): Key) -> StoreResult<Option<Key>> {
    // With a relay's settings: this walk is short only by the index.
    let mut txn = store.begin_relay().await?;
    let firsts = store
        .query(FIRSTS)
        .bind(topic)
        .bind(hash)
        .bind(STEP_KEYS)
        .fetch_all(&mut *txn)
        .await
        .context(DOING)?;
    let seqs = left_behind(&firsts).context(DOING)?;
    let mut freed = 0;
    if !seqs.is_empty() {
        let made_due = store.query(MAKE_DUE).bind(seqs).execute(&mut *txn).await.context(DOING)?;
        freed = made_due.rows_affected();
    }
    txn.commit_own(DOING).await?;
    if freed > 0 {
        tracing::info!(freed, "let events go on that waited for nobody");
        events_committed();
    }
    let full = firsts.len() >= usize::try_from(STEP_KEYS).unwrap_or(usize::MAX);
    firsts.last().filter(|_| full).map(key_of).transpose().context(DOING)
}

fn left_behind(firsts: &[PgRow]) -> sqlx::Result<Vec<i64>> {
    let mut seqs = Vec::new();
    for first in firsts {
        if first.try_get(3)? {
            seqs.push(first.try_get(2)?);
        }
    }
    Ok(seqs)
}

fn key_of(first: &PgRow) -> sqlx::Result<Key> {
    Ok((first.try_get(0)?, first.try_get(1)?))
}
