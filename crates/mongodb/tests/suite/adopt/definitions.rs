//! What a collection must be like, and what its fields hold.

use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use mongodb::options::{Collation, CollationStrength, IndexOptions};
use oncebox_core::inbox::Selector;
use oncebox_core::store::{Adopt, Adopting, DeadLetters, ErrorClass, IdFormat, Store};
use oncebox_mongodb::MongoStore;
use uuid::Uuid;

use super::super::support::{Verdict, all, database, letter, stock};
use super::by_hand::{ID, ONE, OTHER, Shop, adopt, claim, ids};

fn unique(keys: Document) -> IndexModel {
    IndexModel::builder().keys(keys).options(IndexOptions::builder().unique(true).build()).build()
}

fn uuid(id: &str, subtype: BinarySubtype) -> Bson {
    Binary { subtype, bytes: Uuid::try_parse(id).unwrap().as_bytes().to_vec() }.into()
}

#[tokio::test]
async fn a_collection_that_will_not_do_is_refused_with_the_reason() -> Verdict {
    let by_event = || adopt("inbox", "eventId");
    let shop = Shop::empty(by_event()).await;
    assert!(shop.refusal().await.contains("no such table"));

    shop.database.create_collection("inbox").await?;
    let once = "db.inbox.createIndex({ eventId: 1 }, { unique: true })";
    assert!(shop.refusal().await.contains(once));
    let inbox = shop.collection("inbox");
    let partial = IndexOptions::builder()
        .unique(true)
        .name("partial".to_owned())
        .partial_filter_expression(doc! { "eventId": { "$gt": "m" } })
        .build();
    inbox.create_index(IndexModel::builder().keys(doc! { "eventId": 1 }).options(partial).build()).await?;
    inbox.create_index(unique(doc! { "topic": 1, "eventId": 1 })).await?;
    assert!(shop.refusal().await.contains(once), "neither tells copies");
    inbox.drop_index("partial").await?;
    inbox.create_index(unique(doc! { "eventId": 1 })).await?;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![true, true], vec![]));
    assert_eq!(shop.apply("stock", &ids(&["a", "c"])).await, (vec![false, true], vec![]));

    let capped = Shop::empty(adopt("inbox", "_id")).await;
    capped.database.create_collection("inbox").capped(true).size(100_000).await?;
    assert!(capped.refusal().await.contains("capped"));
    let view = Shop::empty(adopt("inbox", "_id")).await;
    view.database.create_collection("inbox").view_on("effects".to_owned()).await?;
    assert!(view.refusal().await.contains("view"));
    Ok(())
}

#[tokio::test]
async fn ids_that_are_there_say_how_they_are_written() -> Verdict {
    let number = |id: i32| doc! { "_id": id };
    for (documents, said) in [
        (vec![doc! { "_id": ObjectId::new() }], "of type objectId"),
        (vec![number(1)], "of type number"),
        (vec![doc! { "_id": uuid(ID, BinarySubtype::UuidOld) }], "old subtype 3"),
        (vec![doc! { "_id": "a" }, doc! { "_id": uuid(ID, BinarySubtype::Uuid) }], "string and UUID"),
        (vec![doc! { "_id": uuid(ID, BinarySubtype::Generic) }], "not written as oncebox would"),
    ] {
        let shop = Shop::new(adopt("inbox", "_id")).await;
        shop.collection("inbox").insert_many(documents).await?;
        let refusal = shop.refusal().await;
        assert!(refusal.contains(said), "{refusal}");
    }
    // Whoever says how, may have a few others among them.
    let shop = Shop::new(adopt("inbox", "_id").id_format(IdFormat::UuidBytes)).await;
    let old = [doc! { "_id": uuid(ID, BinarySubtype::Generic) }, doc! { "_id": "x" }];
    shop.collection("inbox").insert_many(old).await?;
    shop.collection("inbox").insert_one(doc! { "_id": uuid(OTHER, BinarySubtype::Generic) }).await?;
    assert_eq!(shop.apply("stock", &ids(&[ID, &OTHER.to_uppercase()])).await, (vec![false, false], vec![]));
    Ok(())
}

