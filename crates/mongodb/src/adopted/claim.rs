//! Receipts in an adopted collection: written first, all of a batch together.
//!
//! As in oncebox's own: the receipts that are there are read in the snapshot of the transaction, and the others are inserted.
//! Whoever has written one of them meanwhile, open or committed, in a transaction or without one, makes that fail at once; then
//! everything begins anew with a new snapshot. A duplicate key that comes back although nothing was seen is another unique index
//! of the collection, or two ids of the batch that it takes for one.

use std::collections::{HashMap, HashSet};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{
    AdoptedBatch, AdoptedRow, Claim, Claimed, ErrorClass, FoundReceipt, Met, Refused, StoreError,
    StoreResult, StoredId,
};

use super::{Adopted, Table, collection, stored_id};
use crate::claim::now_of;
use crate::classify::{
    DUPLICATE_KEY, WRITE_CONFLICT, class_of_driver, code_of, driver_of, is_broken, is_conflict,
};
use crate::rerun::Waiting;
use crate::store::{MongoStore, explained_within};
use crate::time::date;
use crate::tx::MongoTx;
use crate::txn::{MongoTxn, Trace};
use crate::wording::store_error;

const DOING: &str = "claiming receipts";
/// How often a key may be there that no snapshot shows.
const MAX_UNSEEN: u32 = 3;

