//! What becomes of a batch: removed, kept for a while, or parked.

use std::time::Duration;

use oncebox_core::store::{Deliveries, EventFilter, EventState, OutboxAdmin, ParkedEvent};

use super::relaying::{HOUR, Relaying, event, every};
use super::subject::{Subject, Verdict};

/// A confirmed event leaves the outbox, and only that one.
pub async fn published_events_are_removed<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "1"), event("orders", "a", "2"), event("orders", "b", "3")]).await?;
    r.publish(&["1", "3"], false).await?;
    assert_eq!(r.next_texts("orders").await?, ["2"]);
    assert_eq!(r.entries().await?.len(), 1);
    r.record_deliveries(r.deliveries()).await?;
    // The answer of the first time was lost: once more does no harm.
    let again = r.seqs(&["2"]).await?;
    for _ in 0..2 {
        r.record_deliveries(Deliveries { published: again.clone(), ..r.deliveries() }).await?;
    }
    assert!(r.entries().await?.is_empty());
    Ok(())
}

/// With `keep` it stays in the table, but is not published again, and goes when its time is over.
pub async fn published_events_are_kept_and_purged<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "kept"), event("orders", "a", "pending")]).await?;
    r.emit(&[event("orders", "b", "held"), event("orders", "c", "parked")]).await?;
    r.fail("held", HOUR).await?;
    r.park("parked").await?;
    r.publish(&["kept"], true).await?;
    assert_eq!(r.next_texts("orders").await?, ["pending"]);
    let kept = r.entry("kept").await?;
    assert_eq!(kept.state, EventState::Published);
    let since = kept.state_at_ms.ok_or("a published event says since when")? - kept.event.created_at_ms;
    assert!((0..60_000).contains(&since), "published now, not {since} ms after it was written");
    assert_eq!(r.store.retry_events(&every()).await?, 2, "what was published is not published again");
    r.fail("held", HOUR).await?;
    r.park("parked").await?;

    // The clocks of databases tick in milliseconds; it must be longer ago than nothing.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(r.store.purge_published(HOUR).await?, 0);
    assert_eq!(r.store.purge_published(Duration::from_millis(1)).await?, 1);
    let left: Vec<EventState> = r.entries().await?.iter().map(|entry| entry.state).collect();
    assert_eq!(left, [EventState::Pending, EventState::Held, EventState::Parked]);
    Ok(())
}

/// A purge gets to the end, however many steps it takes.
pub async fn purge_gets_through_many_published_events<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let events: Vec<_> = (0..6000).map(|n| event("orders", "a", &n.to_string())).collect();
    r.emit(&events).await?;
    let published: Vec<i64> = r.next("orders").await?.iter().map(|event| event.seq).collect();
    r.record_deliveries(Deliveries { published: published[..5999].to_vec(), keep: true, ..r.deliveries() })
        .await?;
    // It must be longer ago than nothing.
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(r.store.purge_published(Duration::ZERO).await?, 5999);
    assert_eq!(r.next_texts("orders").await?, ["5999"]);
    Ok(())
}

/// A parked event waits for an operator; its key goes on.
pub async fn a_parked_event_holds_back_nobody<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "parked"), event("orders", "a", "behind")]).await?;
    r.park("parked").await?;
    assert_eq!(r.next_texts("orders").await?, ["behind"]);
    let parked = r.entry("parked").await?;
    assert_eq!((parked.state, parked.error.as_deref()), (EventState::Parked, Some("too large")));
    let since = parked.state_at_ms.ok_or("a parked event says since when")? - parked.event.created_at_ms;
    assert!((0..60_000).contains(&since), "parked now, not {since} ms after it was written");
    Ok(())
}

/// Parked after it was held: it holds back nobody any more.
pub async fn a_held_event_can_be_parked<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "stuck"), event("orders", "a", "behind")]).await?;
    r.fail("stuck", HOUR).await?;
    assert!(r.next("orders").await?.is_empty());
    r.park("stuck").await?;
    assert_eq!(r.next_texts("orders").await?, ["behind"]);
    let stuck = r.entry("stuck").await?;
    assert_eq!((stuck.state, stuck.error.as_deref()), (EventState::Parked, Some("too large")));
    Ok(())
}

/// An operator's retry makes a parked event pending again: in its old place, before what is still there of its key.
pub async fn a_parked_event_can_be_retried<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "parked"), event("orders", "a", "behind")]).await?;
    r.park("parked").await?;
    let parked = EventFilter { state: Some(EventState::Parked), ..every() };
    assert_eq!(r.store.events(&parked).await?.len(), 1);
    assert_eq!(r.store.retry_events(&parked).await?, 1);
    assert_eq!(r.next_texts("orders").await?, ["parked", "behind"]);
    assert_eq!(r.entry("parked").await?.state, EventState::Pending);
    assert!(r.store.events(&parked).await?.is_empty());
    assert_eq!(r.store.retry_events(&parked).await?, 0);
    Ok(())
}

/// Dropped is gone for good, and only what the filter names.
pub async fn events_can_be_dropped<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let texts = ["pending", "held", "parked", "published"];
    r.emit(&texts.map(|text| event("orders", text, text))).await?;
    r.emit(&[event("returns", "a", "other")]).await?;
    r.fail("held", HOUR).await?;
    r.park("parked").await?;
    r.publish(&["published"], true).await?;
    let parked = EventFilter { state: Some(EventState::Parked), ..every() };
    assert_eq!(r.store.drop_events(&parked).await?, 1);
    assert_eq!(r.store.drop_events(&parked).await?, 0);
    assert_eq!(r.entries().await?.len(), 4);
    let of_topic = EventFilter { topic: Some("orders".to_owned()), ..every() };
    assert_eq!(r.store.drop_events(&of_topic).await?, 3, "whatever their state");
    assert_eq!(r.entries().await?.len(), 1);
    assert_eq!(r.next_texts("returns").await?, ["other"]);
    Ok(())
}

/// Everything that became of one batch is written down together.
pub async fn deliveries_are_recorded_as_a_whole<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let texts = ["delivered", "failed", "given up", "untouched"];
    r.emit(&texts.map(|text| event("orders", text, text))).await?;
    let given_up = ParkedEvent { seq: r.seqs(&["given up"]).await?[0], error: "'no' \u{1F980}".to_owned() };
    r.record_deliveries(Deliveries {
        published: r.seqs(&["delivered"]).await?,
        keep: true,
        held: vec![r.held("failed", HOUR, Some("line\n'two'")).await?],
        parked: vec![given_up],
        ..r.deliveries()
    })
    .await?;
    let states: Vec<_> = r.entries().await?.into_iter().map(|entry| (entry.state, entry.error)).collect();
    assert_eq!(
        states,
        [
            (EventState::Published, None),
            (EventState::Held, Some("line\n'two'".to_owned())),
            (EventState::Parked, Some("'no' \u{1F980}".to_owned())),
            (EventState::Pending, None),
        ]
    );
    Ok(())
}
