//! One message by its id.

use oncebox_core::message::{Message, Record};
use oncebox_core::names::{ConsumerName, MessageId, Tenant};
use oncebox_core::operate;
use oncebox_core::outbox::Event;
use oncebox_core::store::{EventState, Find, OutboxAdmin, Store};

use super::fixture::{Fixture, claims, letter};
use super::pass::now_ms;
use super::relaying::{Relaying, event};
use super::subject::{Subject, Verdict};

/// A receipt is found by consumer, tenant and id, with its time; one that is not committed is none.
pub async fn a_receipt_is_found_with_its_time<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let (none, acme) = (Tenant::none(), Tenant::new("acme")?);
    let (a, b) = (MessageId::new("a")?, MessageId::new("b")?);
    f.apply(&["a"]).await?;
    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "acme", &["b"])?).await?;
    f.store.commit(claimed.txn, None).await?;

    let found = f.store.receipt(&f.consumer, &none, &a).await?.ok_or("no receipt")?;
    assert!(found.processed_at_ms.is_some_and(|at| (now_ms() - at).abs() < 60_000), "{found:?}");
    assert!(f.store.receipt(&f.consumer, &acme, &b).await?.is_some());
    assert_eq!(f.store.receipt(&f.consumer, &none, &b).await?, None);
    assert_eq!(f.store.receipt(&f.consumer, &acme, &a).await?, None);
    assert_eq!(f.store.receipt(&f.consumer, &none, &MessageId::new("A")?).await?, None);
    assert_eq!(f.store.receipt(&ConsumerName::new("billing")?, &none, &a).await?, None);

    let open = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["c"])?).await?;
    assert_eq!(f.store.receipt(&f.consumer, &none, &MessageId::new("c")?).await?, None);
    f.store.rollback(open.txn).await;
    Ok(())
}

/// The events of a message are found with their state, and it is told whether all were looked at.
pub async fn events_are_found_by_their_cause<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let cause = |id: &str| -> Result<Message, oncebox_core::error::BoxError> {
        Ok(Message::new(MessageId::new(id)?, Tenant::none(), Record::at("orders", 0, 7)))
    };
    let (ours, other) = (cause("order 'seven'")?, cause("order 'seven' ")?);
    let caused = |text: &str, by: &Message| -> Event { event("orders", "a", text).caused_by(by) };
    r.emit(&[
        caused("one", &ours),
        caused("two", &other),
        caused("three", &ours),
        event("orders", "a", "four"),
    ])
    .await?;
    let found = r.store.events_caused_by("order 'seven'", 1000).await?;
    let texts: Vec<_> = found.events.iter().map(|entry| entry.event.payload.as_deref()).collect();
    assert_eq!(texts, [Some(b"one".as_slice()), Some(b"three".as_slice())]);
    assert!(found.looked_at_all && found.events.iter().all(|entry| entry.state == EventState::Pending));
    let near = r.store.events_caused_by("order 'seven'", 2).await?;
    assert_eq!((near.events.len(), near.looked_at_all), (1, false));
    let none = r.store.events_caused_by("unheard of", 1000).await?;
    assert!(none.events.is_empty() && none.looked_at_all);
    Ok(())
}

/// All that is known of a message, and that one was never seen.
pub async fn a_message_is_found<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.apply(&["applied"]).await?;
    let mut parked = letter(Some("parked"), 1);
    parked.tenant = Tenant::new("acme")?;
    parked
        .record
        .headers
        .push("traceparent", Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()));
    f.park(&[parked]).await?;
    let consumers = [f.consumer.clone()];

    let applied = operate::find(&f.store, &consumers, None, &MessageId::new("applied")?).await?;
    assert!(applied.is_seen() && applied.at.len() == 1, "{applied:?}");
    assert!(applied.at[0].receipt.is_some() && applied.at[0].letters.is_empty());

    let parked = operate::find(&f.store, &consumers, None, &MessageId::new("parked")?).await?;
    assert_eq!(parked.at.len(), 1, "{parked:?}");
    assert_eq!((parked.at[0].tenant.as_str(), parked.at[0].letters.len()), ("acme", 1));
    assert!(parked.at[0].receipt.is_some(), "a dead letter has its receipt");
    assert_eq!(parked.traces, ["4bf92f3577b34da6a3ce929d0e0e4736"]);

    let unseen = operate::find(&f.store, &consumers, None, &MessageId::new("unheard of")?).await?;
    assert!(!unseen.is_seen(), "{unseen:?}");
    let by_other =
        operate::find(&f.store, &consumers, Some(&Tenant::new("zeta")?), &MessageId::new("parked")?).await?;
    assert!(!by_other.is_seen(), "{by_other:?}");
    Ok(())
}
