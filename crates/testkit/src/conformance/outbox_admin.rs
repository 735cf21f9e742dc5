//! The outbox for people: filters, pages, counts.

use std::time::{Duration, Instant};

use oncebox_core::store::{EventFilter, EventState, OutboxAdmin, Status};

use super::relaying::{HOUR, Relaying, event, eventually, every, text_of};
use super::subject::{Subject, Verdict};

/// Every condition of a filter counts, alone and together.
pub async fn events_are_found_by_filter<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[
        event("orders", "a", "0"),
        event("orders", "b", "1"),
        event("returns", "a", "2"),
        event("orders", "c", "3"),
        event("orders", "a", "4"),
        oncebox_core::outbox::Event::to("orders").bytes("5"),
    ])
    .await?;
    r.fail("1", HOUR).await?;
    r.park("3").await?;
    r.publish(&["4"], true).await?;
    let entries = r.entries().await?;
    let seqs: Vec<i64> = entries.iter().map(|entry| entry.event.seq).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");

    let topic = |name: &str| Some(name.to_owned());
    let cases: [(EventFilter, &[usize]); 13] = [
        (every(), &[0, 1, 2, 3, 4, 5]),
        (EventFilter { topic: topic("returns"), ..every() }, &[2]),
        (EventFilter { topic: topic("none"), ..every() }, &[]),
        (EventFilter { key: Some(b"a".to_vec()), ..every() }, &[0, 2, 4]),
        (EventFilter { key: Some(vec![]), ..every() }, &[]),
        (EventFilter { key: Some(b"a".to_vec()), topic: topic("orders"), ..every() }, &[0, 4]),
        (EventFilter { id: Some(entries[3].event.id), ..every() }, &[3]),
        (EventFilter { seqs: vec![seqs[5], seqs[1]], ..every() }, &[1, 5]),
        (EventFilter { seqs: seqs.clone(), state: Some(EventState::Held), ..every() }, &[1]),
        (EventFilter { state: Some(EventState::Pending), ..every() }, &[0, 2, 5]),
        (EventFilter { state: Some(EventState::Parked), ..every() }, &[3]),
        (EventFilter { state: Some(EventState::Published), ..every() }, &[4]),
        (EventFilter { after: seqs[1], limit: 3, ..EventFilter::default() }, &[2, 3, 4]),
    ];
    for (filter, expected) in cases {
        let found = r.store.events(&filter).await?;
        let expected: Vec<_> = expected.iter().map(|n| entries[*n].clone()).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    // What is done to events goes by the same filter.
    let nothing = EventFilter { topic: topic("returns"), key: Some(b"b".to_vec()), ..every() };
    assert_eq!((r.store.retry_events(&nothing).await?, r.store.drop_events(&nothing).await?), (0, 0));
    let retried = EventFilter { after: seqs[1], ..every() };
    assert_eq!(r.store.retry_events(&retried).await?, 1, "the held one is before");
    assert_eq!(r.entry("1").await?.state, EventState::Held);
    Ok(())
}

/// Pages go by place, so that events that come or go in between move no page.
pub async fn events_come_in_pages<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let events: Vec<_> = (0..7).map(|n| event("orders", "a", &n.to_string())).collect();
    r.emit(&events).await?;
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let page = r.store.events(&EventFilter { after, limit: 3, ..EventFilter::default() }).await?;
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = last.event.seq;
        seen.extend(page.iter().map(|entry| text_of(&entry.event)));
        r.store.drop_events(&EventFilter { seqs: vec![page[0].event.seq], ..every() }).await?;
    }
    assert_eq!(seen, (0..7).map(|n| n.to_string()).collect::<Vec<_>>());
    Ok(())
}

/// Pending holds the held ones too; parked and published ones are counted apart or not at all; counts stop at the cap.
pub async fn the_status_counts_events<T: Subject>() -> Verdict {
    let started = Instant::now();
    let r = Relaying::<T>::start().await?;
    let empty = r.status().await?;
    assert_eq!((empty.pending, empty.held, empty.parked, empty.oldest), (0, 0, 0, None));

    let texts = ["failed", "behind", "parked", "published", "parked too", "pending"];
    r.emit(&texts.map(|text| event("orders", if text == "behind" { "failed" } else { text }, text))).await?;
    r.fail_with_follower("failed", "behind", HOUR).await?;
    r.park("parked").await?;
    r.park("parked too").await?;
    r.publish(&["published"], true).await?;
    let status = r.status().await?;
    assert_eq!((status.pending, status.held, status.parked), (3, 2, 2));
    let capped = r.store.status(1).await?.outbox;
    assert_eq!((capped.pending, capped.held, capped.parked), (1, 1, 1));

    let oldest = async || Ok(r.status().await?.oldest.filter(|age| *age > Duration::from_millis(50)));
    let age = eventually("the oldest event grows older", oldest).await?;
    assert!(age < started.elapsed() + Duration::from_millis(500), "{age:?}");
    let not_parked = EventFilter { state: Some(EventState::Pending), ..every() };
    r.store.drop_events(&not_parked).await?;
    assert!(r.status().await?.oldest.is_some(), "a held event waits to be published");
    r.publish(&["failed", "behind"], false).await?;
    let status = r.status().await?;
    assert_eq!((status.pending, status.held, status.parked, status.oldest), (0, 0, 2, None));
    Ok(())
}
