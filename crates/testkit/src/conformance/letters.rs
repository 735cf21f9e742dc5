//! Dead letters: kept whole, found again.

use bytes::Bytes;
use oncebox_core::error::BoxError;
use oncebox_core::message::{Headers, Record};
use oncebox_core::names::Tenant;
use oncebox_core::source::LogId;
use oncebox_core::store::{
    DeadFilter, DeadLetter, DeadLetters, DeadSummary, MAX_SUMMARY_BYTES, PositionKey, Store,
};

use super::fixture::{Fixture, all, claims, letter};
use super::subject::{Subject, Verdict};

/// Binary payloads, tombstones, absent keys and headers of any kind come back as they were.
pub async fn a_letter_is_kept_whole<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let headers: Headers = [
        ("trace", Some(Bytes::from("1"))),
        ("trace", Some(Bytes::from("2"))),
        ("binary", Some(Bytes::from_static(&[0, 0xff, b'"', b'\\']))),
        ("empty", Some(Bytes::new())),
        ("absent", None),
        ("ünï \" 'odd'", Some(Bytes::from("{\"base64\":\"AA==\"}"))),
    ]
    .into_iter()
    .collect();
    let whole = DeadLetter {
        tenant: Tenant::new("acme's \"tenant\"")?,
        message_id: Some("a".to_owned()),
        record: Record {
            key: Some(Bytes::from_static(&[0, 1, 0xff])),
            payload: Some((0..=255).collect::<Vec<u8>>().into()),
            headers,
            timestamp_ms: Some(1_700_000_000_123),
            log: Some(LogId::new("cluster/topic")),
            ..Record::at("orders.v1", 3, i64::from(u32::MAX) * 5)
        },
        error: "line one\nline 'two' \u{1F980}".to_owned(),
        attempts: 3,
    };
    let bare = DeadLetter {
        tenant: Tenant::none(),
        message_id: None,
        record: Record::at("orders.v1", 0, 0),
        error: String::new(),
        attempts: 0,
    };
    let mut empty = bare.clone();
    empty.record =
        Record { key: Some(Bytes::new()), payload: Some(Bytes::new()), ..Record::at("orders.v1", 0, 1) };
    let letters = [whole, bare, empty];
    f.park(&letters).await?;

    let stored = f.letters().await?;
    assert_eq!(stored.len(), letters.len());
    for (stored, parked) in stored.iter().zip(&letters) {
        assert_eq!(stored.consumer, "stock");
        assert!(
            stored.failed_at_ms > 1_700_000_000_000,
            "failed_at is the time of now: {}",
            stored.failed_at_ms
        );
        assert_same(&stored.letter, parked);
    }
    Ok(())
}

fn assert_same(stored: &DeadLetter, parked: &DeadLetter) {
    assert_eq!(stored.record, parked.record);
    assert_eq!(stored.tenant, parked.tenant);
    assert_eq!(stored.message_id, parked.message_id);
    assert_eq!(stored.error, parked.error);
    assert_eq!(stored.attempts, parked.attempts);
}

/// A letter commits with its transaction.
pub async fn a_letter_of_a_rolled_back_transaction_is_not_kept<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    f.store.park(&mut claimed.txn, &f.consumer, &[letter(Some("a"), 1), letter(None, 2)]).await?;
    f.store.rollback(claimed.txn).await;
    assert!(f.store.dead_letters(&all()).await?.is_empty());
    Ok(())
}

/// Without an id there is no receipt that keeps copies away, so the place in the partition does.
pub async fn a_message_without_id_has_one_letter<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.park(&[letter(None, 1), letter(None, 1)]).await?;
    f.park(&[letter(None, 1), letter(None, 2)]).await?;
    let elsewhere = DeadLetter { record: Record::at("orders", 1, 1), ..letter(None, 1) };
    f.park(&[elsewhere]).await?;
    // A message with an id is another matter, even at the same place.
    f.park(&[letter(Some("a"), 1)]).await?;

    let stored = f.store.dead_letters(&all()).await?;
    let places: Vec<_> = stored.iter().map(|s| (s.partition, s.offset)).collect();
    assert_eq!(places, [(0, 1), (0, 2), (1, 1), (0, 1)]);
    Ok(())
}

