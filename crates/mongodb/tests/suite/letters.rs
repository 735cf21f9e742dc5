//! Letters that are larger than a document, and letters that two reach for at once.

use std::time::Duration;

use bytes::Bytes;
use mongodb::bson::{Document, doc};
use oncebox_core::error::BoxError;
use oncebox_core::store::{DeadFilter, DeadLetter, DeadLetters, ErrorClass, Store, StoreResult};
use oncebox_mongodb::{MongoStore, TemporaryMongo};

use super::support::{Verdict, all, apply, claims, database, letter, stock};

/// As the inbox does: what is in the way for a moment is tried again. Beside large letters of other tests the server's cache may be full.
async fn park(store: &MongoStore, letters: &[DeadLetter]) -> Verdict {
    for _ in 0..100 {
        match park_once(store, letters).await {
            Err(error) if error.class == ErrorClass::Transient => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            parked => return Ok(parked?),
        }
    }
    Ok(park_once(store, letters).await?)
}

async fn park_once(store: &MongoStore, letters: &[DeadLetter]) -> StoreResult<()> {
    let ids: Vec<&str> = letters.iter().filter_map(|letter| letter.message_id.as_deref()).collect();
    let mut claimed = store.claim(&stock(), &claims(&ids)).await?;
    store.park(&mut claimed.txn, &stock(), letters).await?;
    store.commit(claimed.txn, None).await
}

async fn parts(at: &TemporaryMongo) -> Result<u64, BoxError> {
    let parts = at.database().await.collection::<Document>("oncebox_dead_part");
    Ok(parts.count_documents(doc! {}).await?)
}

fn bytes(count: usize) -> Bytes {
    (0..count).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into()
}

/// A document ends at 16 MB. Payload, key and headers of a larger letter come back whole, and its parts go with it.
#[tokio::test]
async fn a_letter_larger_than_a_document_is_kept_whole() -> Verdict {
    let at = database().await;
    let store = at.store();
    let mut large = letter(Some("large"), 1);
    large.record.payload = Some(bytes(20 * 1024 * 1024));
    large.record.key = Some(bytes(1000));
    large.record.headers = [("trace", Some(Bytes::from_static(&[0, 0xff])))].into_iter().collect();
    let mut long_key = letter(Some("long key"), 2);
    long_key.record.key = Some(bytes(9 * 1024 * 1024));
    long_key.record.payload = None;
    let mut long_headers = letter(Some("long headers"), 3);
    long_headers.record.payload = Some(Bytes::new());
    long_headers.record.headers =
        [("a", Some(bytes(6 * 1024 * 1024))), ("b", Some(bytes(6 * 1024 * 1024)))].into_iter().collect();
    let letters = [large, long_key, long_headers, letter(Some("small"), 4)];
    park(&store, &letters).await?;

    let listed = store.dead_letters(&all()).await?;
    let lengths: Vec<_> = listed.iter().map(|line| line.payload_bytes).collect();
    assert_eq!(lengths, [Some(20 * 1024 * 1024), None, Some(0), Some(2)]);
    assert_eq!(listed[1].key.as_deref(), Some(&bytes(256)[..]));
    for (line, parked) in listed.iter().zip(&letters) {
        let stored = store.dead_letter(line.number).await?.ok_or("the letter is not there")?;
        assert!(stored.letter.record == parked.record, "letter {} came back changed", line.number);
    }
    assert!(parts(&at).await? > 4);

    let (txn, taken) = store.take_dead(listed[0].number).await?.ok_or("the letter is not there")?;
    assert!(taken.letter.record == letters[0].record, "the letter that was taken has changed");
    store.commit(txn, None).await?;
    let rest = DeadFilter { numbers: listed[1..3].iter().map(|line| line.number).collect(), ..all() };
    assert_eq!(store.drop_dead(&rest).await?, 2);
    assert_eq!(parts(&at).await?, 0, "parts go with their letters");
    assert_eq!(store.dead_letters(&all()).await?.len(), 1);
    Ok(())
}

