//! What the payload was is kept with the receipt, where copies are compared with it, and comes back for a copy.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::inbox::{Fingerprint, ReceiptKey};
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, DeadLetters, Store};

use super::fixture::{Fixture, all, claims, letter};
use super::subject::{Subject, Verdict};

/// A fingerprint comes back for each claim that is not fresh, and it is that of the first, whatever later ones had.
pub async fn a_fingerprint_comes_back_for_a_copy<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    for tenant in ["", "acme"] {
        assert_eq!(claim(&f, tenant, &[("a", "one"), ("b", "two")]).await?, []);
        for _ in 0..2 {
            let known = claim(&f, tenant, &[("c", "three"), ("b", "another"), ("a", "one")]).await?;
            let known: Vec<_> = known.into_iter().filter(|(at, _)| *at > 0).collect();
            assert_eq!(known, [(1, Fingerprint::of(b"two")), (2, Fingerprint::of(b"one"))], "{tenant:?}");
        }
        assert_eq!(claim(&f, tenant, &[("c", "")]).await?, [(0, Fingerprint::of(b"three"))]);
    }
    Ok(())
}

/// A receipt that was written without a fingerprint has none, and gets none by a copy; and who does not ask hears of none.
pub async fn a_receipt_without_a_fingerprint_has_none<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.apply(&["a"]).await?;
    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    f.store.claim_within(&mut txn, &f.consumer, &claims(&f.consumer, "", &["b"])?).await?;
    f.store.commit(txn, None).await?;
    for _ in 0..2 {
        assert_eq!(claim(&f, "", &[("a", "one"), ("b", "two")]).await?, []);
    }

    claim(&f, "", &[("c", "three")]).await?;
    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["c"])?).await?;
    assert_eq!((claimed.fresh, claimed.fingerprints), (vec![false], vec![]));
    f.store.rollback(claimed.txn).await;
    Ok(())
}

/// What was rolled back never had a payload.
pub async fn a_rolled_back_fingerprint_is_gone<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let claimed = f.store.claim(&f.consumer, &with(&f, "", &[("a", "one")])?).await?;
    f.store.rollback(claimed.txn).await;
    assert_eq!(claim(&f, "", &[("a", "two")]).await?, []);
    assert_eq!(claim(&f, "", &[("a", "one")]).await?, [(0, Fingerprint::of(b"two"))]);
    Ok(())
}

/// A copy that waited for the first sees its fingerprint.
pub async fn a_concurrent_copy_sees_the_fingerprint<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let first = f.store.claim(&f.consumer, &with(&f, "", &[("a", "one")])?).await?;
    let (other, consumer) = (f.subject.connect().await?, f.consumer.clone());
    let copy = tokio::spawn(async move {
        let claims = with_payloads(&consumer, "", &[("a", "two")])?;
        let claimed = other.claim(&consumer, &claims).await?;
        other.commit(claimed.txn, None).await?;
        Ok::<_, BoxError>((claimed.fresh, claimed.fingerprints))
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!copy.is_finished(), "the copy did not wait for the open transaction");
    f.store.commit(first.txn, None).await?;
    assert_eq!(copy.await??, (vec![false], vec![(0, Fingerprint::of(b"one"))]));
    Ok(())
}

/// A letter that is replayed keeps the fingerprint that it was parked with.
pub async fn a_replay_keeps_the_fingerprint<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut claimed = f.store.claim(&f.consumer, &with(&f, "", &[("a", "one")])?).await?;
    f.store.park(&mut claimed.txn, &f.consumer, &[letter(Some("a"), 1)]).await?;
    f.store.commit(claimed.txn, None).await?;
    let parked = f.store.dead_letters(&all()).await?;
    let (txn, _) = f.store.take_dead(parked[0].number).await?.ok_or("the letter is not there")?;
    f.store.commit(txn, None).await?;
    assert_eq!(claim(&f, "", &[("a", "two")]).await?, [(0, Fingerprint::of(b"one"))]);
    Ok(())
}

/// The receipt of another message says nothing about this one's payload.
pub async fn a_collision_has_no_fingerprint<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let fingerprint = Some(Fingerprint::of(b"one"));
    let claim = |message_id| {
        [Claim { key: ReceiptKey::from([7; 16]), tenant: "", message_id, set: &[], fingerprint }]
    };
    let claimed = f.store.claim(&f.consumer, &claim("a")).await?;
    f.store.commit(claimed.txn, None).await?;
    let claimed = f.store.claim(&f.consumer, &claim("b")).await?;
    assert_eq!((claimed.fresh, claimed.collisions, claimed.fingerprints), (vec![false], vec![0], vec![]));
    f.store.rollback(claimed.txn).await;
    Ok(())
}

/// Claims messages with payloads and commits: the fingerprints of those that were there.
async fn claim<T: Subject>(
    f: &Fixture<T>,
    tenant: &str,
    messages: &[(&str, &str)],
) -> Result<Vec<(usize, Fingerprint)>, BoxError> {
    let claimed = f.store.claim(&f.consumer, &with(f, tenant, messages)?).await?;
    f.store.commit(claimed.txn, None).await?;
    let mut fingerprints = claimed.fingerprints;
    fingerprints.sort_unstable_by_key(|(at, _)| *at);
    Ok(fingerprints)
}

fn with<'a, T: Subject>(
    f: &Fixture<T>,
    tenant: &'a str,
    messages: &[(&'a str, &str)],
) -> Result<Vec<Claim<'a>>, BoxError> {
    with_payloads(&f.consumer, tenant, messages)
}

fn with_payloads<'a>(
    consumer: &ConsumerName,
    tenant: &'a str,
    messages: &[(&'a str, &str)],
) -> Result<Vec<Claim<'a>>, BoxError> {
    let ids: Vec<&str> = messages.iter().map(|(id, _)| *id).collect();
    let mut claims = claims(consumer, tenant, &ids)?;
    for (claim, (_, payload)) in claims.iter_mut().zip(messages) {
        claim.fingerprint = Some(Fingerprint::of(payload.as_bytes()));
    }
    Ok(claims)
}
