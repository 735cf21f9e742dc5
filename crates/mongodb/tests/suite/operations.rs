//! Handlers of operations on a real server: what they write, whom they blame, and what they refuse at the start.

use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::bson::{Bson, DateTime, Document, doc};
use oncebox_core::error::{BoxError, Outcome, describe, describe_whole};
use oncebox_core::inbox::{Apply, Failure};
use oncebox_core::message::{Message, Record};
use oncebox_core::names::{MessageId, Tenant};
use oncebox_core::store::{ErrorClass, Store};
use oncebox_mongodb::operations::{Operations, OperationsError, OperationsHandler, PayloadKind};
use oncebox_mongodb::{MongoStore, TemporaryMongo};

use super::support::{Verdict, database};

pub(super) const DEDUCT: &str = r#"{"update": "stock", "filter": {"_id": ":payload.sku"},
    "with": [{"$set": {"on_hand": {"$subtract": ["$on_hand", ":payload.qty"]}}}], "rows": 1}"#;
pub(super) const LEDGER: &str =
    r#"{"insert": "ledger", "document": {"_id": ":id", "sku": ":payload.sku", "qty": ":payload.qty"}}"#;

/// A database with a stock of three articles.
pub(super) struct Shop {
    temporary: TemporaryMongo,
    pub(super) database: Database,
}

impl Shop {
    pub(super) async fn open() -> Result<Self, BoxError> {
        let temporary = database().await;
        let database = temporary.database().await;
        for name in ["stock", "ledger", "totals", "reservations"] {
            database.create_collection(name).await?;
        }
        let articles = ["a", "b", "c"].map(|sku| doc! { "_id": sku, "on_hand": 100 });
        database.collection::<Document>("stock").insert_many(articles).await?;
        Ok(Self { temporary, database })
    }

    pub(super) fn store(&self) -> MongoStore {
        self.temporary.store()
    }

    pub(super) async fn each(&self, operations: &[&str]) -> Result<OperationsHandler, OperationsError> {
        OperationsHandler::prepare(&self.store(), Operations::each(operations, PayloadKind::Json)?).await
    }

    pub(super) async fn batch(&self, operations: &[&str]) -> Result<OperationsHandler, OperationsError> {
        OperationsHandler::prepare(&self.store(), Operations::batch(operations, PayloadKind::Json)?).await
    }

    /// One transaction.
    pub(super) async fn apply(
        &self,
        handler: &OperationsHandler,
        messages: &[Message],
    ) -> Result<(), Failure> {
        let mut txn = self.store().transaction().await.map_err(Failure::of_batch)?;
        if let Err(failure) = handler.apply(&mut txn, messages).await {
            self.store().rollback(txn).await;
            return Err(failure);
        }
        txn.commit().await.map_err(Failure::of_batch)
    }

    /// Cuts as the engine does, until everything is applied or its message is alone: the ids and reasons of those that are not.
    pub(super) async fn settle(
        &self,
        handler: &OperationsHandler,
        messages: &[Message],
    ) -> Vec<(String, String)> {
        let mut parts: Vec<_> = std::iter::once(0..messages.len()).collect();
        let mut failed = Vec::new();
        while let Some(part) = parts.pop() {
            let Err(failure) = self.apply(handler, &messages[part.clone()]).await else { continue };
            if part.len() == 1 {
                let id = messages[part.start].id().as_str().to_owned();
                failed.push((id, describe_whole(failure.error.as_ref())));
                continue;
            }
            let cuts = match failure.at.map(|at| part.start + at) {
                Some(at) => vec![part.start..at, at..at + 1, at + 1..part.end],
                None => {
                    let middle = part.start + part.len() / 2;
                    vec![part.start..middle, middle..part.end]
                }
            };
            parts.extend(cuts.into_iter().filter(|cut| !cut.is_empty()).rev());
        }
        failed
    }

    pub(super) async fn all(&self, collection: &str) -> Result<Vec<Document>, BoxError> {
        let collection = self.database.collection::<Document>(collection);
        Ok(collection.find(doc! {}).sort(doc! { "_id": 1 }).await?.try_collect().await?)
    }

    pub(super) async fn on_hand(&self) -> Result<Vec<i64>, BoxError> {
        let number = |article: &Document| match article.get("on_hand") {
            Some(Bson::Int32(number)) => i64::from(*number),
            Some(Bson::Int64(number)) => *number,
            _ => -1,
        };
        Ok(self.all("stock").await?.iter().map(number).collect())
    }
}

