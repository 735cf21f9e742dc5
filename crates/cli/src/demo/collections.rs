//! The demo's business collections in MongoDB, and the questions that the verdict asks of them.

use mongodb::bson::{Bson, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Client, Database};
use oncebox_mongodb::MongoStore;

use super::CONSUMER;
use super::database::{INITIAL_STOCK, SKUS};
use crate::exit::{Exit, Failure};

const STOCK: &str = "oncebox_demo_stock";
const LEDGER: &str = "oncebox_demo_ledger";
/// Where oncebox keeps what belongs to a consumer.
const OF_CONSUMERS: [&str; 8] = [
    "oncebox_position",
    "oncebox_position_lane",
    "oncebox_inbox",
    "oncebox_dead",
    "oncebox_attempt",
    "oncebox_horizon",
    "oncebox_paused",
    "oncebox_replayed",
];

/// How long a transaction is waited for before somebody looks whose it is.
const A_MOMENT_MS: i32 = 500;
/// After so many of them it is somebody else's, who lives.
const MOST_TRIES: u32 = 60;
/// The server's code for a command that took longer than that.
const TOOK_TOO_LONG: i32 = 50;
/// The server's code for a collection that is not there.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// A connection, and what is asked of it.
pub(crate) struct Collections {
    database: Database,
    store: MongoStore,
}

