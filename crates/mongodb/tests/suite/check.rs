//! What `oncebox check` finds.

use std::time::Duration;

use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use oncebox_core::store::{Check, Finding, FindingLevel};
use oncebox_mongodb::TemporaryMongo;

use super::support::{Verdict, database, server};

fn of<'f>(findings: &'f [Finding], subject: &str) -> Option<&'f Finding> {
    findings.iter().find(|finding| finding.subject == subject)
}

#[tokio::test]
async fn a_replica_set_is_fit() -> Verdict {
    let at = database().await;
    at.store().ping().await?;
    let findings = at.store().check(4 << 20).await?;
    let errors: Vec<_> = findings.iter().filter(|finding| finding.level == FindingLevel::Error).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for subject in [
        "server role",
        "replica set",
        "members",
        "version",
        "featureCompatibilityVersion",
        "transactionLifetimeLimitSeconds",
        "default write concern",
        "storage engine",
        "rights",
        "clock",
        "schema",
    ] {
        assert!(of(&findings, subject).is_some(), "nothing about {subject}: {findings:?}");
    }
    assert_eq!(of(&findings, "schema").map(|finding| finding.level), Some(FindingLevel::Ok));
    assert_eq!(of(&findings, "TTL indexes"), None);
    Ok(())
}

#[tokio::test]
async fn a_database_without_collections_is_told() -> Verdict {
    let at = TemporaryMongo::empty(&server()).await;
    let findings = at.store().check(4 << 20).await?;
    let schema = of(&findings, "schema").ok_or("nothing about the schema")?;
    assert_eq!(schema.level, FindingLevel::Error);
    assert!(schema.detail.contains("oncebox migrate"), "{}", schema.detail);
    Ok(())
}

/// Somebody has dropped them.
#[tokio::test]
async fn what_the_collections_lack_is_told_and_can_be_made_again() -> Verdict {
    let at = database().await;
    let database = at.database().await;
    assert_eq!(of(&at.store().check(0).await?, "collections"), None);
    database.run_command(doc! { "collMod": "oncebox_outbox", "validator": {} }).await?;
    database.collection::<Document>("oncebox_dead").drop_index("by_key").await?;
    database.collection::<Document>("oncebox_sweep").drop().await?;
    let findings = at.store().check(0).await?;
    let found = of(&findings, "collections").ok_or("nothing about the collections")?;
    assert_eq!(found.level, FindingLevel::Error);
    for says in [
        "oncebox_outbox lacks its validator",
        "lacks the index by_key",
        "oncebox_sweep is missing",
        "oncebox migrate",
    ] {
        assert!(found.detail.contains(says), "{}", found.detail);
    }
    database.collection::<Document>("oncebox_migrations").delete_many(doc! {}).await?;
    at.store().migrate().await?;
    assert_eq!(of(&at.store().check(0).await?, "collections"), None);
    Ok(())
}

/// A program that has emitted before it migrated: the insert has made the collection.
#[tokio::test]
async fn a_collection_that_an_insert_has_made_gets_its_validator() -> Verdict {
    let at = TemporaryMongo::empty(&server()).await;
    let database = at.database().await;
    database.collection("oncebox_outbox").insert_one(doc! { "_id": 1_i64 }).await?;
    at.store().migrate().await?;
    let odd = database.collection("oncebox_outbox").insert_one(doc! { "_id": 2_i64, "topic": "odd" }).await;
    assert!(odd.is_err(), "there is no validator");
    assert_eq!(of(&at.store().check(0).await?, "collections"), None);
    Ok(())
}

/// It deletes while the consumer is down.
#[tokio::test]
async fn a_ttl_index_is_told() -> Verdict {
    let at = database().await;
    let options =
        IndexOptions::builder().expire_after(Duration::from_secs(86_400)).name("gone".to_owned()).build();
    let index = IndexModel::builder().keys(doc! { "processed_at": 1 }).options(options).build();
    at.database().await.collection::<Document>("oncebox_inbox").create_index(index).await?;
    let findings = at.store().check(4 << 20).await?;
    let found = of(&findings, "TTL indexes").ok_or("nothing about the index")?;
    assert_eq!(found.level, FindingLevel::Warning);
    assert!(found.detail.starts_with("oncebox_inbox.gone "), "{}", found.detail);
    Ok(())
}

/// A schema of a later oncebox.
#[tokio::test]
async fn a_newer_schema_is_told() -> Verdict {
    let at = database().await;
    at.database().await.collection::<Document>("oncebox_migrations").insert_one(doc! { "_id": 99 }).await?;
    let findings = at.store().check(4 << 20).await?;
    assert_eq!(of(&findings, "schema").map(|finding| finding.level), Some(FindingLevel::Error));
    Ok(())
}
