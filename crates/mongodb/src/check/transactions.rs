//! Transactions that hold back the history of the storage engine, whoever has opened them.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::options::ReadConcern;
use oncebox_core::store::StoreResult;

use crate::classify::{Context, code_of};
use crate::position::whole;
use crate::store::MongoStore;

/// At most so many are named.
const MAX_NAMED: i64 = 5;

/// Each with how long it has been open. They count for all databases of the server. Who may not see them says nothing.
pub(super) async fn old_transactions(
    store: &MongoStore,
    older_than: Duration,
) -> StoreResult<Vec<(String, Duration)>> {
    let doing = "looking for old transactions";
    let limit = i64::try_from(older_than.as_micros()).unwrap_or(i64::MAX);
    let admin = store.inner.aside.client().database("admin");
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true, "idleSessions": true } },
        doc! { "$match": { "transaction.timeOpenMicros": { "$gt": limit } } },
        doc! { "$sort": { "transaction.timeOpenMicros": -1 } },
        doc! { "$limit": MAX_NAMED },
        doc! { "$project": { "open": "$transaction.timeOpenMicros", "client": 1, "appName": 1 } },
    ];
    // What is going on now is no data that a majority could have.
    let found = match admin.aggregate(pipeline).read_concern(ReadConcern::local()).await {
        Ok(found) => found.try_collect::<Vec<Document>>().await,
        Err(error) => Err(error),
    };
    let found = match found {
        // The server says no: because of the user, or because it is a kind of server that does not know.
        Err(error) if code_of(&error).is_some() => Vec::new(),
        other => other.context(doing)?,
    };
    let told = |one: &Document| {
        let micros = u64::try_from(whole(one.get("open")).unwrap_or_default()).unwrap_or_default();
        let client = one.get_str("client").unwrap_or("an idle session");
        let name = one.get_str("appName").map(|name| format!(" ({name})")).unwrap_or_default();
        (format!("{client}{name}"), Duration::from_micros(micros))
    };
    Ok(found.iter().map(told).collect())
}
