//! Pipelines whose rows become events.
//!
//! The query is a JSON text, `{"aggregate": "orders", "pipeline": […]}`, with Extended JSON for what JSON does not know. It reads
//! outside of a transaction, where it may take as long as it needs and use every stage that reads. What was found is looked at
//! again in the transaction that writes the events, together with what is remembered of the rows: two processes that sweep
//! the same row remember it in the same document, so one of them looks again and finds it done.

mod fields;
mod row;

use std::collections::HashSet;

use futures_util::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::error::BoxError;
use oncebox_core::outbox::{Event, check_topic, events_committed};
use oncebox_core::store::{ErrorClass, Store, StoreError, StoreResult, Sweep};
use sha2::{Digest, Sha256};

use super::emit;
use crate::classify::{Context, Said, class_of_driver, said};
use crate::rerun::rerun;
use crate::store::MongoStore;
use crate::time::milliseconds;
use crate::tx::{MongoTx, refused};

const SWEEPS: &str = "oncebox_sweep";

/// The header that names the sweep an event comes from.
const SWEEP_HEADER: &str = "oncebox-sweep";

/// How many rows are looked at together.
const PAGE: usize = 1000;

/// Runs the query and emits its rows.
pub(super) async fn sweep(store: &MongoStore, sweep: &Sweep) -> StoreResult<u64> {
    let query = check_query(store, sweep).await?;
    let rows = fresh_rows(store, sweep, &query).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let emitted = rerun(store, || emit_once(store, sweep, &rows)).await?;
    if emitted > 0 {
        events_committed();
    }
    Ok(emitted)
}

/// Lets the server look at the query without running it, and looks for the fields.
pub(super) async fn check_sweep(store: &MongoStore, sweep: &Sweep) -> StoreResult<()> {
    check_query(store, sweep).await.map(|_| ())
}

/// A query that was looked at.
struct Query {
    collection: String,
    pipeline: Vec<Document>,
}

async fn check_query(store: &MongoStore, sweep: &Sweep) -> StoreResult<Query> {
    check_topic(&sweep.topic).map_err(|error| wrong(sweep, error))?;
    let query = parse(sweep)?;
    for name in fields::collections(&query.collection, &query.pipeline) {
        let there = store.inner.aside.list_collection_names().filter(doc! { "name": &name }).await;
        if there.map_err(|error| server_refuses(sweep, error))?.is_empty() {
            let why = format!("its query reads the collection {name}, which is not there");
            return Err(wrong(sweep, why).with_class(ErrorClass::Environment));
        }
    }
    let looked_at = doc! { "aggregate": &query.collection, "pipeline": query.pipeline.clone(), "cursor": {} };
    let explained = store.inner.aside.run_command(doc! { "explain": looked_at, "verbosity": "queryPlanner" });
    explained.await.map_err(|error| server_refuses(sweep, error))?;
    // By the names of the settings, because that is where the mistake is.
    if let Some(there) = fields::yielded(&query.pipeline) {
        for (setting, wanted) in [("key", Some(&sweep.row_key)), ("emit.key", sweep.event_key.as_ref())] {
            let first = |path: &String| path.split('.').next().unwrap_or_default().to_owned();
            if let Some(field) = wanted.filter(|wanted| !there.contains(&first(wanted))) {
                let there = there.iter().cloned().collect::<Vec<_>>().join(", ");
                return Err(wrong(
                    sweep,
                    format!("{setting} names the field {field}, its query has {there}"),
                ));
            }
        }
    }
    Ok(query)
}

fn parse(sweep: &Sweep) -> StoreResult<Query> {
    const SHAPE: &str = r#"its query must be {"aggregate": "COLLECTION", "pipeline": [STAGE, …]}"#;
    let query: Document =
        serde_json::from_str(&sweep.query).map_err(|error| wrong(sweep, format!("{SHAPE}: {error}")))?;
    if let Some(other) = query.keys().find(|name| !["aggregate", "pipeline"].contains(&name.as_str())) {
        return Err(wrong(sweep, format!("{SHAPE}, and it has {other:?}")));
    }
    let (Ok(collection), Ok(stages)) = (query.get_str("aggregate"), query.get_array("pipeline")) else {
        return Err(wrong(sweep, SHAPE));
    };
    let pipeline: Option<Vec<Document>> = stages.iter().map(|stage| stage.as_document().cloned()).collect();
    let Some(pipeline) = pipeline else { return Err(wrong(sweep, format!("{SHAPE}: a stage is no object"))) };
    if let Some(stage) = fields::writes(&pipeline) {
        return Err(wrong(sweep, format!("its query writes by {stage}; a sweep only reads")));
    }
    Ok(Query { collection: collection.to_owned(), pipeline })
}

/// A row that may become an event.
#[derive(Debug)]
struct Row {
    key: String,
    hash: [u8; 32],
    event: Event,
}

/// The first rows of the query that have a key, and whose key is not quiet; as many as one run may emit.
async fn fresh_rows(store: &MongoStore, sweep: &Sweep, query: &Query) -> StoreResult<Vec<Row>> {
    let most = sweep.limit as usize;
    let collection = store.aside(&query.collection);
    let mut cursor =
        collection.aggregate(query.pipeline.clone()).await.map_err(|error| server_refuses(sweep, error))?;
    let (mut rows, mut seen, mut page) = (Vec::new(), HashSet::new(), Vec::new());
    loop {
        let next = cursor.try_next().await.map_err(|error| server_refuses(sweep, error))?;
        let is_last = next.is_none();
        if let Some(document) = next
            && let Some(key) = row::key_text(row::at(&document, &sweep.row_key))
        {
            let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
            if seen.insert(hash) {
                page.push((key, hash, document));
            }
        }
        if page.len() >= PAGE || is_last {
            let hashes: Vec<[u8; 32]> = page.iter().map(|(_, hash, _)| *hash).collect();
            let quiet = quiet_outside(store, sweep, &hashes).await.context(&doing(sweep))?;
            for (key, hash, document) in page.drain(..) {
                if !quiet.contains(&hash) && rows.len() < most {
                    let event = event(sweep, &document).map_err(|error| wrong(sweep, error))?;
                    rows.push(Row { key, hash, event });
                }
            }
        }
        if is_last || rows.len() >= most {
            return Ok(rows);
        }
    }
}