/// A replay that is undone leaves the letter with its parts.
#[tokio::test]
async fn a_large_letter_comes_back_after_a_rollback() -> Verdict {
    let at = database().await;
    let store = at.store();
    let mut large = letter(Some("large"), 1);
    large.record.payload = Some(bytes(17 * 1024 * 1024));
    park(&store, &[large.clone()]).await?;
    let number = store.dead_letters(&all()).await?[0].number;
    let (txn, _) = store.take_dead(number).await?.ok_or("the letter is not there")?;
    store.rollback(txn).await;
    let stored = store.dead_letter(number).await?.ok_or("the letter did not come back")?;
    assert!(stored.letter.record == large.record, "the letter came back changed");
    Ok(())
}

/// Two processes give up the same message without an id: the transactions meet, one is told to try again, and then finds it.
#[tokio::test]
async fn a_letter_without_id_is_written_once_by_two() -> Verdict {
    let at = database().await;
    let store = at.store();
    let mut first = store.claim(&stock(), &[]).await?.txn;
    let mut second = store.claim(&stock(), &[]).await?.txn;
    store.park(&mut first, &stock(), &[letter(None, 1)]).await?;
    let refused = store.park(&mut second, &stock(), &[letter(None, 1)]).await;
    let refused = refused.err().ok_or("both have written the letter")?;
    assert_eq!(refused.class, ErrorClass::Transient, "{refused}");
    store.rollback(second).await;
    store.commit(first, None).await?;
    park(&store, &[letter(None, 1), letter(None, 1), letter(None, 2)]).await?;
    assert_eq!(store.dead_letters(&all()).await?.len(), 2);
    Ok(())
}

/// The second of two replays waits for the first one, and then finds nothing.
#[tokio::test]
async fn of_two_replays_one_has_the_letter() -> Verdict {
    let at = database().await;
    let store = at.store();
    park(&store, &[letter(Some("a"), 1)]).await?;
    let number = store.dead_letters(&all()).await?[0].number;
    let (txn, _) = store.take_dead(number).await?.ok_or("the letter is not there")?;
    let second = tokio::spawn({
        let store = store.clone();
        async move { store.take_dead(number).await }
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!second.is_finished(), "the second did not wait");
    store.commit(txn, None).await?;
    assert!(second.await??.is_none());
    assert_eq!(apply(&store, &["a"]).await?, [false]);
    Ok(())
}

/// No wait is without a bound.
#[tokio::test]
async fn a_replay_does_not_wait_for_ever() -> Verdict {
    let at = database().await;
    let store = at.store();
    park(&store, &[letter(Some("a"), 1)]).await?;
    let number = store.dead_letters(&all()).await?[0].number;
    let (txn, _) = store.take_dead(number).await?.ok_or("the letter is not there")?;
    let hasty = MongoStore::builder(at.url()).lock_timeout(Duration::from_millis(50)).connect().await?;
    let refused = hasty.take_dead(number).await.err().ok_or("the letter was taken twice")?;
    assert_eq!(refused.class, ErrorClass::Transient, "{refused}");
    store.rollback(txn).await;
    let (txn, _) = hasty.take_dead(number).await?.ok_or("the letter did not come back")?;
    hasty.rollback(txn).await;
    Ok(())
}

/// More than one transaction's worth is dropped, and no more than was asked for.
#[tokio::test]
async fn many_letters_are_dropped_in_rounds() -> Verdict {
    let at = database().await;
    let store = at.store();
    let letters: Vec<_> = (0..2300).map(|offset| letter(None, offset)).collect();
    for letters in letters.chunks(500) {
        park(&store, letters).await?;
    }
    assert_eq!(store.drop_dead(&DeadFilter { limit: 2200, ..DeadFilter::default() }).await?, 2200);
    let left = store.dead_letters(&DeadFilter { limit: 1000, ..DeadFilter::default() }).await?;
    assert_eq!(left.len(), 100);
    assert_eq!(left[0].offset, 2200, "the first ones go first");
    assert_eq!(store.drop_dead(&DeadFilter { limit: 0, ..DeadFilter::default() }).await?, 0);
    assert!(store.dead_letters(&DeadFilter { limit: 0, ..DeadFilter::default() }).await?.is_empty());
    Ok(())
}