/// `park-key` asks which keys of a partition have letters.
pub async fn parked_keys_are_found_in_their_partition<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let keyed = |id: &str, partition, key: Option<&'static [u8]>| {
        let record = Record { key: key.map(Bytes::from_static), ..Record::at("orders", partition, 1) };
        DeadLetter { record, ..letter(Some(id), 1) }
    };
    f.park(&[
        keyed("a", 0, Some(b"red")),
        keyed("b", 0, Some(b"red")),
        keyed("c", 0, Some(&[0, 0xff])),
        keyed("d", 1, Some(b"blue")),
        keyed("e", 0, Some(b"")),
        keyed("f", 0, None),
    ])
    .await?;
    let asked: [&[u8]; 4] = [b"red", b"blue", b"green", &[0, 0xff]];
    assert_eq!(parked(&f, &f.position(0), &asked).await?, [vec![0, 0xff], b"red".to_vec()]);
    assert_eq!(parked(&f, &f.position(1), &asked).await?, [b"blue".to_vec()]);
    assert_eq!(parked(&f, &f.position(0), &[b""]).await?, [b"".to_vec()]);
    let elsewhere = PositionKey { topic: "returns".into(), ..f.position(0) };
    assert!(parked(&f, &elsewhere, &asked).await?.is_empty());
    assert!(parked(&f, &f.position(0), &[]).await?.is_empty());
    Ok(())
}

async fn parked<T: Subject>(
    f: &Fixture<T>,
    at: &PositionKey,
    keys: &[&[u8]],
) -> Result<Vec<Vec<u8>>, BoxError> {
    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    let mut found = f.store.parked_keys(&mut txn, at, keys).await?;
    f.store.rollback(txn).await;
    found.sort_unstable();
    Ok(found)
}

/// Every condition of a filter counts, alone and together.
pub async fn letters_are_found_by_filter<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut with_tenant = letter(Some("a"), 1);
    with_tenant.tenant = Tenant::new("acme")?;
    let mut with_key = letter(Some("b"), 2);
    with_key.record.key = Some(Bytes::from_static(b"red"));
    let elsewhere = DeadLetter { record: Record::at("returns", 0, 3), ..letter(Some("c"), 3) };
    f.park(&[with_tenant, with_key, elsewhere, letter(None, 4)]).await?;
    let numbers: Vec<i64> = f.store.dead_letters(&all()).await?.iter().map(|s| s.number).collect();
    assert!(numbers.is_sorted() && numbers.len() == 4, "{numbers:?}");

    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (DeadFilter { tenant: text("acme"), ..all() }, &numbers[0..1]),
        (DeadFilter { key: Some(b"red".to_vec()), ..all() }, &numbers[1..2]),
        (DeadFilter { topic: text("returns"), ..all() }, &numbers[2..3]),
        (DeadFilter { message_id: text("b"), ..all() }, &numbers[1..2]),
        (DeadFilter { consumer: text("stock"), ..all() }, &numbers[..]),
        (DeadFilter { consumer: text("billing"), ..all() }, &[]),
        (DeadFilter { numbers: numbers[1..3].to_vec(), ..all() }, &numbers[1..3]),
        (DeadFilter { numbers: numbers.clone(), topic: text("returns"), ..all() }, &numbers[2..3]),
        (DeadFilter { topic: text("orders"), tenant: text(""), ..all() }, &[numbers[1], numbers[3]]),
    ];
    for (filter, expected) in cases {
        let found = f.store.dead_letters(&filter).await?;
        assert_eq!(found.iter().map(|s| s.number).collect::<Vec<_>>(), expected, "{filter:?}");
    }
    Ok(())
}

