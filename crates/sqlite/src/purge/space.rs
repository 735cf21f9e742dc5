//! Space that a pass has made free goes back to the file system.

use std::time::{Duration, Instant};

use oncebox_core::store::StoreResult;
use sqlx::Row;
use tokio_util::sync::CancellationToken;

use super::DOING;
use super::walk::REST_FACTOR;
use crate::classify::Context;
use crate::store::SqliteStore;

/// Shrinks the file when more than a quarter of it is empty, in steps that let others write in between. New receipts take
/// the rest. Does nothing for a file that was created without `auto_vacuum`.
pub(super) async fn give_back(store: &SqliteStore, stop: &CancellationToken) -> StoreResult<()> {
    const FREE: &str = "SELECT freelist_count, page_count, auto_vacuum
        FROM pragma_freelist_count, pragma_page_count, pragma_auto_vacuum";
    const INCREMENTAL: i64 = 2;
    let mut last_free = i64::MAX;
    while !stop.is_cancelled() {
        let mut conn = store.reader().await?;
        let row = sqlx::query(FREE).fetch_one(&mut *conn).await.context(DOING)?;
        let [free, pages, mode]: [i64; 3] =
            [row.try_get(0).context(DOING)?, row.try_get(1).context(DOING)?, row.try_get(2).context(DOING)?];
        // It must get less with each round: a long reader elsewhere can keep pages from being cut off.
        if mode != INCREMENTAL || free * 4 <= pages || free >= last_free {
            return Ok(());
        }
        last_free = free;
        let started = Instant::now();
        store.writer.run("PRAGMA incremental_vacuum(500)").await?;
        tokio::select! {
            () = tokio::time::sleep((started.elapsed() * REST_FACTOR).min(Duration::from_secs(1))) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(())
}
