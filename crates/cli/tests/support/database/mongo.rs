//! The same on MongoDB, which speaks no SQL.

use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::error::{ErrorKind, Result, WriteFailure};
use mongodb::options::{ClientOptions, ReadConcern, WriteConcern};

use super::super::orders::{ON_HAND, SKUS};
use crate::support::service;

const SERVER: &str = "ONCEBOX_TEST_MONGODB";
/// Longer than any election: what the test asks is asked again.
const PATIENCE: Duration = Duration::from_secs(60);

/// An ordinary client of the test's database.
pub(crate) struct Mongo {
    client: Client,
    name: String,
}

impl Mongo {
    /// With the collections of the application.
    pub(super) async fn create(url: &str, name: &str) -> Self {
        let mut options = ClientOptions::parse(url).await.expect("the URL of a MongoDB");
        options.app_name = Some("e2e".to_owned());
        options.read_concern = Some(ReadConcern::majority());
        options.write_concern = Some(WriteConcern::majority());
        let mongo = Self { client: Client::with_options(options).expect("a client"), name: name.to_owned() };
        mongo.create_collections().await;
        mongo
    }

    fn database(&self) -> mongodb::Database {
        self.client.database(&self.name)
    }

    fn collection(&self, name: &str) -> mongodb::Collection<Document> {
        self.database().collection(name)
    }

    /// Nothing in the ledger is unique: an effect that comes twice is there twice. What comes late is written down by the handler,
    /// since the ledger of many processes has no order.
    async fn create_collections(&self) {
        let stock = self.database();
        let stock = stock.create_collection("stock").validator(doc! { "on_hand": { "$gte": 0 } });
        stock.await.expect("a collection");
        self.database().create_collection("ledger").await.expect("a collection");
        let article = |sku: u32| {
            let sku = format!("sku-{sku}");
            doc! { "_id": sku, "on_hand": ON_HAND, "delivered": ON_HAND, "last": {}, "late": [] }
        };
        self.collection("stock").insert_many((0..SKUS).map(article)).await.expect("a stock");
    }

    /// What a pipeline finds. Asked again while the set elects a primary.
    async fn find(&self, collection: &str, pipeline: Vec<Document>) -> Vec<Document> {
        self.find_with(collection, pipeline, ReadConcern::majority()).await
    }

