//! The schema, step by step: collections, indexes and the documents that must be there.
//!
//! Collections and indexes are made outside of transactions here, so a step that was interrupted is half there. Each command
//! of a step can be run again, also by two processes at once, and a step is written down when all of it is done.

use std::collections::{BTreeMap, HashSet};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Error as DriverError;
use oncebox_core::error::Error;
use oncebox_core::store::{ErrorClass, Migrate, Migration, StoreError, StoreResult, refuse_newer};

use crate::classify::{Context, DUPLICATE_KEY, code_of};
use crate::position::whole;
use crate::store::MongoStore;

/// Version, name and commands, ascending. A step that was released never changes.
const STEPS: [(u32, &str, &str); 5] = [
    (1, "collections", include_str!("../migrations/0001_collections.json")),
    (2, "outbox", include_str!("../migrations/0002_outbox.json")),
    (3, "delays", include_str!("../migrations/0003_delays.json")),
    (4, "paused", include_str!("../migrations/0004_paused.json")),
    (5, "operate", include_str!("../migrations/0005_operate.json")),
];

/// The version that this oncebox works with.
pub(crate) const NEWEST_VERSION: u32 = STEPS[STEPS.len() - 1].0;

const LEDGER: &str = "oncebox_migrations";
const DOING: &str = "making the collections of oncebox";
/// The collection is there already.
const NAMESPACE_EXISTS: i32 = 48;

impl MongoStore {
    /// Makes oncebox's collections in the database, or brings them up to date. Safe from several processes at once; call it when
    /// the application starts.
    ///
    /// # Errors
    /// `failed` if the user may not, `away` if there is no primary.
    pub async fn migrate(&self) -> Result<(), Error> {
        Migrate::migrate(self).await?;
        Ok(())
    }
}

impl Migrate for MongoStore {
    async fn migrations(&self) -> StoreResult<Vec<Migration>> {
        let doing = "reading the schema's version";
        self.patiently(doing, async {
            let known = self.aside(LEDGER).find(doc! {}).await.context(doing)?;
            let known: Vec<Document> = known.try_collect().await.context(doing)?;
            let applied: HashSet<i64> = known.iter().filter_map(|step| whole(step.get("_id"))).collect();
            refuse_newer(applied.iter().filter_map(|step| u32::try_from(*step).ok()), NEWEST_VERSION)?;
            Ok(STEPS.iter().map(|step| migration(step, applied.contains(&i64::from(step.0)))).collect())
        })
        .await
    }

    async fn migrate(&self) -> StoreResult<Vec<Migration>> {
        let mut done = Vec::new();
        for step in self.migrations().await?.into_iter().filter(|step| !step.applied) {
            if apply(self, &step).await? {
                done.push(Migration { applied: true, ..step });
            }
        }
        Ok(done)
    }
}

/// Runs the commands of a step; false if another process has written it down first.
async fn apply(store: &MongoStore, step: &Migration) -> StoreResult<bool> {
    for command in commands(&step.script)? {
        let writes_down = command.get_str("insert").is_ok_and(|collection| collection == LEDGER);
        match run(store, command.clone()).await {
            Ok(()) => {}
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) && writes_down => return Ok(false),
            // Two processes made the same document; it is there.
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => {}
            Err(error) if code_of(&error) == Some(NAMESPACE_EXISTS) => {
                validate(store, &command).await.context_of_ddl(DOING)?;
            }
            Err(error) => return Err(error).context_of_ddl(DOING),
        }
    }
    Ok(true)
}

/// A collection that was there before may have been made by an insert, of a program that had not migrated: then it has no
/// validator, and gets it now.
async fn validate(store: &MongoStore, create: &Document) -> Result<(), DriverError> {
    let (Ok(name), Ok(validator)) = (create.get_str("create"), create.get_document("validator")) else {
        return Ok(());
    };
    let found = store.inner.aside.list_collections().filter(doc! { "name": name }).await?;
    let found: Vec<_> = found.try_collect().await?;
    if found.iter().any(|collection| collection.options.validator.as_ref() == Some(validator)) {
        return Ok(());
    }
    let mut change = doc! { "collMod": name, "validator": validator };
    if let Some(level) = create.get("validationLevel") {
        change.insert("validationLevel", level);
    }
    run(store, change).await
}

async fn run(store: &MongoStore, mut command: Document) -> Result<(), DriverError> {
    command.insert("writeConcern", doc! { "w": "majority" });
    let answer = store.inner.aside.run_command(command).await?;
    crate::tx::refused(&answer)
}

/// The commands of a step, as they can also be sent by hand.
fn commands(text: &str) -> StoreResult<Vec<Document>> {
    serde_json::from_str(text).map_err(|error| StoreError::new(ErrorClass::Failed, DOING, error))
}

fn migration(step: &(u32, &'static str, &'static str), applied: bool) -> Migration {
    let (version, name, commands) = *step;
    let commands = commands.trim_end().strip_suffix(']').unwrap_or(commands).trim_end();
    let ledger =
        format!(r#"{{"insert": "{LEDGER}", "documents": [{{"_id": {version}, "name": "{name}"}}]}}"#);
    Migration { version, name, script: format!("{commands},\n  {ledger}\n]\n"), applied }
}

/// What a collection has when all steps are done.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) validator: Option<Document>,
    /// The names of its indexes.
    pub(crate) indexes: Vec<String>,
}

/// What the steps make, by the names of the collections.
pub(crate) fn wanted() -> StoreResult<BTreeMap<String, Wanted>> {
    let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
    for (.., text) in STEPS {
        for command in commands(text)? {
            if let Ok(name) = command.get_str("create") {
                let validator = command.get_document("validator").ok().cloned();
                wanted.entry(name.to_owned()).or_default().validator = validator;
            } else if let (Ok(name), Ok(indexes)) =
                (command.get_str("createIndexes"), command.get_array("indexes"))
            {
                let names =
                    indexes.iter().filter_map(Bson::as_document).filter_map(|i| i.get_str("name").ok());
                wanted.entry(name.to_owned()).or_default().indexes.extend(names.map(str::to_owned));
            }
        }
    }
    Ok(wanted)
}

/// The highest version this database has; 0 if it has none.
pub(crate) async fn schema_version(store: &MongoStore) -> StoreResult<u32> {
    let doing = "reading the schema's version";
    let newest = store.aside(LEDGER).find_one(doc! {}).sort(doc! { "_id": -1 }).await.context(doing)?;
    let version = newest.and_then(|step| whole(step.get("_id")));
    Ok(version.and_then(|version| u32::try_from(version).ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_can_be_read() {
        for step in &STEPS {
            let commands = commands(&migration(step, false).script).unwrap();
            assert!(commands.len() > 1, "{}", step.1);
            for command in commands {
                let first = command.keys().next().unwrap().as_str();
                assert!(["create", "createIndexes", "update", "insert"].contains(&first), "{first}");
            }
        }
    }
}