/// Pages go by number, so that letters that come or go in between move no page.
pub async fn letters_come_in_pages<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let letters: Vec<_> = (0..7).map(|offset| letter(None, offset)).collect();
    f.park(&letters).await?;
    let mut offsets = Vec::new();
    let mut after = 0;
    loop {
        let page = f.store.dead_letters(&DeadFilter { after, limit: 3, ..DeadFilter::default() }).await?;
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = last.number;
        offsets.extend(page.iter().map(|s| s.offset));
        f.store.drop_dead(&DeadFilter { numbers: vec![page[0].number], ..all() }).await?;
    }
    assert_eq!(offsets, (0..7).collect::<Vec<_>>());
    Ok(())
}

/// A letter that was dropped for good stays a duplicate, and its number is not used again.
pub async fn a_dropped_letter_keeps_its_receipt<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.park(&[letter(Some("a"), 1), letter(Some("b"), 2)]).await?;
    let last = f.store.dead_letters(&all()).await?.last().map(|s| s.number).ok_or("there is no letter")?;
    let only_b = DeadFilter { message_id: Some("b".to_owned()), ..all() };
    assert_eq!(f.store.drop_dead(&only_b).await?, 1);
    assert_eq!(f.store.drop_dead(&only_b).await?, 0);
    assert_eq!(f.fresh(&["a", "b"]).await?, [false, false]);
    f.park(&[letter(Some("c"), 3)]).await?;
    let stored = f.store.dead_letters(&all()).await?;
    assert_eq!(stored.len(), 2);
    assert!(stored[1].number > last, "numbers are not used again");
    Ok(())
}

/// An offset means something only within its log: the same place of another log is another message.
pub async fn letters_at_the_same_place_of_two_logs_are_two<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let of_log = |log: Option<&str>| {
        let mut letter = letter(None, 1);
        letter.record.log = log.map(LogId::new);
        letter
    };
    let logs = [Some("cluster/topic-1"), Some("cluster/topic-2"), None];
    f.park(&logs.map(of_log)).await?;
    f.park(&logs.map(of_log)).await?;
    let stored = f.letters().await?;
    let kept: Vec<_> = stored.iter().map(|s| s.letter.record.log.as_ref().map(LogId::as_str)).collect();
    assert_eq!(kept, logs);
    Ok(())
}

/// A list shows how long a payload is and not what is in it: a page of it stays small.
pub async fn a_list_has_lengths_instead_of_payloads<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut large = letter(Some("large"), 7);
    large.tenant = Tenant::new("acme")?;
    large.record.key = Some(Bytes::from(vec![0xff; 1000]));
    large.record.payload = Some(Bytes::from(vec![0; 100_000]));
    large.error = "\u{fc}".repeat(1000);
    let mut tombstone = letter(None, 8);
    tombstone.record.payload = None;
    let mut empty = letter(Some("empty"), 9);
    (empty.record.key, empty.record.payload) = (Some(Bytes::new()), Some(Bytes::new()));
    f.park(&[large, tombstone, empty]).await?;

    let listed = f.store.dead_letters(&all()).await?;
    let [large, tombstone, empty] = listed.as_slice() else { return Err("expected three letters".into()) };
    let whole = f.store.dead_letter(large.number).await?.ok_or("the letter is not there")?;
    assert_eq!(
        *large,
        DeadSummary {
            number: whole.number,
            consumer: "stock".to_owned(),
            tenant: "acme".to_owned(),
            message_id: Some("large".to_owned()),
            topic: "orders".to_owned(),
            partition: 0,
            offset: 7,
            key: Some(vec![0xff; MAX_SUMMARY_BYTES]),
            payload_bytes: Some(100_000),
            error: "\u{fc}".repeat(MAX_SUMMARY_BYTES),
            attempts: 5,
            failed_at_ms: whole.failed_at_ms,
            edited: false,
        }
    );
    assert_eq!(whole.letter.record.payload.map(|payload| payload.len()), Some(100_000));
    assert_eq!((&tombstone.message_id, &tombstone.key, tombstone.payload_bytes), (&None, &None, None));
    assert_eq!((&empty.key, empty.payload_bytes), (&Some(Vec::new()), Some(0)));
    assert!(f.store.dead_letter(empty.number + 1).await?.is_none());
    Ok(())
}