fn event(sweep: &Sweep, document: &Document) -> std::result::Result<Event, BoxError> {
    let event = Event::to(&sweep.topic).header(SWEEP_HEADER, sweep.name.clone());
    let event = event.json(&row::json(document))?;
    let key = sweep.event_key.as_deref().and_then(|path| row::key_bytes(row::at(document, path)));
    Ok(match key {
        Some(key) => event.key(key),
        None => event,
    })
}

/// Writes the events of those rows that are still not quiet, and remembers them.
async fn emit_once(store: &MongoStore, sweep: &Sweep, rows: &[Row]) -> StoreResult<u64> {
    let mut txn = store.begin_aside().await?;
    let emitted = match emit_in(&mut txn, sweep, rows).await {
        Ok(emitted) => emitted,
        Err(error) => {
            txn.rollback().await;
            return Err(error);
        }
    };
    if emitted == 0 {
        txn.rollback().await;
    } else {
        store.commit(txn, None).await?;
    }
    Ok(emitted)
}

async fn emit_in(tx: &mut MongoTx, sweep: &Sweep, rows: &[Row]) -> StoreResult<u64> {
    let hashes: Vec<[u8; 32]> = rows.iter().map(|row| row.hash).collect();
    let quiet = quiet_inside(tx, sweep, &hashes).await.context(&doing(sweep))?;
    let fresh: Vec<&Row> = rows.iter().filter(|row| !quiet.contains(&row.hash)).collect();
    let events: std::result::Result<Vec<_>, _> = fresh.iter().map(|row| row.event.row()).collect();
    emit::write_events(tx, &events.map_err(|error| wrong(sweep, error))?).await?;
    remember(tx, sweep, &fresh).await.context(&doing(sweep))?;
    Ok(fresh.len() as u64)
}

/// What is remembered of a row is found under this.
fn place(sweep: &Sweep, hash: &[u8; 32]) -> Bson {
    let row_hash = Binary { subtype: BinarySubtype::Generic, bytes: hash.to_vec() };
    Bson::Document(doc! { "name": &sweep.name, "row_hash": row_hash })
}

/// Which of these are remembered, and for how long their keys are quiet.
fn remembered(sweep: &Sweep, hashes: &[[u8; 32]]) -> [Document; 2] {
    let places: Vec<Bson> = hashes.iter().map(|hash| place(sweep, hash)).collect();
    let quiet = doc! { "$gt": ["$quiet_until", "$$NOW"] };
    [doc! { "$match": { "_id": { "$in": places }, "$expr": quiet } }, doc! { "$project": { "_id": 1 } }]
}

fn hashes_of(found: &[Document]) -> HashSet<[u8; 32]> {
    let hash = |found: &Document| {
        let Bson::Binary(hash) = found.get_document("_id").ok()?.get("row_hash")? else { return None };
        <[u8; 32]>::try_from(hash.bytes.as_slice()).ok()
    };
    found.iter().filter_map(hash).collect()
}

async fn quiet_outside(store: &MongoStore, sweep: &Sweep, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>> {
    let found = store.aside(SWEEPS).aggregate(remembered(sweep, hashes)).await?;
    Ok(hashes_of(&found.try_collect::<Vec<_>>().await?))
}

async fn quiet_inside(tx: &mut MongoTx, sweep: &Sweep, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>> {
    let sweeps = tx.database.collection::<Document>(SWEEPS);
    let mut cursor = sweeps.aggregate(remembered(sweep, hashes)).session(&mut tx.session).await?;
    Ok(hashes_of(&cursor.stream(&mut tx.session).try_collect::<Vec<_>>().await?))
}

async fn remember(tx: &mut MongoTx, sweep: &Sweep, rows: &[&Row]) -> Result<()> {
    for part in rows.chunks(PAGE) {
        let updates = part.iter().map(|row| {
            let until = doc! { "$add": ["$$NOW", milliseconds(sweep.window)] };
            let set = doc! { "row_key": { "$literal": &row.key }, "quiet_until": until };
            doc! { "q": { "_id": place(sweep, &row.hash) }, "u": [{ "$set": set }], "upsert": true }
        });
        let command = doc! { "update": SWEEPS, "updates": updates.collect::<Vec<_>>() };
        refused(&tx.database.run_command(command).session(&mut tx.session).await?)?;
    }
    Ok(())
}

fn doing(sweep: &Sweep) -> String {
    format!("running sweep {}", sweep.name)
}

fn wrong(sweep: &Sweep, why: impl Into<BoxError>) -> StoreError {
    StoreError::new(ErrorClass::Failed, format!("checking sweep {}", sweep.name), why)
}

fn server_refuses(sweep: &Sweep, error: mongodb::error::Error) -> StoreError {
    match class_of_driver(&error) {
        class @ (ErrorClass::Failed | ErrorClass::Environment) => {
            wrong(sweep, format!("the server refuses the query: {}", said(&error))).with_class(class)
        }
        class => wrong(sweep, Said(error)).with_class(class),
    }
}
