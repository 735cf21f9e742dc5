//! The outbox for people: filters, pages, counts.

use std::time::{Duration, Instant};

use oncebox_core::operate;
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
    let cases: [(EventFilter, &[usize]); 14] = [
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
        (EventFilter { after: seqs[1], until: Some(seqs[3]), ..every() }, &[2, 3]),
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

/// A page of events that costs little has the oldest that fit, and says where the next one begins.
pub async fn a_page_of_events_goes_on<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let events: Vec<_> =
        (0..9).map(|n| event(if n % 3 == 0 { "returns" } else { "orders" }, "a", &n.to_string())).collect();
    r.emit(&events).await?;
    for state in [None, Some(EventState::Pending)] {
        let mut filter =
            EventFilter { topic: Some("returns".to_owned()), state, limit: 2, ..EventFilter::default() };
        let mut found = Vec::new();
        for _ in 0..5 {
            let page = operate::event_page(&r.store, &filter, HOUR).await?;
            assert!(page.events.len() <= 2);
            found.extend(page.events.iter().map(|entry| text_of(&entry.event)));
            let Some(next) = page.next else { break };
            filter.after = next;
        }
        assert_eq!(found, ["0", "3", "6"]);
    }
    r.park("4").await?;
    let parked = EventFilter { state: Some(EventState::Parked), limit: 2, ..EventFilter::default() };
    let page = operate::event_page(&r.store, &parked, HOUR).await?;
    assert_eq!((page.events.len(), page.next), (1, None));
    Ok(())
}

/// Only what waits to be published is parked, with the reason; what is behind it goes on, and a retry brings it back in its place.
pub async fn an_operator_parks_what_waits<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[
        event("orders", "a", "pending"),
        event("orders", "a", "next"),
        event("orders", "b", "failed"),
        event("orders", "b", "behind"),
        event("orders", "c", "parked"),
        event("orders", "d", "published"),
        event("orders", "e", "other"),
    ])
    .await?;
    r.fail_with_follower("failed", "behind", HOUR).await?;
    r.park("parked").await?;
    r.publish(&["published"], true).await?;
    let seqs = r.seqs(&["pending", "failed", "parked", "published"]).await?;
    let these = EventFilter { seqs, ..every() };
    let held = EventFilter { state: Some(EventState::Held), ..these.clone() };
    assert_eq!(r.store.park_events(&held, "no such\u{0}customer ü").await?, 1);
    assert_eq!(r.store.park_events(&these, "wrong address").await?, 1, "the others do not wait any more");
    assert_eq!(r.store.park_events(&these, "once more").await?, 0);
    let failed = r.entry("failed").await?;
    assert_eq!((failed.state, failed.event.attempts), (EventState::Parked, 1), "it was not tried again");
    assert!(failed.error.is_some_and(|why| why.starts_with("no such") && why.ends_with("customer ü")));
    let pending = r.entry("pending").await?;
    assert_eq!((pending.state, pending.event.attempts), (EventState::Parked, 0));
    assert_eq!(pending.error.as_deref(), Some("wrong address"));
    assert!(pending.state_at_ms.is_some());
    assert_eq!(r.entry("parked").await?.error.as_deref(), Some("too large"));
    assert_eq!(r.entry("published").await?.state, EventState::Published);
    let mut next = r.next_texts("orders").await?;
    next.sort();
    assert_eq!(next, ["behind", "next", "other"]);

    assert_eq!(r.store.retry_events(&EventFilter { key: Some(b"a".to_vec()), ..every() }).await?, 1);
    let of_a = r.next("orders").await?.into_iter().filter(|event| event.key.as_deref() == Some(b"a"));
    assert_eq!(of_a.map(|event| text_of(&event)).collect::<Vec<_>>(), ["pending", "next"]);
    Ok(())
}

/// A relay that had the event in its hands says what became of it: a confirmed one is gone, and a failed one stays parked.
pub async fn what_an_operator_has_parked_is_published_if_it_was_under_way<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "fails"), event("orders", "b", "arrives")]).await?;
    assert_eq!(r.next("orders").await?.len(), 2);
    assert_eq!(r.store.park_events(&every(), "enough").await?, 2);
    r.fail("fails", HOUR).await?;
    r.publish(&["arrives"], false).await?;
    let left = r.entries().await?;
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].state, left[0].error.as_deref()), (EventState::Parked, Some("enough")));
    assert!(r.next("orders").await?.is_empty());
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
