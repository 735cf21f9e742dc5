//! What a relay is given to publish.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::{Event, emit_all};
use oncebox_core::store::{Deliveries, Outbox, OutboxAdmin, SHARDS, Store, StoredEvent};

use super::relaying::{HOUR, Relaying, WIDE, all_shards, emit, event, ready, text_of, texts};
use super::subject::{Subject, Verdict};

/// Each topic and shard with something to publish is named once, of the shards asked for only.
pub async fn ready_names_topics_and_shards<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    assert!(ready(&r.store, &all_shards()).await?.is_empty());
    let events: Vec<Event> =
        (0..60).map(|n| event(["orders", "returns"][n % 2], &format!("k{n}"), &n.to_string())).collect();
    r.emit(&events).await?;
    r.emit(&events_without_key("orders", 20)).await?;
    let expected: BTreeSet<(String, u16)> =
        r.entries().await?.into_iter().map(|entry| (entry.event.topic.to_string(), entry.shard)).collect();
    let shards: BTreeSet<u16> = expected.iter().map(|(_, shard)| *shard).collect();
    assert!(shards.len() > 4 && shards.iter().all(|shard| *shard < SHARDS), "keys are spread: {shards:?}");

    let mut places = ready(&r.store, &all_shards()).await?;
    places.sort_unstable();
    assert!(places.iter().eq(&expected), "{places:?} is not {expected:?}");
    for shard in 0..SHARDS {
        let mut places = ready(&r.store, &[shard]).await?;
        places.sort_unstable();
        assert!(places.iter().eq(expected.iter().filter(|(_, of)| *of == shard)), "{shard}: {places:?}");
    }
    assert!(ready(&r.store, &[]).await?.is_empty());
    Ok(())
}

/// However many topics there are, each is found when page after page is looked at, from any topic on; a held event that is due is
/// found as a ready one is.
pub async fn no_number_of_topics_hides_another<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let topics: Vec<String> = (0..23).map(|n| format!("t{n:02}")).collect();
    for topic in &topics {
        r.emit(&[event(topic, "k", &format!("{topic} k")), event(topic, "l", &format!("{topic} l"))]).await?;
    }
    for topic in topics.iter().filter(|topic| topic.ends_with('3')) {
        r.fail(&format!("{topic} k"), Duration::ZERO).await?;
    }
    for most in [1, 2, 5, 22, 23, 1000] {
        let (mut found, mut from, mut pages) = (BTreeSet::new(), String::new(), 0);
        loop {
            let page = r.store.ready_from(&all_shards(), &from, most).await?;
            let named: BTreeSet<String> = page.places.into_iter().map(|(topic, _)| topic).collect();
            assert!(named.iter().all(|topic| *topic >= from), "{named:?} from {from}");
            found.extend(named);
            pages += 1;
            let Some(next) = page.more_from else { break };
            assert!(next > from, "it must go on: {from}, {next}");
            from = next;
        }
        assert!(found.iter().eq(&topics), "{found:?} in pages of {most}");
        assert!(pages > 1 || most > 1, "{pages} pages of {most}");
    }
    let last = r.store.ready_from(&all_shards(), "t22", 5).await?;
    assert!(last.places.iter().all(|(topic, _)| topic == "t22") && last.more_from.is_none(), "{last:?}");
    Ok(())
}

/// What waits behind a failure, is parked or published is nothing to do. `ready` may find out only when it is looked at,
/// but then it must: a relay that is told of it again and again would never rest.
pub async fn ready_does_not_name_what_must_wait<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("a", "k", "failed"), event("a", "k", "behind"), event("a", "l", "other key")]).await?;
    r.fail_with_follower("failed", "behind", HOUR).await?;
    r.emit(&[event("a", "k", "written later")]).await?;
    r.emit(&[event("b", "k", "parked"), event("c", "k", "published"), event("d", "k", "pending")]).await?;
    r.park("parked").await?;
    r.publish(&["published"], true).await?;

    let mut found = Vec::new();
    for _ in 0..2 {
        for (topic, shard) in ready(&r.store, &all_shards()).await? {
            let events = r.store.next_events(&topic, &[shard], WIDE).await?;
            let published = events.iter().map(|event| event.seq).collect();
            r.record_deliveries(Deliveries { published, ..r.deliveries() }).await?;
            found.extend(texts(&events));
        }
    }
    found.sort_unstable();
    assert_eq!(found, ["other key", "pending"]);
    assert!(ready(&r.store, &all_shards()).await?.is_empty());
    Ok(())
}

/// A key is in one shard, whatever the topic, and its events are found there and nowhere else.
pub async fn a_key_stays_in_its_shard<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    for round in 0..3 {
        let events: Vec<Event> = (0..40)
            .flat_map(|n| {
                ["orders", "returns"].map(|topic| event(topic, &format!("k{n}"), &round.to_string()))
            })
            .collect();
        r.emit(&events).await?;
    }
    let mut shard_of = BTreeMap::new();
    for entry in r.entries().await? {
        let shard = *shard_of.entry(entry.event.key).or_insert(entry.shard);
        assert_eq!(entry.shard, shard);
    }
    for shard in 0..SHARDS {
        for event in r.store.next_events("orders", &[shard], WIDE).await? {
            assert_eq!((&*event.topic, shard_of.get(&event.key)), ("orders", Some(&shard)));
        }
    }
    let halves = [(0..SHARDS / 2).collect::<Vec<_>>(), (SHARDS / 2..SHARDS).collect()];
    let mut found = 0;
    for half in &halves {
        found += r.store.next_events("orders", half, WIDE).await?.len();
    }
    assert_eq!(found, 120);
    assert!(r.store.next_events("orders", &[], WIDE).await?.is_empty());
    assert!(r.next("nothing").await?.is_empty());
    Ok(())
}

