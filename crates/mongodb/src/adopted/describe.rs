//! What an adopted collection looks like, from its indexes, its validator and some of its documents.

use futures_util::TryStreamExt;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result as DriverResult;
use mongodb::options::Collation;
use mongodb::{Collection, IndexModel};
use oncebox_core::store::{
    Adopt, AdoptedUse, ErrorClass, Finding, FindingLevel, FoundColumn, FoundTable, IdFormat, IdKind,
    StoreError, StoreResult, StoredId,
};

use super::{Table, collection, stored_id};
use crate::check::missing_rights;
use crate::classify::{Context, code_of};
use crate::store::MongoStore;

const DOING: &str = "looking at the adopted collection";

/// Documents that are looked at to learn how ids are written.
const SAMPLE_DOCUMENTS: i64 = 300;
/// The user may not read the collection.
const MAY_NOT: i32 = 13;

const TEXT: IdKind = IdKind::Text { max_chars: None, padded: false };

/// What keeps everybody from writing to a collection whose receipts were moved: no document is like that.
pub(super) fn fence() -> Document {
    doc! { "$expr": { "$eq": ["the receipts were moved to oncebox_inbox", "by oncebox migrate adopt"] } }
}

/// The collection as it is.
struct Looked {
    found: FoundTable,
    uuid_as_text: bool,
    /// The unique keys with how they compare, in the order of [`FoundTable::keys`].
    collations: Vec<Option<Collation>>,
    fenced: bool,
}

/// What the mapping lacks.
pub(super) async fn check_adopted(
    store: &MongoStore,
    adopt: &Adopt,
    usage: AdoptedUse,
) -> StoreResult<Vec<Finding>> {
    Ok(match store.patiently(DOING, look(store, adopt)).await? {
        Ok(looked) if looked.fenced => vec![Finding::error(subject(adopt), MOVED)],
        Ok(looked) => adopt.judge(&looked.found, usage, &create_key(adopt)),
        Err(finding) => vec![finding],
    })
}

const MOVED: &str =
    "its receipts were moved to oncebox_inbox: remove [store.adopt] from the configuration and restart";

fn subject(adopt: &Adopt) -> String {
    format!("adopted table {adopt}")
}

/// What makes a unique key, in the shell.
fn create_key(adopt: &Adopt) -> String {
    let fields: Vec<_> = adopt.key_columns().map(|field| format!("{field}: 1")).collect();
    let database =
        adopt.schema().map_or_else(|| "db".to_owned(), |name| format!("db.getSiblingDB({name:?})"));
    format!("{database}.{}.createIndex({{ {} }}, {{ unique: true }})", adopt.table_name(), fields.join(", "))
}

/// The collection, ready for claims.
///
/// # Errors
/// Of the environment, if it will not do.
pub(super) async fn table(store: &MongoStore, adopt: &Adopt) -> StoreResult<Table> {
    let refused =
        |why: String| StoreError::new(ErrorClass::Environment, format!("using the table {adopt}"), why);
    let looked = look(store, adopt).await?.map_err(|finding| refused(finding.detail))?;
    if looked.fenced {
        return Err(refused(MOVED.to_owned()));
    }
    let usage = AdoptedUse { consumers: 1, tenants: false, longest_consumer: 0 };
    let errors: Vec<_> = adopt
        .judge(&looked.found, usage, &create_key(adopt))
        .into_iter()
        .filter(|finding| finding.level == FindingLevel::Error)
        .map(|finding| finding.detail)
        .collect();
    if !errors.is_empty() {
        return Err(refused(errors.join("; ")));
    }
    Ok(known(adopt, looked))
}

/// The collection as one to read from, which needs no unique key.
pub(super) async fn table_to_read(store: &MongoStore, adopt: &Adopt) -> StoreResult<Table> {
    let refused =
        |why: String| StoreError::new(ErrorClass::Failed, format!("reading the table {adopt}"), why);
    let looked = look(store, adopt).await?.map_err(|finding| refused(finding.detail))?;
    if let Err(kind) = &looked.found.id {
        return Err(refused(format!(
            "its ids are of type {kind}: text, UUID and binary columns can be copied"
        )));
    }
    Ok(known(adopt, looked))
}

/// Whether its receipts were moved: see [`fence`].
pub(super) async fn is_fenced(store: &MongoStore, adopt: &Adopt) -> StoreResult<bool> {
    let options = options(&collection(&store.inner.aside, adopt)).await.context(DOING)?;
    Ok(options.is_some_and(|options| validator(&options) == Some(&fence())))
}

fn known(adopt: &Adopt, looked: Looked) -> Table {
    let Looked { found, uuid_as_text, collations, .. } = looked;
    let id = found.id.clone().unwrap_or(TEXT);
    let key = adopt.key(&found).unwrap_or_default().to_vec();
    let nth = found.keys.iter().position(|one| *one == key);
    let collation = nth.and_then(|nth| collations.into_iter().nth(nth)).flatten();
    Table { adopt: adopt.clone(), required: adopt.required(&found), id, uuid_as_text, key, collation, found }
}