/// A UUID is a value: all spellings are one message.
#[tokio::test]
async fn every_way_to_keep_uuids_knows_all_spellings() -> Verdict {
    let (upper, simple) = (ID.to_uppercase(), ID.replace('-', ""));
    let text = |text: &str| Bson::String(text.to_owned());
    for (format, old, stored) in [
        (None, Some(uuid(OTHER, BinarySubtype::Uuid)), uuid(ID, BinarySubtype::Uuid)),
        (Some(IdFormat::Uuid), None, uuid(ID, BinarySubtype::Uuid)),
        (Some(IdFormat::Uuid), Some(text(OTHER)), text(ID)),
        (Some(IdFormat::Hex), None, text(&simple)),
        (Some(IdFormat::UuidBytes), None, uuid(ID, BinarySubtype::Generic)),
    ] {
        let mut mapping = adopt("inbox", "_id").processed_at("at")?;
        if let Some(format) = format {
            mapping = mapping.id_format(format);
        }
        let shop = Shop::new(mapping).await;
        if let Some(old) = &old {
            shop.collection("inbox").insert_one(doc! { "_id": old, "at": DateTime::now() }).await?;
        }
        let what = format!("{format:?} {old:?}");
        let batch = ids(&[&upper, "order-1", ID, &simple, OTHER]);
        let mut claimed = claim(&shop.store, "stock", &batch).await?;
        assert_eq!(claimed.fresh, [true, false, false, false, old.is_none()], "{what}");
        assert_eq!(claimed.refused.iter().map(|one| one.at).collect::<Vec<_>>(), [1], "{what}");
        shop.store.park(&mut claimed.txn, &stock(), &[letter(Some(&upper), 1)]).await?;
        shop.store.commit(claimed.txn, None).await?;
        assert!(
            shop.documents("inbox").await.iter().any(|receipt| receipt.get("_id") == Some(&stored)),
            "{what}"
        );

        // The receipt of a letter stays, however the letter spells it.
        let older = vec![doc! { "$set": { "at": { "$subtract": ["$at", 2 * 86_400_000_i64] } } }];
        shop.collection("inbox").update_many(doc! {}, older).await?;
        assert_eq!(shop.purge().await.receipts, 1, "{what}");
        let number = shop.store.dead_letters(&all()).await?[0].number;
        let (txn, _) = shop.store.take_dead(number).await?.ok_or("the letter is not there")?;
        shop.store.commit(txn, None).await?;
        assert_eq!(shop.purge().await.receipts, 0, "the replay has made it young: {what}");
        assert_eq!(shop.apply("stock", &ids(&[&simple, OTHER])).await, (vec![false, true], vec![]), "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn consumers_tenants_and_further_fields() -> Verdict {
    // The key has the id alone.
    let shop = Shop::new(adopt("inbox", "_id").consumer("consumer")?).await;
    shop.collection("inbox").insert_one(doc! { "_id": "old" }).await?;
    assert_eq!(shop.apply("stock", &ids(&["a", "old"])).await, (vec![true, false], vec![]));
    assert_eq!(shop.apply("billing", &ids(&["a", "b", "old"])).await, (vec![false, true, false], vec![0]));

    let mapping = adopt("inbox", "event")
        .consumer("consumer")?
        .tenant("tenant")?
        .processed_at("at")?
        .set("kind", Selector::Header("type".to_owned()))?;
    let shop = Shop::new(mapping).await;
    let required =
        doc! { "$jsonSchema": { "required": ["kind"], "properties": { "kind": { "enum": ["paid"] } } } };
    shop.database.run_command(doc! { "collMod": "inbox", "validator": required }).await?;
    shop.collection("inbox").create_index(unique(doc! { "consumer": 1, "tenant": 1, "event": 1 })).await?;
    let (paid, lost, none) = ([Some("paid".to_owned())], [Some("lost".to_owned())], [None]);
    let messages =
        [("1", "a", &paid[..]), ("2", "a", &paid[..]), ("1", "b", &none[..]), ("", "a", &paid[..])];
    assert_eq!(shop.apply("stock", &messages).await, (vec![true, true, false, true], vec![2]));
    assert_eq!(shop.apply("billing", &messages[..1]).await, (vec![true], vec![]));
    assert_eq!(shop.apply("stock", &messages[..2]).await, (vec![false, false], vec![]));
    let error = claim(&shop.store, "stock", &[("1", "c", &lost)]).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Failed, "{error}");
    let receipts = shop.documents("inbox").await;
    assert!(
        receipts.iter().all(|receipt| receipt.get_datetime("at").is_ok() && receipt.get_str("kind").is_ok())
    );

    // A document without a tenant is not the same as one with ''.
    let shop = Shop::new(adopt("inbox", "event").tenant("tenant")?).await;
    shop.collection("inbox").create_index(unique(doc! { "tenant": 1, "event": 1 })).await?;
    shop.collection("inbox").insert_one(doc! { "event": "a" }).await?;
    assert!(shop.refusal().await.contains("tenant"));
    let shop = Shop::new(adopt("inbox", "_id").consumer("consumer")?).await;
    shop.collection("inbox").insert_one(doc! { "_id": "a", "consumer": 7 }).await?;
    assert!(shop.refusal().await.contains("text"));
    Ok(())
}

/// A collation takes two messages for one: the second is not skipped in silence.
#[tokio::test]
async fn ids_that_a_collation_holds_to_be_the_same_are_told() -> Verdict {
    let shop = Shop::empty(adopt("inbox", "_id")).await;
    let loose = Collation::builder().locale("en").strength(CollationStrength::Secondary).build();
    shop.database.create_collection("inbox").collation(loose).await?;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![true, true], vec![]));
    assert_eq!(shop.apply("stock", &ids(&["A", "b", "c"])).await, (vec![false, false, true], vec![0]));
    // Both new and in one batch: the engine cuts it, and each is told apart alone.
    let both = claim(&shop.store, "stock", &ids(&["d", "D"])).await;
    assert_eq!(both.err().map(|error| error.class), Some(ErrorClass::Failed));
    Ok(())
}

