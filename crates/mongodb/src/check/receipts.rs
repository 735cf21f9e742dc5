//! Whether the collections are kept as they should be.

use futures_util::TryStreamExt;
use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use oncebox_core::store::{Finding, StoreResult};

use crate::classify::Context;
use crate::store::MongoStore;

/// More names than this are not listed.
const MOST_NAMES: usize = 10;
/// Collections of ours that are looked at.
const MOST_COLLECTIONS: usize = 100;

const DOING: &str = "looking at the collections";

pub(super) async fn findings(store: &MongoStore) -> StoreResult<Vec<Finding>> {
    let database = &store.inner.aside;
    let ours = doc! { "name": { "$regex": "^oncebox_" }, "type": "collection" };
    let mut listed = database.list_collections().filter(ours).await.context(DOING)?;
    let (mut expiring, mut collated, mut seen) = (Vec::new(), Vec::new(), 0);
    while let Some(collection) = listed.try_next().await.context(DOING)? {
        seen += 1;
        if seen > MOST_COLLECTIONS {
            break;
        }
        if collection.options.collation.is_some() {
            collated.push(collection.name.clone());
        }
        let indexes =
            database.collection::<Document>(&collection.name).list_indexes().await.context(DOING)?;
        let indexes: Vec<IndexModel> = indexes.try_collect().await.context(DOING)?;
        expiring
            .extend(indexes.iter().filter(|index| expires(index)).map(|index| name(&collection.name, index)));
    }
    Ok([of_expiring(&expiring), of_collated(&collated)].into_iter().flatten().collect())
}

fn expires(index: &IndexModel) -> bool {
    index.options.as_ref().is_some_and(|options| options.expire_after.is_some())
}

fn name(collection: &str, index: &IndexModel) -> String {
    let name = index.options.as_ref().and_then(|options| options.name.as_deref()).unwrap_or("an index");
    format!("{collection}.{name}")
}

fn of_expiring(indexes: &[String]) -> Option<Finding> {
    (!indexes.is_empty()).then(|| {
        Finding::warning(
            "TTL indexes",
            format!(
                "{} delete by the clock, also what a consumer that is down still needs: copies of those messages are then applied \
                 again. Drop the index; `retention` of the inbox removes receipts by how far it is",
                list(indexes)
            ),
        )
    })
}

fn of_collated(collections: &[String]) -> Option<Finding> {
    (!collections.is_empty()).then(|| {
        Finding::error(
            "collation",
            format!(
                "{} compare texts other than byte for byte, so that two messages may be taken for one. Make them anew without a \
                 collation: move them away, run `oncebox migrate`, and copy their documents back",
                list(collections)
            ),
        )
    })
}

fn list(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMES { format!("{shown} and more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let many: Vec<String> = (0..11).map(|n| format!("c{n}")).collect();
        assert_eq!(list(&many), "c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 and more");
        assert_eq!(of_expiring(&[]), None);
    }
}