/// Not more events than asked for, and the earliest of each key.
pub async fn a_batch_is_bounded_by_count<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let events: Vec<Event> =
        (0..50).map(|n| event("orders", &format!("k{}", n % 5), &n.to_string())).collect();
    r.emit(&events).await?;
    for messages in [1, 7, 49, 50, 51] {
        let bounds = BatchBounds { messages, ..WIDE };
        let batch = r.store.next_events("orders", &all_shards(), bounds).await?;
        assert_eq!(batch.len(), messages.min(50));
        assert_starts_of_keys(&batch)?;
    }
    Ok(())
}

/// Not more bytes than asked for, but always one event; and a small event does not overtake a large one of its key.
pub async fn a_batch_is_bounded_by_bytes<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let sized = |n: usize, size: usize| event("orders", "k", &format!("{n:<size$}"));
    r.emit(&[sized(0, 1000), sized(1, 1000), sized(2, 1000), sized(3, 60_000), sized(4, 10)]).await?;
    for (bytes, expected) in [(3500, 3), (2500, 2), (1500, 1), (10, 1), (1, 1), (50_000, 3), (200_000, 5)] {
        let batch = r.store.next_events("orders", &all_shards(), BatchBounds { bytes, ..WIDE }).await?;
        assert_eq!(batch.len(), expected, "{bytes} bytes");
        for (n, event) in batch.iter().enumerate() {
            assert_eq!(text_of(event).trim_end(), n.to_string());
        }
    }
    r.store
        .record_deliveries(&Deliveries {
            published: r.next("orders").await?[..3].iter().map(|event| event.seq).collect(),
            ..r.deliveries()
        })
        .await?;
    let large = r.store.next_events("orders", &all_shards(), BatchBounds { bytes: 100, ..WIDE }).await?;
    assert_eq!(large.len(), 1, "an event larger than the bound goes alone");
    Ok(())
}

/// Writers and a relay at the same time: every committed event is published, once, and in order for its key.
pub async fn nothing_is_lost_between_writers_and_a_relay<T: Subject>() -> Verdict {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 40;
    let r = Relaying::<T>::start().await?;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let (store, consumer) = (r.inner.subject.connect().await?, r.inner.consumer.clone());
        writers.push(tokio::spawn(async move {
            for round in 0..ROUNDS {
                let events =
                    [0, 1].map(|n| event("orders", &format!("w{writer}"), &(round * 2 + n).to_string()));
                let mut txn = store.claim(&consumer, &[]).await?.txn;
                emit_all::<T::Store>(&mut txn, &events).await?;
                // Every fourth one is undone and done again.
                if round % 4 == 3 {
                    store.rollback(txn).await;
                    txn = store.claim(&consumer, &[]).await?.txn;
                    emit_all::<T::Store>(&mut txn, &events).await?;
                }
                store.commit(txn, None).await?;
            }
            Ok::<(), BoxError>(())
        }));
    }
    let mut published: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        let written = writers.iter().all(tokio::task::JoinHandle::is_finished);
        let batch = r.store.next_events("orders", &all_shards(), BatchBounds { messages: 7, ..WIDE }).await?;
        if written && batch.is_empty() {
            break;
        }
        let seqs = batch.iter().map(|event| event.seq).collect();
        r.record_deliveries(Deliveries { published: seqs, ..r.deliveries() }).await?;
        for event in batch {
            let key = String::from_utf8_lossy(event.key.as_deref().unwrap_or_default()).into_owned();
            published.entry(key).or_default().push(text_of(&event));
        }
    }
    for writer in writers {
        writer.await??;
    }
    let expected: Vec<String> = (0..ROUNDS * 2).map(|n| n.to_string()).collect();
    assert_eq!(published.len(), WRITERS);
    for (key, of_key) in published {
        assert_eq!(of_key, expected, "{key}");
    }
    assert!(r.entries().await?.is_empty());
    Ok(())
}

/// Another process that reads sees what this one wrote.
pub async fn events_are_seen_by_other_processes<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let other = r.inner.subject.connect().await?;
    emit::<T>(&r.inner, &other, &[event("orders", "a", "theirs")]).await?;
    r.emit(&[event("orders", "a", "ours")]).await?;
    let seen = other.next_events("orders", &all_shards(), WIDE).await?;
    assert_eq!(texts(&seen), ["theirs", "ours"]);
    assert_eq!(other.events(&super::relaying::every()).await?, r.entries().await?);
    Ok(())
}

fn events_without_key(topic: &str, count: usize) -> Vec<Event> {
    (0..count).map(|n| Event::to(topic).bytes(n.to_string())).collect()
}

/// The texts are ascending numbers that go around over five keys: those of each key are a start of all its numbers.
fn assert_starts_of_keys(batch: &[StoredEvent]) -> Verdict {
    for key in 0..5 {
        let name = format!("k{key}");
        let of_key = batch.iter().filter(|event| event.key.as_deref() == Some(name.as_bytes()));
        for (n, event) in of_key.enumerate() {
            assert_eq!(text_of(event).parse::<usize>()?, n * 5 + key);
        }
    }
    Ok(())
}
