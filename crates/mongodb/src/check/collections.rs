//! Whether the collections have what `oncebox migrate` gives them.

use std::collections::HashMap;

use futures_util::TryStreamExt;
use mongodb::bson::doc;
use oncebox_core::store::{Finding, StoreResult};

use crate::classify::Context;
use crate::migrate::{Wanted, wanted};
use crate::store::MongoStore;

const DOING: &str = "looking for what the collections need";

pub(super) async fn findings(store: &MongoStore) -> StoreResult<Option<Finding>> {
    let ours = doc! { "name": { "$regex": "^oncebox_" }, "type": "collection" };
    let listed = store.inner.aside.list_collections().filter(ours).await.context(DOING)?;
    let listed: Vec<_> = listed.try_collect().await.context(DOING)?;
    let found: HashMap<_, _> =
        listed.into_iter().map(|collection| (collection.name, collection.options.validator)).collect();
    let mut lacking = Vec::new();
    for (name, wanted) in wanted()? {
        let Some(validator) = found.get(&name) else {
            lacking.push(format!("{name} is missing"));
            continue;
        };
        let indexes = if wanted.indexes.is_empty() {
            Vec::new()
        } else {
            store.aside(&name).list_index_names().await.context(DOING)?
        };
        let has_validator = wanted.validator.is_none() || wanted.validator == *validator;
        lacking.extend(of_collection(&name, &wanted, has_validator, &indexes));
    }
    Ok(of_lacking(&lacking))
}

/// What a collection lacks.
fn of_collection(name: &str, wanted: &Wanted, has_validator: bool, indexes: &[String]) -> Vec<String> {
    let missing = wanted.indexes.iter().filter(|index| !indexes.contains(index));
    let mut lacking: Vec<_> = missing.map(|index| format!("{name} lacks the index {index}")).collect();
    if !has_validator {
        lacking.push(format!("{name} lacks its validator"));
    }
    lacking
}

fn of_lacking(lacking: &[String]) -> Option<Finding> {
    (!lacking.is_empty()).then(|| {
        Finding::error(
            "collections",
            format!(
                "{}. Have them made again: run db.oncebox_migrations.deleteMany({{}}) in the server's shell, then `oncebox migrate`, \
                 as a user that may (readWrite and dbAdmin). It leaves what is there as it is",
                lacking.join(", ")
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let wanted = Wanted { validator: Some(doc! {}), indexes: vec!["a".to_owned(), "b".to_owned()] };
        let lacking = of_collection("oncebox_x", &wanted, false, &["_id_".to_owned(), "b".to_owned()]);
        assert_eq!(lacking, ["oncebox_x lacks the index a", "oncebox_x lacks its validator"]);
        assert_eq!(of_collection("oncebox_x", &wanted, true, &wanted.indexes), [""; 0]);
        assert_eq!(of_lacking(&[]), None);
    }
}