/// What the server knows of the collection; `None` if there is none.
async fn options(receipts: &Collection<Document>) -> DriverResult<Option<Document>> {
    let database = receipts.client().database(&receipts.namespace().db);
    let list = doc! { "listCollections": 1, "filter": { "name": receipts.name() } };
    let answer = database.run_command(list).await?;
    let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    Ok(batch.ok().and_then(|batch| batch.first()).and_then(Bson::as_document).cloned())
}

fn validator(listed: &Document) -> Option<&Document> {
    listed.get_document("options").and_then(|options| options.get_document("validator")).ok()
}

async fn look(store: &MongoStore, adopt: &Adopt) -> StoreResult<Result<Looked, Finding>> {
    let wrong = |detail: String| Ok(Err(Finding::error(subject(adopt), detail)));
    let receipts = collection(&store.inner.aside, adopt);
    let Some(listed) = options(&receipts).await.context(DOING)? else {
        return wrong(
            "there is no such table, as this user sees the database: correct [store.adopt]".to_owned(),
        );
    };
    let options = listed.get_document("options").cloned().unwrap_or_default();
    if listed.get_str("type").unwrap_or("collection") != "collection" {
        return wrong("it is no collection but a view or a time series: name the collection".to_owned());
    }
    if options.get_bool("capped").unwrap_or(false) {
        return wrong(
            "it is capped: it forgets receipts, and takes none in a transaction. Copy it into another"
                .to_owned(),
        );
    }
    let indexes: Vec<IndexModel> =
        async { receipts.list_indexes().await?.try_collect().await }.await.context(DOING)?;
    let sample = sample(&receipts, adopt).await.context(DOING)?;
    if let Some(why) = other_than_text(adopt, &sample) {
        return wrong(why);
    }
    let (by_type, empty) = by_type(adopt, &sample);
    let uuid_as_text = matches!(by_type, Ok(IdKind::Text { .. }));
    let (keys, collations) = unique_keys(&indexes, options.contains_key("collation")).into_iter().unzip();
    let time = adopt.processed_at_column();
    let dated = |document: &&Document| time.is_none_or(|field| !is_none(document.get(field)));
    let mut warnings: Vec<String> = indexes.iter().filter_map(expiring).collect();
    warnings.extend(empty);
    let found = FoundTable {
        columns: columns(adopt, &options, &sample),
        keys,
        id: adopt.id_kind(by_type),
        no_purge: no_time(time, &sample),
        missing_rights: missing_rights(store, adopt).await,
        sample: ids(adopt, &sample).filter_map(stored_id).collect::<Vec<StoredId>>(),
        undated: !sample.iter().all(|document| dated(&document)),
        warnings,
    };
    Ok(Ok(Looked { found, uuid_as_text, collations, fenced: validator(&listed) == Some(&fence()) }))
}

/// Some documents. None if they may not be read, which is told elsewhere.
async fn sample(receipts: &Collection<Document>, adopt: &Adopt) -> DriverResult<Vec<Document>> {
    let fields: Document = adopt.columns().map(|field| (field.to_owned(), Bson::Int32(1))).collect();
    let found = receipts.find(doc! {}).projection(fields).limit(SAMPLE_DOCUMENTS).await;
    match found {
        Err(error) if code_of(&error) == Some(MAY_NOT) => Ok(Vec::new()),
        found => found?.try_collect().await,
    }
}

fn ids<'s>(adopt: &Adopt, sample: &'s [Document]) -> impl Iterator<Item = &'s Bson> {
    let field = adopt.message_id_column().to_owned();
    sample.iter().filter_map(move |document| document.get(&field)).filter(|id| **id != Bson::Null)
}

fn is_none(value: Option<&Bson>) -> bool {
    matches!(value, None | Some(Bson::Null))
}

