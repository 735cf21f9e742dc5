//! Dead letters: whose they are, and in which order they are replayed.

use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, Message, OnFailure, Replayed, Selector, Worker, reject};
use sqlx::SqliteConnection;

use crate::fixture::{Fixture, Partition, record, record_effect};

async fn picky(tx: &mut SqliteConnection, message: &Message) -> oncebox::Result {
    if message.id().as_str().starts_with("bad") {
        return Err(reject("no such article"));
    }
    record_effect(tx, message).await
}

async fn mended(tx: &mut SqliteConnection, batch: &[Message]) -> oncebox::Result {
    for message in batch {
        record_effect(tx, message).await?;
    }
    Ok(())
}

async fn numbers(fixture: &Fixture) -> Vec<i64> {
    let numbers = fixture.texts("SELECT CAST(number AS TEXT) FROM oncebox_dead ORDER BY number").await;
    numbers.iter().map(|number| number.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_is_replayed_by_its_own_consumer_and_in_the_order_of_its_key() {
    let fixture = Fixture::new().await;
    let inbox = fixture.inbox().id(Selector::Header("id".into())).on_failure(OnFailure::ParkKey);
    let partition = Partition::open(&inbox.each(picky)).await;
    partition.push([record(0, "bad", "k"), record(1, "second", "k"), record(2, "other", "l")]);
    partition.settled(3).await;
    assert_eq!(fixture.dead().await, ["bad", "second"]);

    let numbers = numbers(&fixture).await;
    let own = fixture.inbox().on_failure(OnFailure::ParkKey).batch(mended);
    let foreign =
        Inbox::new("billing", fixture.store.clone()).unwrap().on_failure(OnFailure::ParkKey).batch(mended);
    let by = async |worker: &Worker<SqliteStore>, number: i64| worker.replay(number).await.unwrap();
    assert!(matches!(by(&foreign, numbers[0]).await, Replayed::OfAnother(of) if of == "test"));
    assert!(matches!(by(&own, numbers[1]).await, Replayed::Behind(first) if first == numbers[0]));
    assert_eq!(fixture.dead().await, ["bad", "second"], "both stay as they were");
    assert!(matches!(by(&own, numbers[0]).await, Replayed::Applied));
    assert!(matches!(by(&own, numbers[1]).await, Replayed::Applied));
    assert_eq!(fixture.effects().await, ["other", "bad", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_can_be_overruled() {
    let fixture = Fixture::new().await;
    let inbox = fixture.inbox().id(Selector::Header("id".into())).on_failure(OnFailure::ParkKey);
    let partition = Partition::open(&inbox.each(picky)).await;
    partition.push([record(0, "bad", "k"), record(1, "second", "k")]);
    partition.settled(2).await;
    let number = numbers(&fixture).await[1];
    let replayed = fixture.inbox().on_failure(OnFailure::Park).batch(mended).replay(number).await.unwrap();
    assert!(matches!(replayed, Replayed::Applied));
}