#[tokio::test]
async fn a_collection_that_changes_while_it_runs_is_noticed() -> Verdict {
    let shop = Shop::new(adopt("inbox", "_id")).await;
    assert_eq!(shop.apply("stock", &ids(&["a"])).await, (vec![true], vec![]));
    let wants =
        |fields: &[&str]| doc! { "collMod": "inbox", "validator": { "$jsonSchema": { "required": fields } } };
    shop.database.run_command(wants(&["_id", "shop"])).await?;
    let error = claim(&shop.store, "stock", &ids(&["b"])).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Environment, "{error}");
    assert!(error.to_string().contains("set = { shop ="), "{error}");
    shop.database.run_command(wants(&["_id"])).await?;
    assert_eq!(shop.apply("stock", &ids(&["a", "b"])).await, (vec![false, true], vec![]));
    Ok(())
}

#[tokio::test]
async fn what_works_with_a_risk_is_told() -> Verdict {
    let shop = Shop::new(adopt("inbox", "_id").processed_at("at")?).await;
    let warnings = |shop: &Shop| {
        let store = shop.store.clone();
        async move {
            let findings = store.check_adopted(ONE).await.unwrap();
            findings.into_iter().map(|finding| finding.detail).collect::<Vec<_>>().join("\n")
        }
    };
    assert!(warnings(&shop).await.contains("it is empty"));
    shop.collection("inbox").insert_one(doc! { "_id": "a", "at": "yesterday" }).await?;
    assert!(warnings(&shop).await.contains("which is no time: nothing is purged"));
    assert_eq!(shop.purge().await.receipts, 0);
    shop.collection("inbox").delete_many(doc! {}).await?;
    shop.collection("inbox").insert_one(doc! { "_id": "a" }).await?;
    let expires =
        IndexOptions::builder().expire_after(Duration::from_secs(3600)).name("ttl".to_owned()).build();
    shop.collection("inbox")
        .create_index(IndexModel::builder().keys(doc! { "at": 1 }).options(expires).build())
        .await?;
    let said = warnings(&shop).await;
    assert!(
        said.contains("its index ttl deletes receipts 3600 s") && said.contains("some rows have no at"),
        "{said}"
    );
    Ok(())
}

/// Of oncebox's own receipts: their type, and when the message came, if the store was told where the type is.
#[tokio::test]
async fn receipts_carry_the_type_of_their_messages() -> Verdict {
    let at = database().await;
    let by_header = Selector::Header("type".to_owned());
    let store = MongoStore::builder(at.url()).event_type(by_header.clone()).connect().await?;
    let (placed, none) = ([Some("order.placed".to_owned())], [None]);
    let claimed = claim(&store, "stock", &[("", "a", &placed[..]), ("", "b", &none[..])]).await?;
    store.commit(claimed.txn, None).await?;
    let inbox = at.database().await.collection::<Document>("oncebox_inbox");
    let receipt = |id: &str| inbox.find_one(doc! { "message_id": id });
    let a = receipt("a").await?.ok_or("there is no receipt")?;
    assert_eq!(
        (a.get_str("event_type")?, a.get_datetime("received_at")?),
        ("order.placed", a.get_datetime("processed_at")?)
    );
    let b = receipt("b").await?.ok_or("there is no receipt")?;
    assert!(!b.contains_key("event_type") && b.get_datetime("received_at").is_ok());
    assert_eq!(store.further().len(), 1);

    // A replay makes the receipt young; the message came when it came.
    inbox.update_many(doc! {}, doc! { "$set": { "processed_at": DateTime::from_millis(0), "received_at": DateTime::from_millis(0) } }).await?;
    let mut txn = store.claim(&stock(), &[]).await?.txn;
    store.park(&mut txn, &stock(), &[letter(Some("a"), 1)]).await?;
    store.commit(txn, None).await?;
    let (txn, _) = store.take_dead(store.dead_letters(&all()).await?[0].number).await?.ok_or("no letter")?;
    store.commit(txn, None).await?;
    let a = receipt("a").await?.ok_or("there is no receipt")?;
    assert_eq!(a.get_datetime("received_at")?.timestamp_millis(), 0);
    assert!(a.get_datetime("processed_at")?.timestamp_millis() > 0);

    let both = MongoStore::builder(at.url()).event_type(by_header).adopt(Adopt::table("inbox", "_id")?);
    assert!(both.connect().await.is_err());
    Ok(())
}
