//! A relay that has lost its shards without knowing it.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{Deliveries, EventState, Outbox, ParkedEvent};
use uuid::Uuid;

use super::relaying::{HOUR, Relaying, all_shards, event};
use super::subject::{Subject, Verdict};

/// Another relay takes over all shards; returns the deliveries that the old one would record.
async fn take_over<T: Subject>(r: &mut Relaying<T>) -> Result<Deliveries, BoxError> {
    let stale = r.deliveries();
    r.store.release_shards(r.relay, &all_shards(), true).await?;
    r.relay = Uuid::now_v7();
    r.leases = r.store.lease(r.relay, "second", HOUR).await?.held;
    assert_eq!(r.leases.len(), 16);
    Ok(stale)
}

/// Its failure says nothing any more: the new owner may be delivering the event right now.
pub async fn a_stale_relay_holds_nothing<T: Subject>() -> Verdict {
    let mut r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "1"), event("orders", "b", "2")]).await?;
    let stale = take_over(&mut r).await?;
    let held = vec![r.held("1", HOUR, Some("late news")).await?, r.held("2", HOUR, None).await?];
    r.record_deliveries(Deliveries { held, ..stale }).await?;
    for text in ["1", "2"] {
        let entry = r.entry(text).await?;
        assert_eq!((entry.state, entry.event.attempts, entry.error), (EventState::Pending, 0, None));
    }
    assert_eq!(r.next("orders").await?.len(), 2);
    Ok(())
}

/// Nor does it give anything up, nor bring forward what the new owner holds.
pub async fn a_stale_relay_parks_nothing<T: Subject>() -> Verdict {
    let mut r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "pending"), event("orders", "b", "held")]).await?;
    let stale = take_over(&mut r).await?;
    r.fail("held", HOUR).await?;
    let parked = r.seqs(&["pending", "held"]).await?.into_iter();
    let parked = parked.map(|seq| ParkedEvent { seq, error: "late news".to_owned() }).collect();
    let held = vec![r.held("held", Duration::ZERO, Some("late news")).await?];
    r.record_deliveries(Deliveries { parked, ..stale.clone() }).await?;
    r.record_deliveries(Deliveries { held, ..stale }).await?;
    assert_eq!(r.entry("pending").await?.state, EventState::Pending);
    let held = r.entry("held").await?;
    assert_eq!((held.state, held.event.attempts), (EventState::Held, 1));
    assert_eq!(held.error.as_deref(), Some("the broker said no"));
    Ok(())
}

/// What the receiver has confirmed is published, whoever says so.
pub async fn a_stale_relay_still_confirms<T: Subject>() -> Verdict {
    let mut r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "kept"), event("orders", "b", "removed"), event("orders", "c", "left")])
        .await?;
    let stale = take_over(&mut r).await?;
    let (kept, removed) = (r.seqs(&["kept"]).await?, r.seqs(&["removed"]).await?);
    // The same record may hold something that is refused.
    let held = vec![r.held("left", HOUR, Some("late news")).await?];
    r.record_deliveries(Deliveries { published: kept, keep: true, held, ..stale.clone() }).await?;
    r.record_deliveries(Deliveries { published: removed, ..stale }).await?;
    assert_eq!(r.entry("kept").await?.state, EventState::Published);
    assert_eq!(r.entries().await?.len(), 2);
    assert_eq!(r.next_texts("orders").await?, ["left"]);
    Ok(())
}

/// Shards are lost one by one: what it still owns it still records.
pub async fn a_relay_records_what_it_still_owns<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let texts: Vec<String> = (0..32).map(|n| n.to_string()).collect();
    let events: Vec<_> = texts.iter().map(|text| event("orders", text, text)).collect();
    r.emit(&events).await?;
    let other = Uuid::now_v7();
    r.store.lease(other, "second", HOUR).await?;
    r.store.release_shards(r.relay, &(0..8).collect::<Vec<_>>(), false).await?;
    assert_eq!(r.store.lease(other, "second", HOUR).await?.held.len(), 8);

    let mut held = Vec::new();
    for text in &texts {
        held.push(r.held(text, HOUR, Some("no")).await?);
    }
    r.record_deliveries(Deliveries { held, ..r.deliveries() }).await?;
    let entries = r.entries().await?;
    assert!(entries.iter().any(|entry| entry.shard < 8) && entries.iter().any(|entry| entry.shard >= 8));
    for entry in entries {
        let expected = if entry.shard < 8 { EventState::Pending } else { EventState::Held };
        assert_eq!(entry.state, expected, "shard {}", entry.shard);
    }
    Ok(())
}
