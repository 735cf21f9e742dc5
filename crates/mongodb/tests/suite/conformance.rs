//! What every store must do, with its receipts in its own collection and in one that the application already had.

use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::{Client, Database, IndexModel};
use oncebox_core::error::BoxError;
use oncebox_core::store::Adopt;
use oncebox_mongodb::{MongoStore, MongoTx, TemporaryMongo};
use oncebox_testkit::conformance::{Subject, SweepQuery};

use super::support::server;

struct Subjected<const ADOPTED: bool>(TemporaryMongo);

impl<const ADOPTED: bool> Subjected<ADOPTED> {
    const RECEIPTS: &str = if ADOPTED { "inbox" } else { "oncebox_inbox" };

    async fn database(&self) -> Database {
        self.0.database().await
    }

    async fn age(
        &self,
        collection: &str,
        field: &str,
        filter: Document,
        by: Duration,
    ) -> Result<(), BoxError> {
        let ms = i64::try_from(by.as_millis())?;
        let older = doc! { "$set": { field: { "$subtract": [format!("${field}"), ms] } } };
        let collection = self.database().await.collection::<Document>(collection);
        collection.update_many(filter, vec![older]).await?;
        Ok(())
    }
}

impl<const ADOPTED: bool> Subject for Subjected<ADOPTED> {
    type Store = MongoStore;

    async fn start() -> Result<Self, BoxError> {
        let subject = Self(TemporaryMongo::empty(&server()).await);
        let database = subject.database().await;
        for name in ["effects", "single", "inbox"] {
            database.create_collection(name).await?;
        }
        let once = IndexModel::builder().keys(doc! { "message_id": 1, "consumer": 1, "tenant": 1 });
        let unique = mongodb::options::IndexOptions::builder().unique(true).build();
        let inbox = database.collection::<Document>("inbox");
        inbox.create_index(once.options(unique).build()).await?;
        Ok(subject)
    }

    async fn connect(&self) -> Result<MongoStore, BoxError> {
        let mut builder = MongoStore::builder(self.0.url());
        if ADOPTED {
            let adopt = Adopt::table("inbox", "message_id")?.processed_at("processed_at")?;
            builder = builder.adopt(adopt.consumer("consumer")?.tenant("tenant")?);
        }
        Ok(builder.connect().await?)
    }

    async fn connection(&self) -> Result<MongoTx, BoxError> {
        let client = Client::with_uri_str(self.0.url()).await?;
        let session = client.start_session().await?;
        Ok(MongoTx::new(session, client.default_database().ok_or("the URL names no database")?))
    }

    async fn add_effect(tx: &mut MongoTx, id: &str) -> Result<(), BoxError> {
        tx.collection("effects").insert_one(doc! { "id": id }).await?;
        Ok(())
    }

    fn sweep_query(query: SweepQuery) -> String {
        let counted = r#"{"$group": {"_id": "$id", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}},
            {"$project": {"_id": 0, "id": "$_id", "n": 1, "gone": {"$literal": null}}}"#;
        let (collection, stages) = match query {
            SweepQuery::EachId => ("effects", counted),
            SweepQuery::EachEffect => ("effects", r#"{"$project": {"_id": 0, "id": 1}}"#),
            SweepQuery::Refused => ("effects", r#"{"$missing": {}}"#),
            SweepQuery::OfNoTable => ("no_such_table", ""),
        };
        format!(r#"{{"aggregate": "{collection}", "pipeline": [{stages}]}}"#)
    }

    async fn violate_unique(tx: &mut MongoTx) -> Result<(), BoxError> {
        tx.collection("single").insert_many([doc! { "_id": 1 }, doc! { "_id": 1 }]).await?;
        Ok(())
    }

    async fn effects(&self) -> Result<Vec<String>, BoxError> {
        // The driver's ids ascend within a process.
        let effects = self.database().await.collection::<Document>("effects");
        let found: Vec<Document> = effects.find(doc! {}).sort(doc! { "_id": 1 }).await?.try_collect().await?;
        Ok(found.iter().map(|effect| effect.get_str("id").unwrap_or_default().to_owned()).collect())
    }

    async fn receipts(&self, consumer: &str) -> Result<Vec<String>, BoxError> {
        let receipts = self.database().await.collection::<Document>(Self::RECEIPTS);
        let found: Vec<Document> = receipts.find(doc! { "consumer": consumer }).await?.try_collect().await?;
        let text = |receipt: &Document| receipt.get_str("message_id").unwrap_or_default().to_owned();
        let mut ids: Vec<String> = found.iter().map(text).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    async fn age_receipts(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        self.age(Self::RECEIPTS, "processed_at", doc! { "consumer": consumer }, by).await
    }

    async fn age_positions(&self, consumer: &str, by: Duration) -> Result<(), BoxError> {
        for field in ["updated_at", "caught_up_at"] {
            self.age("oncebox_position", field, doc! { "consumer": consumer }, by).await?;
            self.age("oncebox_position_lane", field, doc! { "_id.consumer": consumer }, by).await?;
        }
        Ok(())
    }

    async fn forget_groups(&self) -> Result<(), BoxError> {
        let letters = self.database().await.collection::<Document>("oncebox_dead");
        letters.update_many(doc! {}, doc! { "$unset": { "error_group": "" } }).await?;
        Ok(())
    }

    async fn expire_purger(&self) -> Result<(), BoxError> {
        let purge = self.database().await.collection::<Document>("oncebox_purge");
        let over = vec![doc! { "$set": { "leased_until": { "$subtract": ["$$NOW", 1000] } } }];
        purge.update_many(doc! {}, over).await?;
        Ok(())
    }
}

mod own_collection {
    oncebox_testkit::conformance!(super::Subjected<false>);
}

mod adopted_collection {
    oncebox_testkit::conformance!(receipts of super::Subjected<true>);
}
