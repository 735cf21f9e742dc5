//! Deliveries that failed: held, in order, and counted.

use std::time::Duration;

use oncebox_core::outbox::Event;
use oncebox_core::store::{Deliveries, EventState, OutboxAdmin};

use super::relaying::{HOUR, Relaying, event, eventually, every, texts};
use super::subject::{Subject, Verdict};

/// A failed event holds back the later events of its topic and key, also those that are written later; no others.
pub async fn a_held_event_holds_back_its_key<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[
        event("orders", "a", "before"),
        event("orders", "a", "failed"),
        event("orders", "a", "behind"),
        event("orders", "b", "other key"),
        event("returns", "a", "other topic"),
        event("orders", "", "empty key"),
        Event::to("orders").bytes("no key"),
    ])
    .await?;
    r.fail("failed", HOUR).await?;
    r.emit(&[event("orders", "a", "written later"), event("orders", "b", "other key again")]).await?;

    let mut open = r.next_texts("orders").await?;
    open.sort_unstable();
    assert_eq!(open, ["before", "empty key", "no key", "other key", "other key again"]);
    assert_eq!(r.next_texts("returns").await?, ["other topic"]);

    // Recording what is before it changes nothing for those behind it.
    r.publish(&["before"], true).await?;
    assert!(!r.next_texts("orders").await?.iter().any(|text| text == "behind" || text == "written later"));
    Ok(())
}

/// Events without a key have no order, so nothing waits for one; an empty key is a key.
pub async fn a_held_event_without_key_holds_back_nobody<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let keyless = |text: &'static str| Event::to("orders").bytes(text);
    r.emit(&[keyless("failed"), keyless("next"), event("orders", "", "empty")]).await?;
    r.fail("failed", HOUR).await?;
    r.emit(&[keyless("later")]).await?;
    let mut open = r.next_texts("orders").await?;
    open.sort_unstable();
    assert_eq!(open, ["empty", "later", "next"]);

    r.fail("empty", HOUR).await?;
    r.emit(&[event("orders", "", "behind empty")]).await?;
    let mut open = r.next_texts("orders").await?;
    open.sort_unstable();
    assert_eq!(open, ["later", "next"]);
    Ok(())
}

/// What waits behind a failure waits as long as that does, whatever was said about itself.
pub async fn a_follower_does_not_overtake<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "failed"), event("orders", "a", "behind")]).await?;
    let held = vec![r.held("failed", HOUR, Some("no")).await?, r.held("behind", Duration::ZERO, None).await?];
    r.record_deliveries(Deliveries { held, ..r.deliveries() }).await?;
    assert!(r.next("orders").await?.is_empty());
    Ok(())
}

/// An event that waits does not hold back the one before it.
pub async fn a_held_event_does_not_hold_back_earlier_ones<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "first"), event("orders", "a", "second")]).await?;
    r.fail("second", HOUR).await?;
    assert_eq!(r.next_texts("orders").await?, ["first"]);
    Ok(())
}

/// When its time has come a failed event goes first, and its followers behind it, in order.
pub async fn a_held_event_comes_back_with_its_followers<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "failed"), event("orders", "a", "behind")]).await?;
    r.fail_with_follower("failed", "behind", Duration::ZERO).await?;
    r.emit(&[event("orders", "a", "later")]).await?;
    let all = ["failed", "behind", "later"];
    assert_eq!(r.next_texts("orders").await?, all, "a delay of zero is no delay");

    r.fail_with_follower("failed", "behind", Duration::from_millis(400)).await?;
    let back = eventually("the failed event comes back", async || {
        let next = r.next_texts("orders").await?;
        Ok((!next.is_empty()).then_some(next))
    })
    .await?;
    assert!(all.starts_with(&back.iter().map(String::as_str).collect::<Vec<_>>()), "{back:?}");
    eventually("all come back", async || Ok((r.next_texts("orders").await? == all).then_some(()))).await
}

/// A delivery that failed is counted and its reason is kept; waiting behind one is neither.
pub async fn failures_are_counted<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    r.emit(&[event("orders", "a", "failed"), event("orders", "a", "behind")]).await?;
    for failures in 1..=3 {
        r.fail_with_follower("failed", "behind", Duration::ZERO).await?;
        let next = r.next("orders").await?;
        assert_eq!(next.iter().map(|event| event.attempts).collect::<Vec<_>>(), [failures, 0]);
    }
    r.fail_with_follower("failed", "behind", HOUR).await?;
    let (failed, behind) = (r.entry("failed").await?, r.entry("behind").await?);
    assert_eq!((failed.state, behind.state), (EventState::Held, EventState::Held));
    assert_eq!(failed.error.as_deref(), Some("the broker said no"));
    assert_eq!((failed.event.attempts, behind.event.attempts), (4, 0));
    assert_eq!(behind.error, None);
    let until = failed.state_at_ms.ok_or("a held event says until when")? - failed.event.created_at_ms;
    assert!((3_600_000..3_660_000).contains(&until), "held until an hour from now, not {until} ms");
    Ok(())
}

/// An operator's retry makes held events due at once, with their order, and no others.
pub async fn a_held_event_can_be_retried_at_once<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    for key in ["a", "b"] {
        r.emit(&[
            event("orders", key, &format!("{key} failed")),
            event("orders", key, &format!("{key} behind")),
        ])
        .await?;
        r.fail_with_follower(&format!("{key} failed"), &format!("{key} behind"), HOUR).await?;
    }
    let of_a = oncebox_core::store::EventFilter { key: Some(b"a".to_vec()), ..every() };
    assert_eq!(r.store.retry_events(&of_a).await?, 2);
    assert_eq!(texts(&r.next("orders").await?), ["a failed", "a behind"]);
    assert_eq!(r.entry("a failed").await?.state, EventState::Pending);
    assert_eq!(r.entry("b failed").await?.state, EventState::Held);
    assert_eq!(r.store.retry_events(&of_a).await?, 0, "they are pending already");
    Ok(())
}

/// A failed event that is delivered after all, or dropped, lets its key go on.
pub async fn a_key_goes_on_without_its_held_event<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    for keep in [false, true] {
        let topic = if keep { "kept" } else { "removed" };
        let failed = format!("{topic} failed");
        r.emit(&[event(topic, "a", &failed), event(topic, "a", "behind")]).await?;
        r.fail(&failed, HOUR).await?;
        assert!(r.next(topic).await?.is_empty());
        r.publish(&[&failed], keep).await?;
        assert_eq!(r.next_texts(topic).await?, ["behind"]);
    }
    r.emit(&[event("dropped", "a", "stuck"), event("dropped", "a", "free")]).await?;
    r.fail("stuck", HOUR).await?;
    let stuck = oncebox_core::store::EventFilter { seqs: r.seqs(&["stuck"]).await?, ..every() };
    assert_eq!(r.store.drop_events(&stuck).await?, 1);
    assert_eq!(r.next_texts("dropped").await?, ["free"]);
    Ok(())
}
