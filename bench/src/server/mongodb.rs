//! MongoDB.

use std::time::Instant;

use anyhow::{Context, Result};
use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::options::{ReadConcern, WriteConcern};
use mongodb::{Client, Database};
use oncebox::mongodb::{MongoStore, MongoTx};
use oncebox::{Inbox, Message, Worker};

use super::{Applied, Server, Update};
use crate::contestant::Contestant;

const DUPLICATE_KEY: i32 = 11000;

/// The effect in operations, per message.
const EACH: &str = r#"each = [
    { update = "stock", filter = { _id = ":payload.sku" }, with = [ { "$set" = { on_hand = { "$subtract" = ["$on_hand", ":payload.qty"] } } } ] },
    { insert = "ledger", document = { message_id = ":id", sku = ":payload.sku", qty = ":payload.qty" } },
]"#;

/// And per batch.
const BATCH: &str = r#"batch = [
    { messages = [ { "$group" = { _id = "$payload.sku", change = { "$sum" = { "$multiply" = [-1, "$payload.qty"] } } } } ], update = "stock", filter = { _id = ":row._id" }, with = { "$inc" = { on_hand = ":row.change" } } },
    { insert = "ledger", document = { message_id = ":row.id", sku = ":row.payload.sku", qty = ":row.payload.qty" } },
]"#;

/// A connection, and what it has seen of the effects: the server dates no document that is inserted.
pub(crate) struct Mongodb {
    database: Database,
    first: Option<(Instant, i64)>,
    last: Option<(Instant, i64)>,
}

impl Server for Mongodb {
    const CONTESTANTS: &'static [Contestant] = &Contestant::ON_MONGODB;

    type Store = MongoStore;

    fn each() -> String {
        EACH.to_owned()
    }

    fn batch() -> String {
        BATCH.to_owned()
    }

    fn url(server: &str, name: &str) -> Result<String> {
        let rest = server.split("://").nth(1).context("the server's URL has no host")?;
        let host = rest.split(['/', '?']).next().unwrap_or(rest);
        // To this very member, also through a proxy.
        Ok(format!("mongodb://{host}/{name}?directConnection=true"))
    }

    async fn connect(url: &str) -> Result<Self> {
        let client = Client::with_uri_str(url).await?;
        let database = client.default_database().unwrap_or_else(|| client.database("admin"));
        Ok(Self { database, first: None, last: None })
    }

    async fn create(&mut self, _name: &str) -> Result<()> {
        Ok(())
    }

    async fn fill(&mut self) -> Result<()> {
        for name in ["ledger", "received"] {
            self.database.create_collection(name).await?;
        }
        let stock = (0..1000).map(|n| doc! { "_id": format!("sku-{n}"), "on_hand": 1_000_000_000_i64 });
        self.database.collection("stock").insert_many(stock).await?;
        Ok(())
    }

    async fn drop(&mut self, name: &str) -> Result<()> {
        Ok(self.database.client().database(name).drop().await?)
    }

    async fn at_most(&mut self) -> Result<i64> {
        let ledger = self.database.collection::<Document>("ledger");
        let count = i64::try_from(ledger.estimated_document_count().await?)?;
        if count > 0 {
            let seen = (Instant::now(), count);
            self.first.get_or_insert(seen);
            self.last = Some(seen);
        }
        Ok(count)
    }

    async fn effects(&mut self) -> Result<i64> {
        let ledger = self.database.collection::<Document>("ledger");
        Ok(i64::try_from(ledger.count_documents(doc! {}).await?)?)
    }

    async fn applied(&mut self) -> Result<Applied> {
        let (first, last) = self.first.zip(self.last).context("no effect was seen")?;
        Ok(Applied { seconds: last.0.duration_since(first.0).as_secs_f64(), effects: last.1 - first.1 })
    }

    async fn apply_by_hand(&mut self, id: &str, update: &Update) -> Result<()> {
        let mut session = self.database.client().start_session().await?;
        let begin = session.start_transaction().read_concern(ReadConcern::snapshot());
        begin.write_concern(WriteConcern::majority()).await?;
        let received = self.database.collection::<Document>("received");
        match received.insert_one(receipt(id)).session(&mut session).await {
            Ok(_) => {}
            // That was the end of the transaction, too.
            Err(error) if is_duplicate(&error) => return Ok(session.abort_transaction().await?),
            Err(error) => return Err(error.into()),
        }
        let (stock, ledger) =
            (self.database.collection::<Document>("stock"), self.database.collection("ledger"));
        let (this, change) = deduction(update);
        stock.update_one(this, change).session(&mut session).await?;
        ledger.insert_one(entry(id, update)).session(&mut session).await?;
        Ok(session.commit_transaction().await?)
    }

    async fn apply_in_two_steps(&mut self, id: &str, update: &Update) -> Result<()> {
        let received = self.database.collection::<Document>("received");
        match received.insert_one(receipt(id)).await {
            Ok(_) => {}
            Err(error) if is_duplicate(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let (this, change) = deduction(update);
        self.database.collection::<Document>("stock").update_one(this, change).await?;
        self.database.collection("ledger").insert_one(entry(id, update)).await?;
        Ok(())
    }

    async fn store(url: &str) -> Result<MongoStore> {
        let store = MongoStore::connect(url).await?;
        store.migrate().await?;
        Ok(store)
    }

    async fn deduct(tx: &mut MongoTx, message: &Message) -> oncebox::Result {
        let update: Update = message.json()?;
        let (this, change) = deduction(&update);
        tx.collection::<Document>("stock").update_one(this, change).await?;
        tx.collection("ledger").insert_one(entry(message.id().as_str(), &update)).await?;
        Ok(())
    }

    async fn grouped(inbox: Inbox<MongoStore>) -> Result<Worker<MongoStore>> {
        Ok(inbox.each(deduct_later))
    }
}

/// The same without waiting for answers.
async fn deduct_later(tx: &mut MongoTx, message: &Message) -> oncebox::Result {
    let update: Update = message.json()?;
    let (this, change) = deduction(&update);
    tx.collection::<Document>("stock").update_one_later(this, change)?;
    tx.collection("ledger").insert_later(entry(message.id().as_str(), &update))?;
    Ok(())
}

fn receipt(id: &str) -> Document {
    doc! { "_id": id, "eventType": "StockUpdate", "receivedAt": DateTime::now() }
}

fn deduction(update: &Update) -> (Document, Document) {
    (doc! { "_id": &update.sku }, doc! { "$inc": { "on_hand": -update.qty } })
}

fn entry(id: &str, update: &Update) -> Document {
    doc! { "message_id": id, "sku": &update.sku, "qty": update.qty }
}

fn is_duplicate(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Write(WriteFailure::WriteError(e)) if e.code == DUPLICATE_KEY)
}