    async fn find_with(&self, from: &str, pipeline: Vec<Document>, concern: ReadConcern) -> Vec<Document> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let found: Result<Vec<Document>> = async {
                let collection = self.collection(from);
                let found = collection.aggregate(pipeline.clone()).read_concern(concern.clone());
                let mut found = found.await?;
                let mut documents = Vec::new();
                while found.advance().await? {
                    documents.push(found.deserialize_current()?);
                }
                Ok(documents)
            }
            .await;
            match found {
                Ok(documents) => return documents,
                Err(error) => assert!(Instant::now() < give_up, "{from}: {pipeline:?}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The number that a pipeline ends with, as `n`; 0 if there is none.
    async fn number(&self, collection: &str, pipeline: Vec<Document>) -> i64 {
        self.find(collection, pipeline).await.first().map_or(0, |found| number(found, "n"))
    }

    /// A position is its own document and some beside it: together they say how far it is.
    async fn folded(&self, consumer: &str) -> Vec<Document> {
        self.find(
            "oncebox_position",
            vec![
                doc! { "$unionWith": "oncebox_position_lane" },
                doc! { "$match": { "_id.consumer": consumer } },
                doc! { "$group": {
                    "_id": "$_id.partition",
                    "next_offset": { "$max": "$next_offset" },
                    "duplicates": { "$sum": "$duplicates" },
                } },
                doc! { "$sort": { "_id": 1 } },
            ],
        )
        .await
    }

    pub(super) async fn positions(&self, consumer: &str) -> Vec<(i64, i64)> {
        let known = |position: &Document| position.get("next_offset").is_some_and(|next| *next != Bson::Null);
        let positions = self.folded(consumer).await.into_iter().filter(known);
        positions.map(|position| (number(&position, "_id"), number(&position, "next_offset"))).collect()
    }

    pub(super) async fn duplicates(&self, consumer: &str) -> i64 {
        self.folded(consumer).await.iter().map(|position| number(position, "duplicates")).sum()
    }

    pub(super) async fn partitions_that_moved(&self) -> i64 {
        let moved = doc! { "$match": { "epoch": { "$gt": 1 } } };
        self.number("oncebox_position", vec![moved, doc! { "$count": "n" }]).await
    }

    /// A position is also caught up if a document beside it says so.
    pub(super) async fn behind(&self) -> i64 {
        let pipeline = vec![
            doc! { "$unionWith": "oncebox_position_lane" },
            doc! { "$group": {
                "_id": { "consumer": "$_id.consumer", "topic": "$_id.topic", "partition": "$_id.partition" },
                "known_at": { "$max": { "$ifNull": ["$caught_up_at", "$retired_at"] } },
            } },
            doc! { "$match": { "known_at": null } },
            doc! { "$count": "n" },
        ];
        self.number("oncebox_position", pipeline).await
    }

    pub(super) async fn leave_position(&self, consumer: &str, topic: &str) {
        let id = doc! { "consumer": consumer, "topic": topic, "partition": 0 };
        let mut position = doc! { "_id": id.clone(), "next_offset": 5_i64, "epoch": 1_i64 };
        position.extend(id);
        self.collection("oncebox_position").insert_one(position).await.expect("a position");
    }

    pub(super) async fn tenants(&self) -> Vec<String> {
        let text = doc! { "$project": { "_id": 0, "text": "$tenant" } };
        texts(self.find("oncebox_inbox", vec![doc! { "$sort": { "tenant": 1 } }, text]).await)
    }

    /// Runs commands as `oncebox migrate sql` prints them: arrays of JSON.
    pub(super) async fn script(&self, text: &str) {
        for commands in serde_json::Deserializer::from_str(text).into_iter::<Vec<Document>>() {
            for command in commands.expect("an array of commands") {
                let answer = self.database().run_command(command.clone()).await;
                let answer = answer.unwrap_or_else(|error| panic!("{command}: {error}"));
                assert_eq!(answer.get("writeErrors"), None, "{command}");
            }
        }
    }

    pub(super) async fn rows(&self, collection: &str) -> i64 {
        self.number(collection, vec![doc! { "$count": "n" }]).await
    }

    pub(super) async fn rows_of(&self, collection: &str, consumer: &str) -> i64 {
        let of_consumer = doc! { "$match": { "consumer": consumer } };
        self.number(collection, vec![of_consumer, doc! { "$count": "n" }]).await
    }

    pub(super) async fn message_ids(&self, collection: &str, consumer: &str) -> Vec<String> {
        let of_consumer = doc! { "$match": { "consumer": consumer } };
        let ids = doc! { "$project": { "_id": 0, "text": "$message_id" } };
        texts(self.find(collection, vec![of_consumer, ids]).await)
    }

    pub(super) async fn dead(&self, field: &str) -> Vec<String> {
        let in_order = doc! { "$sort": { "_id": 1 } };
        let text = doc! { "$project": { "_id": 0, "text": format!("${field}") } };
        texts(self.find("oncebox_dead", vec![in_order, text]).await)
    }

    pub(super) async fn swapped(&self) -> Vec<String> {
        let late = vec![doc! { "$unwind": "$late" }, doc! { "$project": { "_id": 0, "text": "$late" } }];
        texts(self.find("stock", late).await)
    }

    pub(super) async fn gone_and_taken(&self) -> (i64, i64) {
        let sum = |of: Bson| vec![doc! { "$group": { "_id": null, "n": { "$sum": of } } }];
        let gone = doc! { "$subtract": ["$delivered", "$on_hand"] };
        (self.number("stock", sum(gone.into())).await, self.number("ledger", sum("$qty".into())).await)
    }

    pub(super) async fn different(&self, field: &str) -> i64 {
        let different = doc! { "$group": { "_id": format!("${field}") } };
        self.number("ledger", vec![different, doc! { "$count": "n" }]).await
    }

    pub(super) async fn odd_receipts(&self) -> i64 {
        let of = |n: i32| doc! { "$project": { "consumer": 1, "message_id": 1, "n": { "$literal": n } } };
        let pipeline = vec![
            of(1),
            doc! { "$unionWith": { "coll": "ledger", "pipeline": [of(-1)] } },
            doc! { "$group": {
                "_id": { "consumer": "$consumer", "message_id": "$message_id" }, "n": { "$sum": "$n" },
            } },
            doc! { "$match": { "n": { "$ne": 0 } } },
            doc! { "$count": "n" },
        ];
        let odd = self.find_with("oncebox_inbox", pipeline, ReadConcern::snapshot()).await;
        odd.first().map_or(0, |odd| number(odd, "n"))
    }

    pub(super) async fn has_collection(&self, name: &str) -> bool {
        let names = self.database().list_collection_names().filter(doc! { "name": name }).await;
        !names.expect("the names of collections").is_empty()
    }

    pub(super) async fn rename(&self, collection: &str, to: &str) {
        let full = |name: &str| format!("{}.{name}", self.name);
        let command = doc! { "renameCollection": full(collection), "to": full(to) };
        self.client.database("admin").run_command(command).await.expect("another name");
    }

    pub(super) async fn deliver(&self, sku: &str, quantity: i64) {
        let more = doc! {
            "$inc": { "on_hand": quantity, "delivered": quantity },
            "$setOnInsert": { "last": {}, "late": [] },
        };
        let stock = self.collection("stock");
        stock.update_one(doc! { "_id": sku }, more).upsert(true).await.expect("a delivery");
    }

    pub(super) async fn age_receipts(&self) {
        let earlier = doc! { "$dateSubtract": { "startDate": "$processed_at", "unit": "hour", "amount": 2 } };
        let older = vec![doc! { "$set": { "processed_at": earlier } }];
        self.collection("oncebox_inbox").update_many(doc! {}, older).await.expect("older receipts");
    }

    /// How many transactions of daemons, who have this name, have written something and wait for nobody but the daemon.
    pub(super) async fn idle_transactions(&self, of: &str) -> i64 {
        // The store adds a name of its own to it.
        let of = doc! { "$regex": format!("^{of} oncebox-") };
        let idle = vec![
            doc! { "$currentOp": { "idleSessions": true, "allUsers": true } },
            doc! { "$match": { "type": "idleSession", "appName": &of, "locks.Collection": "w" } },
        ];
        let admin = self.client.database("admin");
        // Of the server as it is: it knows no other kind.
        let found = admin.aggregate(idle).read_concern(ReadConcern::local());
        let mut found = found.await.expect("the sessions");
        let mut sessions = 0;
        while found.advance().await.expect("the sessions") {
            sessions += 1;
        }
        sessions
    }

    pub(super) async fn create_unless_there(&self, name: &str) {
        if !self.has_collection(name).await {
            self.database().create_collection(name).await.expect("a collection");
        }
    }

    pub(super) async fn inserts_and_takes_one(&self, collection: &str, id: &str) -> bool {
        let receipt = doc! { "_id": id, "eventType": "StockTaken", "receivedAt": DateTime::now() };
        match self.collection(collection).insert_one(receipt).await.map_err(|error| *error.kind) {
            Ok(_) => {}
            Err(ErrorKind::Write(WriteFailure::WriteError(error))) if error.code == 11000 => return false,
            Err(error) => panic!("{id}: {error:?}"),
        }
        let one = doc! { "$inc": { "on_hand": -1 } };
        self.collection("stock").update_one(doc! { "_id": "sku-1" }, one).await.expect("a stock");
        true
    }

    /// A user who may work in this database.
    pub(super) async fn create_user(&self, name: &str, password: &str) {
        let user = doc! { "createUser": name, "pwd": password, "roles": ["readWrite"] };
        self.database().run_command(user).await.expect("a user");
    }

    pub(super) async fn drop(&self) {
        // They are kept elsewhere.
        self.database().run_command(doc! { "dropAllUsersFromDatabase": 1 }).await.expect("the users go");
        self.database().drop().await.expect("the database goes");
    }
}

fn number(document: &Document, field: &str) -> i64 {
    match document.get(field) {
        Some(Bson::Int32(number)) => i64::from(*number),
        Some(Bson::Int64(number)) => *number,
        other => panic!("{field} of {document} is no whole number: {other:?}"),
    }
}

fn texts(documents: Vec<Document>) -> Vec<String> {
    let text = |document: Document| document.get_str("text").map(str::to_owned).unwrap_or_default();
    documents.into_iter().map(text).collect()
}

/// The URL of a database of the replica set that `cargo xtask test` has started.
pub(super) fn url(name: &str) -> String {
    let server = service(SERVER);
    let (hosts, options) = server.split_once("/?").expect("a URL without a database");
    format!("{hosts}/{name}?{options}")
}

/// The URL of a proxy: the driver is not to look for the members by itself. Daemons are told by the name that they have here.
pub(super) fn through(url: &str, daemons: &str) -> String {
    let (base, _) = url.split_once('?').expect("a URL with options");
    // There is no election to wait for.
    format!("{base}?directConnection=true&appName={daemons}&serverSelectionTimeoutMS=5000")
}
