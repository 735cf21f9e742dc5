//! Collections that go missing while a handler runs: no message is to blame, and nothing is lost.

use mongodb::bson::{Document, doc};
use oncebox_core::error::{BoxError, describe};
use oncebox_core::inbox::Failure;
use oncebox_core::store::{ErrorClass, Store};
use oncebox_mongodb::MongoStore;

use super::operations::{DEDUCT, Shop, is_rejected, sold};
use super::support::Verdict;

/// One operation of each kind, on the collection that goes.
const OF_EACH_KIND: [&str; 5] = [
    DEDUCT,
    r#"{"update": "stock", "filter": {"_id": ":payload.sku"}, "with": {"$inc": {"on_hand": -1}}}"#,
    r#"{"upsert": "stock", "filter": {"_id": ":payload.sku"}, "with": {"$inc": {"on_hand": -1}}}"#,
    r#"{"insert": "stock", "document": {"_id": ":id"}}"#,
    r#"{"delete": "stock", "filter": {"_id": ":payload.sku"}}"#,
];

async fn rename(shop: &Shop, from: &str, to: &str) -> Result<(), BoxError> {
    let name = shop.database.name();
    let command = doc! { "renameCollection": format!("{name}.{from}"), "to": format!("{name}.{to}") };
    shop.database.client().database("admin").run_command(command).await?;
    Ok(())
}

fn class_of(failure: &Failure) -> ErrorClass {
    MongoStore::classify(failure.error.as_ref())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_goes_missing_is_no_fault_of_a_message() -> Verdict {
    for operation in OF_EACH_KIND {
        let shop = Shop::open().await?;
        let in_pipeline = operation.replace(":payload", ":row.payload").replace(":id", ":row.id");
        let handlers = [shop.each(&[operation]).await?, shop.batch(&[in_pipeline.as_str()]).await?];
        let messages = [sold("m-1", "a", 1), sold("m-2", "b", 1)];
        rename(&shop, "stock", "stock_old").await?;
        for handler in &handlers {
            for part in [&messages[..], &messages[..1]] {
                let failure = shop.apply(handler, part).await.err().ok_or("it was applied")?;
                let said = describe(failure.error.as_ref());
                assert_eq!(class_of(&failure), ErrorClass::Environment, "{operation}: {said}");
                assert!(!is_rejected(&failure), "{said}");
                assert!(said.contains("there is no collection stock any more"), "{said}");
            }
        }
        let names = shop.database.list_collection_names().await?;
        assert!(!names.iter().any(|name| name == "stock"), "it was made by a write");
        rename(&shop, "stock_old", "stock").await?;
        assert_eq!(shop.settle(&handlers[0], &messages).await, [], "{operation}");
    }
    Ok(())
}

/// Restored from a copy, for example: it is another collection of the same name, and the right one.
#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_is_made_anew_is_taken_for_the_right_one() -> Verdict {
    let shop = Shop::open().await?;
    let handler = shop.each(&[DEDUCT]).await?;
    shop.database.collection::<Document>("stock").drop().await?;
    shop.database.collection("stock").insert_one(doc! { "_id": "a", "on_hand": 10 }).await?;
    let first = shop.apply(&handler, &[sold("m-1", "a", 1)]).await.err().ok_or("nobody noticed")?;
    assert_eq!(class_of(&first), ErrorClass::Transient, "{}", describe(first.error.as_ref()));
    shop.apply(&handler, &[sold("m-1", "a", 1)]).await.map_err(|failure| failure.error)?;
    assert_eq!(shop.on_hand().await?, [9]);
    Ok(())
}