pub(super) fn message(id: &str, payload: &str) -> Message {
    let mut record = Record::at("stock.updates", 0, 7);
    record.payload = Some(payload.to_owned().into());
    record.key = Some("key".into());
    record.timestamp_ms = Some(1_000);
    let id = MessageId::new(id).unwrap_or_else(|error| panic!("{error}"));
    Message::new(id, Tenant::none(), record)
}

pub(super) fn sold(id: &str, sku: &str, qty: i64) -> Message {
    message(id, &format!(r#"{{"sku": "{sku}", "qty": {qty}}}"#))
}

pub(super) fn is_rejected(failure: &Failure) -> bool {
    matches!(Outcome::of(failure.error.as_ref()), Some(Outcome::Reject { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_has_its_effect_in_one_transaction() -> Verdict {
    let shop = Shop::open().await?;
    let total = r#"{"upsert": "totals", "filter": {"_id": ":payload.sku"}, "with": {"$inc": {"n": 1}}}"#;
    let release = r#"{"delete": "reservations", "filter": {"_id": ":id"}, "rows": "0..1"}"#;
    let handler = shop.each(&[DEDUCT, LEDGER, total, release]).await?;
    shop.database.collection::<Document>("reservations").insert_one(doc! { "_id": "m-7" }).await?;
    let messages: Vec<_> = (0..300).map(|n| sold(&format!("m-{n}"), ["a", "b", "c"][n % 3], 2)).collect();
    shop.apply(&handler, &messages).await.map_err(|failure| failure.error)?;
    assert_eq!(shop.on_hand().await?, [-100, -100, -100]);
    assert_eq!(shop.all("ledger").await?.len(), 300);
    assert_eq!(shop.all("ledger").await?[0], doc! { "_id": "m-0", "sku": "a", "qty": 2 });
    let totals: Vec<_> = shop.all("totals").await?;
    assert_eq!(totals, ["a", "b", "c"].map(|sku| doc! { "_id": sku, "n": 100 }));
    assert!(shop.all("reservations").await?.is_empty());

    // Nothing of a transaction that is not committed.
    let mut txn = shop.store().transaction().await?;
    handler.apply(&mut txn, &[sold("x", "a", 1)]).await.map_err(|failure| failure.error)?;
    shop.store().rollback(txn).await;
    assert_eq!(shop.all("ledger").await?.len(), 300);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_about_rows_rejects_only_its_messages() -> Verdict {
    let shop = Shop::open().await?;
    let handler = shop.each(&[DEDUCT, LEDGER]).await?;
    let sku = |n: usize| if n == 3 || n == 30 { "none" } else { "a" };
    let messages: Vec<_> = (0..40).map(|n| sold(&format!("m-{n}"), sku(n), 1)).collect();
    let whole = shop.apply(&handler, &messages).await.unwrap_err();
    assert_eq!(whole.at, None, "a sum cannot tell whose");
    let alone = shop.apply(&handler, &messages[3..4]).await.unwrap_err();
    assert!(is_rejected(&alone));
    assert_eq!(alone.at, Some(0));
    let failed = shop.settle(&handler, &messages).await;
    let reason = "operation 1 (update of stock) matched 0 documents, expected 1".to_owned();
    assert_eq!(failed, [("m-3".to_owned(), reason.clone()), ("m-30".to_owned(), reason)]);
    assert_eq!(shop.on_hand().await?, [62, 100, 100]);
    assert_eq!(shop.all("ledger").await?.len(), 38);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_message_alone_are_counted_one_by_one() -> Verdict {
    let shop = Shop::open().await?;
    let free = r#"{"update": "stock", "filter": {"_id": "nobody"}, "with": {"$inc": {"on_hand": 1}}}"#;
    let none = r#"{"update": "stock", "filter": {"_id": ":payload.sku", "gone": true}, "with": {"$inc": {"x": 1}}, "rows": 0}"#;
    let all =
        r#"{"update": "stock", "filter": {}, "with": {"$set": {"seen": true}}, "many": true, "rows": "3.."}"#;
    let handler = shop.each(&[DEDUCT, free, none, all, DEDUCT]).await?;
    let messages = [sold("1", "a", 1), sold("2", "b", 1)];
    assert_eq!(shop.settle(&handler, &messages).await, []);
    assert_eq!(shop.on_hand().await?, [98, 98, 100]);

    let four = all.replace("3..", "4..");
    let handler = shop.each(&[DEDUCT, four.as_str()]).await?;
    let failure = shop.apply(&handler, &messages).await.unwrap_err();
    assert_eq!(failure.at, Some(0), "it is a command of its own");
    assert_eq!(failure.error.to_string(), "operation 2 (update of stock) matched 3 documents, expected 4..");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_names_the_write_that_it_refuses() -> Verdict {
    let shop = Shop::open().await?;
    let handler = shop.each(&[LEDGER, DEDUCT]).await?;
    shop.database.collection::<Document>("ledger").insert_one(doc! { "_id": "m-5" }).await?;
    let messages: Vec<_> = (0..10).map(|n| sold(&format!("m-{n}"), "a", 1)).collect();
    let failure = shop.apply(&handler, &messages).await.unwrap_err();
    assert_eq!(failure.at, Some(5));
    assert!(!is_rejected(&failure), "another attempt may go well");
    let failed = shop.settle(&handler, &messages).await;
    assert_eq!(failed.len(), 1);
    assert!(failed[0].1.starts_with("operation 1 (insert into ledger): E11000 duplicate key"), "{failed:?}");
    assert!(failed[0].1.ends_with("(11000)"), "{failed:?}");
    assert_eq!(shop.on_hand().await?, [91, 100, 100]);

    // A value that does not fit, and a validator.
    let validator = doc! { "collMod": "totals", "validator": { "n": { "$lt": 3 } } };
    shop.database.run_command(validator).await?;
    let total =
        r#"{"upsert": "totals", "filter": {"_id": ":payload.sku"}, "with": {"$inc": {"n": ":payload.qty"}}}"#;
    let handler = shop.each(&[total]).await?;
    let messages = [
        sold("1", "a", 1),
        message("2", r#"{"sku": "a", "qty": "x"}"#),
        sold("3", "b", 5),
        sold("4", "a", 1),
    ];
    let failed = shop.settle(&handler, &messages).await;
    assert_eq!(failed.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["2", "3"]);
    assert!(failed[0].1.contains("non-numeric") && failed[1].1.contains("(121)"), "{failed:?}");
    assert_eq!(shop.all("totals").await?, [doc! { "_id": "a", "n": 2 }]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_message_holds_stays_data() -> Verdict {
    let shop = Shop::open().await?;
    let delete = r#"{"delete": "stock", "filter": {"_id": ":payload.x"}, "many": true}"#;
    let keep = r#"{"insert": "ledger", "document": {"_id": ":id", "x": ":payload.x"}}"#;
    let push = r#"{"upsert": "totals", "filter": {"_id": "t"}, "with": {"$push": {"list": ":payload.x"}}}"#;
    let expression = r#"{"update": "stock", "filter": {"$expr": {"$eq": ["$_id", ":payload.x"]}}, "with": [{"$set": {"y": ":payload.x"}}]}"#;
    let set = r#"{"update": "stock", "filter": {"_id": "b"}, "with": [{"$set": {"on_hand": ":payload.x"}}]}"#;
    let handler = shop.each(&[delete, expression, keep, push, set]).await?;
    let attacks = [
        r#"{"$gt": ""}"#,
        r#"{"$each": [1, 2]}"#,
        r#""$on_hand""#,
        r#"{"a.b": {"$ne": 1}, "$x": 0}"#,
        r#""$$ROOT""#,
    ];
    for (n, attack) in attacks.iter().enumerate() {
        let message = message(&format!("m-{n}"), &format!(r#"{{"x": {attack}}}"#));
        shop.apply(&handler, &[message]).await.map_err(|failure| failure.error)?;
        let value = shop.all("stock").await?[1].get("on_hand").cloned();
        assert_eq!(value, shop.all("ledger").await?[n].get("x").cloned(), "{attack}");
    }
    let stock = shop.all("stock").await?;
    assert_eq!(stock.len(), 3, "nothing was deleted");
    assert!(stock.iter().all(|article| !article.contains_key("y")), "nothing was matched");
    let stored: Vec<_> =
        shop.all("ledger").await?.iter().filter_map(|entry| entry.get("x").cloned()).collect();
    assert_eq!(stored[0], Bson::Document(doc! { "$gt": "" }));
    assert_eq!(stored[3], Bson::Document(doc! { "a.b": { "$ne": 1 }, "$x": 0 }));
    assert_eq!(shop.all("totals").await?[0].get_array("list")?, &stored, "each is one element");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_document_can_hold_rejects_its_message() -> Verdict {
    let shop = Shop::open().await?;
    let keep = r#"{"insert": "ledger", "document": {"_id": ":id", "p": ":payload.p"}}"#;
    let handler = shop.each(&[keep]).await?;
    let nested = |levels: usize| format!(r#"{{"p": {}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let messages = [
        message("deep", &nested(99)),
        message("deeper", &nested(100)),
        message("surrogate", r#"{"p": "\ud800"}"#),
        message("large", r#"{"p": 18446744073709551616}"#),
        message("nul", r#"{"p": {"a\u0000b": 1}}"#),
        message("good", r#"{"p": "\u0000"}"#),
    ];
    let failed = shop.settle(&handler, &messages).await;
    let names: Vec<_> = failed.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(names, ["deeper", "surrogate", "large", "nul"], "{failed:?}");
    for message in &messages[1..5] {
        let failure = shop.apply(&handler, std::slice::from_ref(message)).await.unwrap_err();
        assert!(is_rejected(&failure), "{}", failure.error);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_makes_rows_of_the_messages() -> Verdict {
    let shop = Shop::open().await?;
    let deduct = r#"{"messages": [{"$group": {"_id": "$payload.sku", "qty": {"$sum": "$payload.qty"}}}],
        "update": "stock", "filter": {"_id": ":row._id"},
        "with": [{"$set": {"on_hand": {"$subtract": ["$on_hand", ":row.qty"]}}}], "rows": 1}"#;
    let ledger = r#"{"insert": "ledger", "document": {"_id": ":row.id", "sku": ":row.payload.sku", "at": ":row.timestamp"}}"#;
    let handler = shop.batch(&[deduct, ledger]).await?;
    let sku = |n: usize| if n == 17 { "none" } else { ["a", "b", "c"][n % 3] };
    let messages: Vec<_> = (0..60).map(|n| sold(&format!("m-{n:02}"), sku(n), 1)).collect();
    let failed = shop.settle(&handler, &messages).await;
    let reason = "operation 1 (update of stock) matched 0 documents, expected 1";
    assert_eq!(failed, [("m-17".to_owned(), reason.to_owned())]);
    assert_eq!(shop.on_hand().await?, [80, 80, 81]);
    let entries = shop.all("ledger").await?;
    assert_eq!(entries.len(), 59);
    assert_eq!(entries[0], doc! { "_id": "m-00", "sku": "a", "at": DateTime::from_millis(1_000) });

    // A text that looks like an expression stays a text.
    let count = r#"{"messages": [{"$group": {"_id": "$payload.sku", "n": {"$sum": 1}}}],
        "upsert": "totals", "filter": {"_id": ":row._id"}, "with": {"$inc": {"n": ":row.n"}}}"#;
    let handler = shop.batch(&[count]).await?;
    let messages: Vec<_> = (0..250).map(|n| sold(&format!("m-{n}"), &format!("$on_hand{n}"), 1)).collect();
    shop.apply(&handler, &messages).await.map_err(|failure| failure.error)?;
    let totals = shop.all("totals").await?;
    assert_eq!((totals.len(), totals[0].get_str("_id")?), (250, "$on_hand0"));

    // A pipeline sees what operations before it wrote.
    let mark = r#"{"update": "stock", "filter": {"_id": "a"}, "with": {"$set": {"on_hand": 7}}}"#;
    let look = r#"{"messages": [{"$limit": 1}, {"$lookup": {"from": "stock", "pipeline": [{"$match": {"on_hand": 7}}], "as": "s"}}],
        "insert": "reservations", "document": {"_id": "r", "found": ":row.s.0._id", "id": ":row.id"}}"#;
    let handler = shop.batch(&[mark, look]).await?;
    shop.apply(&handler, &[sold("m", "a", 1)]).await.map_err(|failure| failure.error)?;
    assert_eq!(shop.all("reservations").await?, [doc! { "_id": "r", "found": "a", "id": "m" }]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_into_the_outbox() -> Verdict {
    let shop = Shop::open().await?;
    let made = r#"{"emit": "stock.changed", "key": ":payload.sku", "payload": {"z": ":payload.qty", "at": ":timestamp", "a": [":id"]},
        "headers": {"ce_type": "Changed", "none": ":headers.none"}}"#;
    let same = r#"{"emit": "copies", "payload": ":payload"}"#;
    let handler = shop.each(&[DEDUCT, made, same]).await?;
    let payload = r#"{ "sku": "a",  "qty": 1 }"#;
    let messages = [message("m-1", payload), sold("m-2", "b", 2)];
    shop.apply(&handler, &messages).await.map_err(|failure| failure.error)?;
    let events = shop.all("oncebox_outbox").await?;
    let text = |event: &Document, field: &str| match event.get(field) {
        Some(Bson::Binary(binary)) => String::from_utf8_lossy(&binary.bytes).into_owned(),
        Some(Bson::String(text)) => text.clone(),
        _ => String::new(),
    };
    let topics: Vec<_> = events.iter().map(|event| text(event, "topic")).collect();
    assert_eq!(topics, ["stock.changed", "copies", "stock.changed", "copies"]);
    assert_eq!(text(&events[0], "key"), "a");
    assert_eq!(text(&events[0], "payload"), r#"{"z":1,"at":"1970-01-01T00:00:01Z","a":["m-1"]}"#);
    assert_eq!(text(&events[0], "headers"), r#"{"ce_type":"Changed","content-type":"application/json"}"#);
    assert_eq!(text(&events[0], "causation_id"), "m-1");
    assert_eq!(text(&events[1], "payload"), payload, "byte by byte");

    let bad = r#"{"emit": "t", "deliver_at": ":payload.sku"}"#;
    let handler = shop.each(&[bad]).await?;
    let failure = shop.apply(&handler, &messages[..1]).await.unwrap_err();
    assert!(is_rejected(&failure) && failure.error.to_string().contains("deliver_at"), "{}", failure.error);

    let bad = r#"{"emit": "t", "key": ":payload"}"#;
    let handler = shop.each(&[bad]).await?;
    let failure = shop.apply(&handler, &messages[..1]).await.unwrap_err();
    assert!(is_rejected(&failure), "{}", failure.error);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_can_be_delayed() -> Verdict {
    let shop = Shop::open().await?;
    let hour = r#"{"emit": "reminders", "delay": "1h"}"#;
    let text = r#"{"emit": "reminders", "deliver_at": ":payload.at"}"#;
    let date = r#"{"emit": "reminders", "deliver_at": {"$date": ":payload.at"}}"#;
    let null = r#"{"emit": "reminders", "deliver_at": ":payload.none"}"#;
    let handler = shop.each(&[hour, text, date, null]).await?;
    let messages = [message("m-1", r#"{"at": "2026-01-02T03:04:05.678Z"}"#)];
    shop.apply(&handler, &messages).await.map_err(|failure| failure.error)?;
    let events = shop.all("oncebox_outbox").await?;
    let times: Vec<Option<i64>> = events
        .iter()
        .map(|event| event.get_datetime("deliver_at").ok().map(|at| at.timestamp_millis()))
        .collect();
    let delay = times[0].unwrap() - events[0].get_datetime("created_at")?.timestamp_millis();
    assert!((3_500_000..3_700_000).contains(&delay), "{delay}");
    assert_eq!(times[1..], [Some(1_767_323_045_678), Some(1_767_323_045_678), None]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_database_would_refuse_is_refused_at_the_start() -> Verdict {
    let shop = Shop::open().await?;
    let create = doc! { "create": "seen", "viewOn": "stock", "pipeline": [] };
    shop.database.run_command(create).await?;
    shop.database.run_command(doc! { "create": "log", "capped": true, "size": 4096 }).await?;
    shop.database.run_command(doc! { "create": "series", "timeseries": { "timeField": "at" } }).await?;
    let insert = |name: &str| format!(r#"{{"insert": "{name}", "document": {{"a": 1}}}}"#);
    for (operation, expected) in [
        (insert("seen"), "seen is a view"),
        (insert("log"), "log is capped"),
        (insert("series"), "series is a time series"),
        (
            r#"{"update": "stock", "filter": {"_id": ":id"}, "with": [{"$set": {"a": {"$subtrct": ["$a", ":payload.x"]}}}]}"#.to_owned(),
            "Unrecognized expression '$subtrct' (168)",
        ),
        (
            r#"{"update": "stock", "filter": {"_id": ":id"}, "with": [{"$sett": {"a": 1}}]}"#.to_owned(),
            "'$sett' (40324)",
        ),
        (
            r#"{"delete": "stock", "filter": {"$expr": {"$equal": ["$a", ":id"]}}}"#.to_owned(),
            "Unrecognized expression '$equal' (168)",
        ),
        (
            r#"{"update": "stock", "filter": {"_id": 1}, "with": {"$inc": {"a": "x"}}}"#.to_owned(),
            "non-numeric",
        ),
    ] {
        let error = shop.each(&[DEDUCT, operation.as_str()]).await.unwrap_err();
        let OperationsError::Operations(bad) = &error else { panic!("{error:?}") };
        assert_eq!(bad.iter().map(|bad| bad.number).collect::<Vec<_>>(), [2]);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let group = r#"{"messages": [{"$gruop": {"_id": 1}}], "delete": "stock", "filter": {"_id": ":row._id"}}"#;
    assert!(shop.batch(&[group]).await.unwrap_err().to_string().contains("$gruop"));

    // A collection that is not there yet may come.
    let OperationsError::Store(missing) = shop.each(&[insert("stok").as_str()]).await.unwrap_err() else {
        panic!()
    };
    assert_eq!(missing.class, ErrorClass::Environment);
    assert!(describe(&missing).contains("there is no collection stok; create it"), "{}", describe(&missing));

    // What only a value can tell is not refused.
    shop.each(&[r#"{"update": "stock", "filter": {"_id": ":id"}, "with": {"$inc": {"a": ":payload.x"}}}"#])
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_the_value_of_a_filter_touches_nothing() -> Verdict {
    let shop = Shop::open().await?;
    let reservations = shop.database.collection::<Document>("reservations");
    reservations.insert_many([doc! { "_id": 1 }, doc! { "_id": 2, "order": "o-2" }]).await?;
    let delete = r#"{"delete": "reservations", "filter": {"order": ":payload.order"}, "many": true}"#;
    let handler = shop.each(&[delete]).await?;
    let failure = shop.apply(&handler, &[message("m-1", "{}")]).await.err().ok_or("it was applied")?;
    assert!(is_rejected(&failure), "{:?}", failure.error);
    assert_eq!(failure.at, Some(0));
    assert_eq!(shop.all("reservations").await?.len(), 2);
    shop.apply(&handler, &[message("m-2", r#"{"order": "o-2"}"#)]).await.map_err(|failure| failure.error)?;
    assert_eq!(shop.all("reservations").await?, [doc! { "_id": 1 }]);

    // Grouped, those without the field are a row whose `_id` is null.
    let grouped = r#"{"messages": [{"$group": {"_id": "$payload.order"}}], "delete": "reservations",
        "filter": {"order": ":row._id"}, "many": true}"#;
    let handler = shop.batch(&[grouped]).await?;
    let failure = shop.apply(&handler, &[message("m-3", "{}")]).await.err().ok_or("it was applied")?;
    assert!(is_rejected(&failure), "{:?}", failure.error);
    assert_eq!(shop.all("reservations").await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_validator_requires_must_stand_in_the_document() -> Verdict {
    let shop = Shop::open().await?;
    let requires = |fields: &[&str]| doc! { "$jsonSchema": { "required": fields } };
    let change = async |more: Document| {
        let mut command =
            doc! { "collMod": "ledger", "validationAction": "error", "validationLevel": "strict" };
        command.extend(more);
        shop.database.run_command(command).await
    };
    change(doc! { "validator": requires(&["_id", "sku", "qty", "at", "by"]) }).await?;
    let error = shop.each(&[DEDUCT, LEDGER]).await.unwrap_err();
    let OperationsError::Operations(bad) = &error else { panic!("{error:?}") };
    assert_eq!(bad.iter().map(|bad| bad.number).collect::<Vec<_>>(), [2]);
    assert!(error.to_string().contains("the validator of ledger requires at and by"), "{error}");
    let fixed = r#"{"insert": "ledger", "document": {"sku": "a", "qty": 1, "at": 0}}"#;
    let error = shop.each(&[fixed]).await.unwrap_err();
    assert!(error.to_string().contains("the validator of ledger requires by,"), "{error}");

    // What is filled in whole may have it, and a validator that only warns refuses nothing.
    shop.each(&[r#"{"insert": "ledger", "document": ":payload"}"#]).await?;
    change(doc! { "validationAction": "warn" }).await?;
    shop.each(&[LEDGER]).await?;
    change(doc! { "validator": requires(&["_id", "sku", "qty"]) }).await?;
    shop.each(&[LEDGER]).await?;
    Ok(())
}