impl Collections {
    /// `None` if the URL is not one of MongoDB.
    pub(crate) async fn connect(url: &str) -> Result<Option<Self>, Failure> {
        if !url.starts_with("mongodb://") && !url.starts_with("mongodb+srv://") {
            return Ok(None);
        }
        let unreachable = |error: Error| Failure {
            exit: Exit::Unreachable,
            text: format!("--store: the database cannot be reached: {error}"),
        };
        let client = Client::with_uri_str(url).await.map_err(unreachable)?;
        let Some(database) = client.default_database() else {
            return Err(Failure::config(
                "--store: name a database, as in mongodb://HOST/DATABASE?replicaSet=NAME",
            ));
        };
        database.run_command(doc! { "ping": 1 }).await.map_err(unreachable)?;
        let store = MongoStore::builder(url).connect_lazy().await?;
        Ok(Some(Self { database, store }))
    }

    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        self.database.create_collection(LEDGER).await.map_err(failed)?;
        let article =
            |sku| doc! { "_id": format!("sku-{sku}"), "on_hand": INITIAL_STOCK, "seq": -1_i64, "late": 0 };
        let stock = self.database.collection::<Document>(STOCK);
        stock.insert_many((0..SKUS).map(article)).await.map_err(failed)?;
        Ok(())
    }

    /// An article counts what came too late: its updates follow each other, and each sees the one before. A message that was put
    /// right has no place in the order.
    pub(crate) fn steps() -> [String; 2] {
        let is_late =
            r#"{ "$and" = [{ "$gte" = [":payload.seq", 0] }, { "$lt" = [":payload.seq", "$seq"] }] }"#;
        let late = format!(r#"{{ "$add" = ["$late", {{ "$cond" = [{is_late}, 1, 0] }}] }}"#);
        let with = format!(
            r#"[{{ "$set" = {{ on_hand = {{ "$subtract" = ["$on_hand", ":payload.qty"] }}, late = {late}, seq = {{ "$max" = ["$seq", ":payload.seq"] }} }} }}]"#
        );
        [
            format!(
                r#"{{ update = "{STOCK}", filter = {{ _id = ":payload.sku" }}, with = {with}, rows = 1 }}"#
            ),
            format!(
                r#"{{ insert = "{LEDGER}", document = {{ message_id = ":id", sku = ":payload.sku", qty = ":payload.qty", seq = ":payload.seq" }} }}"#
            ),
        ]
    }

    pub(crate) async fn effects(&self) -> Result<i64, Failure> {
        self.number(LEDGER, vec![doc! { "$count": "n" }]).await
    }

    pub(crate) async fn distinct_effects(&self) -> Result<i64, Failure> {
        self.number(LEDGER, vec![doc! { "$group": { "_id": "$message_id" } }, doc! { "$count": "n" }]).await
    }

    pub(crate) async fn out_of_order(&self) -> Result<i64, Failure> {
        self.number(STOCK, vec![sum("$late")]).await
    }

    pub(crate) async fn stock_left(&self) -> Result<i64, Failure> {
        self.number(STOCK, vec![sum("$on_hand")]).await
    }

    pub(crate) async fn taken_by_mended(&self) -> Result<i64, Failure> {
        self.number(LEDGER, vec![doc! { "$match": { "seq": { "$lt": 0 } } }, sum("$qty")]).await
    }

    pub(crate) async fn dead_letters(&self) -> Result<i64, Failure> {
        self.number("oncebox_dead", vec![doc! { "$match": { "consumer": CONSUMER } }, doc! { "$count": "n" }])
            .await
    }

    pub(crate) async fn read_up_to(&self) -> Result<i64, Failure> {
        self.of_positions("next_offset", "$max").await
    }

    pub(crate) async fn duplicates(&self) -> Result<i64, Failure> {
        self.of_positions("duplicates", "$sum").await
    }

    /// Our own collections, and what an earlier demo left in oncebox's.
    pub(crate) async fn drop_all(&self) -> Result<(), Failure> {
        let ours =
            doc! { "$or": [{ "consumer": CONSUMER }, { "_id.consumer": CONSUMER }, { "_id": CONSUMER }] };
        let drop = [STOCK, LEDGER].map(|name| doc! { "drop": name });
        let delete =
            OF_CONSUMERS.map(|name| doc! { "delete": name, "deletes": [{ "q": ours.clone(), "limit": 0 }] });
        for command in drop.into_iter().chain(delete) {
            self.without_the_dead(command).await?;
        }
        Ok(())
    }

    /// Runs a command that waits for transactions. Those of consumers that were killed are ended: it would take the server a minute.
    async fn without_the_dead(&self, mut command: Document) -> Result<(), Failure> {
        command.insert("maxTimeMS", A_MOMENT_MS);
        let mut tries = 1;
        loop {
            let Err(error) = self.database.run_command(command.clone()).await else { return Ok(()) };
            match error.kind.as_ref() {
                ErrorKind::Command(command) if command.code == NAMESPACE_NOT_FOUND => return Ok(()),
                // The server needs a moment to see that a process is gone, so it is asked again.
                ErrorKind::Command(command) if command.code == TOOK_TOO_LONG && tries < MOST_TRIES => {
                    self.store.end_orphans().await?;
                    tries += 1;
                }
                _ => return Err(failed(error)),
            }
        }
    }

    /// A position is a document of its own, and some for lanes: `how` says what of all of them counts.
    async fn of_positions(&self, field: &str, how: &str) -> Result<i64, Failure> {
        let lanes = doc! { "$unionWith": {
            "coll": "oncebox_position_lane", "pipeline": [{ "$match": { "_id.consumer": CONSUMER } }]
        } };
        let place = doc! { "topic": "$_id.topic", "partition": "$_id.partition" };
        let by_place = doc! { "$group": { "_id": place, "n": { how: format!("${field}") } } };
        let ours = doc! { "$match": { "consumer": CONSUMER } };
        self.number("oncebox_position", vec![ours, lanes, by_place, sum("$n")]).await
    }

    /// The `n` of the only document that comes out; 0 if there is none.
    async fn number(&self, collection: &str, pipeline: Vec<Document>) -> Result<i64, Failure> {
        let mut found =
            self.database.collection::<Document>(collection).aggregate(pipeline).await.map_err(failed)?;
        if !found.advance().await.map_err(failed)? {
            return Ok(0);
        }
        let found = found.deserialize_current().map_err(failed)?;
        Ok(match found.get("n") {
            Some(Bson::Int32(number)) => i64::from(*number),
            Some(Bson::Int64(number)) => *number,
            _ => 0,
        })
    }
}

fn sum(of: &str) -> Document {
    doc! { "$group": { "_id": null, "n": { "$sum": of } } }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: Error) -> Failure {
    Failure::data(error.to_string())
}