/// What ids are, by those that are there; or their type, which is none that can be. Also what to say if there are none.
fn by_type(adopt: &Adopt, sample: &[Document]) -> (Result<IdKind, String>, Option<String>) {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for id in ids(adopt, sample) {
        let name = type_name(id);
        match kinds.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    match kinds.as_slice() {
        [] => {
            let (kind, name) = match adopt.format() {
                Some(IdFormat::Uuid) => (IdKind::Uuid, "UUIDs of BSON"),
                Some(IdFormat::UuidBytes) => (IdKind::Bytes { max_bytes: None }, "bytes"),
                Some(IdFormat::Text | IdFormat::Hex) | None => (TEXT, "text"),
            };
            let said = format!(
                "it is empty, so nothing shows how ids are written: oncebox writes them as {name}. If your code writes \
                 something else, let it write the first one"
            );
            (Ok(kind), Some(said))
        }
        // Where the mapping says how, a few others among them are nobody's business.
        [(name, _)] => (kind_of(name), None),
        [(name, _), ..] if adopt.format().is_some() => (kind_of(name), None),
        several => {
            let names: Vec<_> = several.iter().map(|(name, _)| *name).collect();
            (Err(names.join(" and ")), None)
        }
    }
}

fn kind_of(name: &str) -> Result<IdKind, String> {
    match name {
        "string" => Ok(TEXT),
        "UUID" => Ok(IdKind::Uuid),
        "binData" => Ok(IdKind::Bytes { max_bytes: None }),
        other => Err(other.to_owned()),
    }
}

fn type_name(value: &Bson) -> &'static str {
    match value {
        Bson::String(_) => "string",
        Bson::Binary(binary) => match binary.subtype {
            BinarySubtype::Uuid => "UUID",
            BinarySubtype::UuidOld => "UUID of the old subtype 3, whose byte order nobody knows",
            BinarySubtype::Generic => "binData",
            _ => "binData of another subtype",
        },
        Bson::ObjectId(_) => "objectId",
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => "number",
        Bson::Document(_) => "object",
        Bson::DateTime(_) => "date",
        _ => "something else",
    }
}

/// The fields of each unique index that a claim can rely on, and how it compares texts.
fn unique_keys(indexes: &[IndexModel], collated: bool) -> Vec<(Vec<String>, Option<Collation>)> {
    let usable = |index: &&IndexModel| {
        let is_id = index.keys.len() == 1 && index.keys.contains_key("_id");
        let options = index.options.as_ref();
        let unique = options.is_some_and(|options| options.unique == Some(true));
        let partial = options.is_some_and(|options| options.partial_filter_expression.is_some());
        (is_id || unique) && !partial
    };
    let simple = || Collation::builder().locale("simple".to_owned()).build();
    let fields = |index: &IndexModel| {
        let collation = index.options.as_ref().and_then(|options| options.collation.clone());
        // What the collection compares by is not what the index does, unless it says so.
        (index.keys.keys().map(ToString::to_string).collect(), collation.or_else(|| collated.then(simple)))
    };
    indexes.iter().filter(usable).map(fields).collect()
}

fn expiring(index: &IndexModel) -> Option<String> {
    let options = index.options.as_ref()?;
    let after = options.expire_after?;
    let name = options.name.as_deref().unwrap_or("without a name");
    Some(format!(
        "its index {name} deletes receipts {} s after their time by the clock, also those that a consumer that is down still needs: \
         copies are then applied again. Drop it and let `retention` remove them",
        after.as_secs()
    ))
}

/// The fields of the mapping, and those that the validator wants. A document may lack any other.
fn columns(adopt: &Adopt, options: &Document, sample: &[Document]) -> Vec<FoundColumn> {
    let is_enforced = options.get_str("validationAction").unwrap_or("error") == "error"
        && options.get_str("validationLevel").unwrap_or("strict") != "off";
    let schema =
        options.get_document("validator").and_then(|validator| validator.get_document("$jsonSchema"));
    let required = schema.and_then(|schema| schema.get_array("required")).ok().filter(|_| is_enforced);
    let required: Vec<&str> = required.into_iter().flatten().filter_map(Bson::as_str).collect();
    let named = [adopt.consumer_column(), adopt.tenant_column()];
    let column = |name: &str| {
        // One that is part of the key must be there always: without it a document is not the same as with ''.
        let lacking = sample.iter().any(|document| is_none(document.get(name)));
        let nullable = if named.contains(&Some(name)) { lacking } else { !required.contains(&name) };
        FoundColumn {
            name: name.to_owned(),
            nullable,
            // The driver makes one.
            filled: name == "_id",
            generated: false,
            text: true,
            max_chars: None,
        }
    };
    let others = required.iter().copied().filter(|name| !adopt.columns().any(|mapped| mapped == *name));
    adopt.columns().chain(others).map(column).collect()
}

/// Consumers and tenants are text, and what is not is never the same.
fn other_than_text(adopt: &Adopt, sample: &[Document]) -> Option<String> {
    for field in [adopt.consumer_column(), adopt.tenant_column()].into_iter().flatten() {
        let values = sample.iter().filter_map(|document| document.get(field));
        let other =
            values.filter(|value| !matches!(value, Bson::String(_) | Bson::Null)).map(type_name).next();
        if let Some(other) = other {
            return Some(format!(
                "the column {field} is of type {other}, and names of consumers and tenants are text"
            ));
        }
    }
    None
}

fn no_time(field: Option<&str>, sample: &[Document]) -> Option<String> {
    let field = field?;
    let values = sample.iter().filter_map(|document| document.get(field));
    let other =
        values.filter(|value| !matches!(value, Bson::DateTime(_) | Bson::Null)).map(type_name).next()?;
    Some(format!("the column {field} is of type {other}, which is no time"))
}
