//! The collections that a handler writes, known by their identity.
//!
//! To a server a collection that is missing is an empty one: an update matches nothing, and an insert makes it. So every command names
//! the collection that was there at the start by its UUID as well, and the server refuses it if that is not the one of this
//! name any more: renamed, dropped, or made anew. Nothing is asked beforehand, and there is no moment in between.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use futures_util::TryStreamExt;
use mongodb::bson::{Binary, Document, doc};
use mongodb::error::Result;
use mongodb::results::CollectionSpecification;
use oncebox_core::store::{ErrorClass, StoreError, StoreResult};

use crate::classify::Context;
use crate::store::MongoStore;

/// The identities, by name. One that the server does not tell is not compared.
#[derive(Debug, Default)]
pub(super) struct Collections {
    ids: RwLock<HashMap<String, Binary>>,
}

impl Collections {
    /// Those that a handler writes, as they were found.
    pub(super) fn of<'n>(
        names: impl Iterator<Item = &'n str>,
        found: &HashMap<String, CollectionSpecification>,
    ) -> Self {
        let id = |name: &str| Some((name.to_owned(), found.get(name)?.info.uuid.clone()?));
        Self { ids: RwLock::new(names.filter_map(id).collect()) }
    }

    pub(super) fn id(&self, name: &str) -> Option<Binary> {
        self.ids.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Another collection has this name, or none. The error says which: if there is one, it is the right one from now on, and the
    /// batch runs again.
    pub(super) async fn changed(&self, store: &MongoStore, name: &str, doing: &str) -> StoreError {
        let found = match listed(store, doc! { "name": name }, doing).await {
            Ok(found) => found,
            Err(error) => return error,
        };
        let Some(found) = found.into_iter().next() else {
            let why = format!(
                "there is no collection {name} any more; give it its name back, or create it with \
                 db.createCollection(\"{name}\")"
            );
            return StoreError::new(ErrorClass::Environment, doing, why);
        };
        let mut ids = self.ids.write().unwrap_or_else(PoisonError::into_inner);
        match found.info.uuid {
            Some(id) => ids.insert(name.to_owned(), id),
            None => ids.remove(name),
        };
        StoreError::new(ErrorClass::Transient, doing, format!("collection {name} was made anew"))
    }
}

/// What the database has.
pub(super) async fn listed(
    store: &MongoStore,
    filter: Document,
    doing: &str,
) -> StoreResult<Vec<CollectionSpecification>> {
    let list = store.inner.aside.list_collections().filter(filter);
    let listed: Result<Vec<_>> = async { list.await?.try_collect().await }.await;
    listed.context_of_user(doing)
}