/// Opens the transaction and writes the receipts.
pub(crate) async fn claim(
    store: &MongoStore,
    adopted: &Adopted,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Claimed<MongoTxn>> {
    if claims.is_empty() {
        let txn = store.begin().await?;
        return Ok(Claimed::adopted(txn, Vec::new(), Vec::new()));
    }
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let (mut waiting, mut unseen) = (Waiting::at_most(store.inner.limits.lock), 0);
    // Every round waits a little longer, for no longer than the limit in all.
    loop {
        let mut txn = store.begin().await?;
        let error = match claim_in(&table, &mut txn, consumer, claims).await {
            Ok((fresh, refused)) => return Ok(Claimed::adopted(txn, fresh, refused)),
            Err(error) => error,
        };
        txn.rollback().await;
        unseen += u32::from(is_duplicate(&error));
        if !is_conflict(&error) || unseen == MAX_UNSEEN || !waiting.wait_behind_another(store).await {
            // Another transaction holds a receipt, for longer than we wait: nobody's fault.
            let error = if is_held(&error) { error.with_class(ErrorClass::Away) } else { error };
            return Err(adopted.look_again_after(store, error).await);
        }
    }
}

/// The same in a transaction of somebody else. It cannot begin anew, so a concurrent copy is an error.
pub(crate) async fn claim_within(
    store: &MongoStore,
    adopted: &Adopted,
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<Vec<bool>> {
    let refused = |why: String| StoreError::new(ErrorClass::Failed, DOING, why);
    tx.is_open().await.map_err(refused)?;
    if claims.is_empty() {
        return Ok(Vec::new());
    }
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    tx.starting();
    let claimed = claim_in(&table, tx, consumer, claims).await;
    tx.answered();
    match claimed {
        Ok((fresh, not_taken)) => match not_taken.first() {
            Some(Refused { at, why }) => Err(refused(format!("message {:?}: {why}", claims[*at].message_id))),
            None => Ok(fresh),
        },
        Err(error) => {
            // The operation has ended the transaction on the server.
            if let Some(driver) = driver_of(&error) {
                tx.note_ours(&Err::<(), _>(driver.clone()));
            }
            let error = explained_within(&tx.database, error).await;
            Err(adopted.look_again_after(store, error).await)
        }
    }
}

fn is_duplicate(error: &StoreError) -> bool {
    driver_of(error).and_then(code_of) == Some(DUPLICATE_KEY)
}

fn is_held(error: &StoreError) -> bool {
    driver_of(error).and_then(code_of) == Some(WRITE_CONFLICT)
}

/// The values of a message may be what the collection does not take; a connection that breaks is nobody's fault.
fn of_values<T>(result: Result<T>, doing: &str) -> StoreResult<T> {
    result.map_err(|error| {
        let class = if is_broken(&error) { ErrorClass::Away } else { class_of_driver(&error) };
        store_error(class, doing, error)
    })
}

async fn claim_in(
    table: &Table,
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    claims: &[Claim<'_>],
) -> StoreResult<(Vec<bool>, Vec<Refused>)> {
    let batch = AdoptedBatch::new(&table.adopt, table.id, &table.required, claims);
    let seen = of_values(seen(table, tx, consumer, &batch.rows).await, DOING)?;
    let missing = || batch.rows.iter().enumerate().filter(|(place, _)| !seen.contains_key(place));
    let at = date(now_of(tx));
    let documents: Vec<Document> = missing().map(|(_, row)| receipt(table, consumer, row, at)).collect();
    if !documents.is_empty() {
        let receipts = collection(&tx.database, &table.adopt);
        let written = of_values(receipts.insert_many(documents).session(&mut tx.session).await, DOING)?;
        tx.leaves(Trace::new(&receipts, written.inserted_ids.into_values(), None));
    }
    let written: HashSet<_> =
        missing().map(|(_, row)| (row.id.clone(), row.claim.tenant.to_owned())).collect();
    let met: HashMap<usize, Met> = seen.into_iter().map(|(place, seen)| (place, seen.into())).collect();
    let changed = |why| StoreError::new(ErrorClass::Environment, DOING, why);
    batch.answer(&table.adopt, &written, &met).map_err(changed)
}

/// A receipt as the collection holds it. What the message has nothing for is left out.
fn receipt(
    table: &Table,
    consumer: &ConsumerName,
    row: &AdoptedRow<'_>,
    at: mongodb::bson::DateTime,
) -> Document {
    let adopt = &table.adopt;
    let mut receipt = doc! { adopt.message_id_column(): table.written(&row.id) };
    if let Some(field) = adopt.consumer_column() {
        receipt.insert(field, consumer.as_str());
    }
    if let Some(field) = adopt.tenant_column() {
        receipt.insert(field, row.claim.tenant);
    }
    if let Some(field) = adopt.processed_at_column().filter(|_| adopt.is_purged(&table.found)) {
        receipt.insert(field, at);
    }
    for ((field, _), value) in adopt.set_columns().zip(row.claim.set) {
        if let Some(value) = value {
            receipt.insert(field, value);
        }
    }
    receipt
}

/// What stands in the place of a row.
enum Seen {
    /// The receipt of the same message, by its key.
    Own(Bson),
    /// Another message's.
    Other(String),
}

impl From<Seen> for Met {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Own(_) => Self::Own,
            Seen::Other(other) => Self::Other(other),
        }
    }
}

/// A document of the collection.
struct Found {
    key: Bson,
    id: Bson,
    consumer: Option<String>,
    tenant: Option<String>,
}

impl Found {
    fn read(table: &Table, document: &Document) -> Self {
        let text = |field: Option<&str>| match field.and_then(|field| document.get(field)) {
            None | Some(Bson::Null) => None,
            Some(Bson::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        let value = |field: &str| document.get(field).cloned().unwrap_or(Bson::Null);
        Self {
            key: value("_id"),
            id: value(table.adopt.message_id_column()),
            consumer: text(table.adopt.consumer_column()),
            tenant: text(table.adopt.tenant_column()),
        }
    }

    fn has_tenant(&self, row: &AdoptedRow<'_>) -> bool {
        self.tenant.as_deref().unwrap_or_default() == row.claim.tenant
    }

    /// Whether it is exactly the receipt of this message. None is no tenant, and whose receipt it is that names no consumer the
    /// key has decided.
    fn is_of(&self, consumer: &ConsumerName, row: &AdoptedRow<'_>) -> bool {
        self.consumer.as_deref().is_none_or(|name| name == consumer.as_str()) && self.has_tenant(row)
    }

    fn as_other(&self) -> Seen {
        let (tenant, consumer) = (text_of(self.tenant.as_ref()), text_of(self.consumer.as_ref()));
        Seen::Other(format!("{} of tenant {tenant:?} and consumer {consumer:?}", self.id))
    }
}

fn text_of(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

/// What is there already, by the places of the rows.
async fn seen(
    table: &Table,
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    rows: &[AdoptedRow<'_>],
) -> Result<HashMap<usize, Seen>> {
    let ids: Vec<Bson> = rows.iter().map(|row| table.written(&row.id)).collect();
    let filter = doc! { table.adopt.message_id_column(): { "$in": &ids } };
    let mut found: HashMap<StoredId, Vec<Found>> = HashMap::new();
    for one in find(table, tx, consumer, filter).await? {
        if let Some(id) = stored_id(&one.id) {
            found.entry(id).or_default().push(one);
        }
    }
    let mut seen = HashMap::new();
    for (place, (row, id)) in rows.iter().zip(&ids).enumerate() {
        let Some(of_id) = stored_id(id).and_then(|id| found.get(&id)) else { continue };
        let in_the_way = |one: &&Found| !table.key_has(table.adopt.tenant_column()) || one.has_tenant(row);
        if let Some(own) = of_id.iter().find(|one| one.is_of(consumer, row)) {
            seen.insert(place, Seen::Own(own.key.clone()));
        } else if let Some(other) = of_id.iter().find(in_the_way) {
            seen.insert(place, other.as_other());
        }
    }
    // Only a collation holds texts to be the same that are not.
    let is_loose = table.collation.as_ref().is_some_and(|collation| collation.locale != "simple");
    let asked: HashSet<StoredId> = ids.iter().filter_map(stored_id).collect();
    if is_loose && found.keys().any(|id| !asked.contains(id)) {
        for (place, (row, id)) in rows.iter().zip(&ids).enumerate() {
            if seen.contains_key(&place) {
                continue;
            }
            let mut filter = doc! { table.adopt.message_id_column(): id };
            if let Some(field) = table.adopt.tenant_column().filter(|field| table.key_has(Some(field))) {
                filter.insert(field, row.claim.tenant);
            }
            if let Some(other) = find(table, tx, consumer, filter).await?.into_iter().next() {
                seen.insert(place, other.as_other());
            }
        }
    }
    Ok(seen)
}

/// As the unique key compares, so that nothing is missed that an insert would meet.
async fn find(
    table: &Table,
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    mut filter: Document,
) -> Result<Vec<Found>> {
    let adopt = &table.adopt;
    if let Some(field) = adopt.consumer_column().filter(|field| table.key_has(Some(field))) {
        filter.insert(field, consumer.as_str());
    }
    let fields = [Some(adopt.message_id_column()), adopt.consumer_column(), adopt.tenant_column()];
    let mut projection = doc! { "_id": 1 };
    projection.extend(fields.into_iter().flatten().map(|field| (field.to_owned(), Bson::Int32(1))));
    let receipts = collection(&tx.database, adopt);
    let mut find = receipts.find(filter).projection(projection);
    if let Some(collation) = &table.collation {
        find = find.collation(collation.clone());
    }
    let mut found = find.session(&mut tx.session).await?;
    let mut documents = found.stream(&mut tx.session);
    let mut found = Vec::new();
    while let Some(document) = documents.try_next().await? {
        found.push(Found::read(table, &document));
    }
    Ok(found)
}

/// The receipt of a message, if the collection has it.
pub(crate) async fn find_receipt(
    store: &MongoStore,
    adopted: &Adopted,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<Option<FoundReceipt>> {
    let doing = "looking for a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    // What the collection cannot hold it does not have.
    if batch.rows.is_empty() {
        return Ok(None);
    }
    let mut txn = store.begin_aside().await?;
    let found = of_values(dated(&table, &mut txn, consumer, &batch.rows).await, doing);
    txn.rollback().await;
    found
}

async fn dated(
    table: &Table,
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    rows: &[AdoptedRow<'_>],
) -> Result<Option<FoundReceipt>> {
    let Some(Seen::Own(key)) = seen(table, tx, consumer, rows).await?.remove(&0) else { return Ok(None) };
    let Some(field) = table.adopt.processed_at_column().filter(|_| table.adopt.is_purged(&table.found))
    else {
        return Ok(Some(FoundReceipt { processed_at_ms: None }));
    };
    let receipts = collection(&tx.database, &table.adopt);
    let found = receipts.find_one(doc! { "_id": key }).session(&mut tx.session).await?;
    let at = |found: Document| FoundReceipt {
        processed_at_ms: found.get_datetime(field).ok().map(|at| at.timestamp_millis()),
    };
    Ok(found.map(at))
}

/// Writes a receipt, or makes the one that exists as young as a new one.
pub(crate) async fn renew(
    store: &MongoStore,
    adopted: &Adopted,
    tx: &mut MongoTx,
    consumer: &ConsumerName,
    claim: Claim<'_>,
) -> StoreResult<()> {
    let doing = "renewing a receipt";
    adopted.ensure_only(consumer)?;
    let table = adopted.table(store).await?;
    let claims = [claim];
    let batch = AdoptedBatch::new(&table.adopt, table.id, &[], &claims);
    if batch.rows.is_empty() {
        let why =
            format!("the table {} cannot hold the receipt of message {:?}", table.adopt, claim.message_id);
        return Err(StoreError::new(ErrorClass::Failed, doing, why));
    }
    let renewed = async {
        let seen = of_values(seen(&table, tx, consumer, &batch.rows).await, doing)?;
        match (seen.get(&0), table.adopt.processed_at_column()) {
            (Some(Seen::Own(key)), Some(field)) if table.adopt.is_purged(&table.found) => {
                let young = doc! { "$max": { field: date(now_of(tx)) } };
                let receipts = collection(&tx.database, &table.adopt);
                let renewed = receipts.update_one(doc! { "_id": key }, young).session(&mut tx.session);
                of_values(renewed.await, doing).map(|_| ())
            }
            // The receipt of another message stays as it is, as in a claim that meets it.
            (Some(_), _) => Ok(()),
            (None, _) => claim_in(&table, tx, consumer, &claims).await.map(|_| ()),
        }
    };
    match renewed.await {
        Err(error) => Err(adopted.look_again_after(store, error).await),
        Ok(()) => Ok(()),
    }
}
