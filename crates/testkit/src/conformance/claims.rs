//! Receipts: fresh once, per consumer and tenant.

use oncebox_core::inbox::ReceiptKey;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Claim, ErrorClass, Store};

use super::fixture::{Fixture, claims, refused};
use super::subject::{Subject, Verdict};

/// A receipt is fresh until the transaction that wrote it has committed, and the answers come in the order asked.
pub async fn a_receipt_is_fresh_once<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    assert_eq!(f.apply(&["a", "b"]).await?, [true, true]);
    assert_eq!(f.apply(&["c", "b", "d", "a"]).await?, [true, false, true, false]);
    assert_eq!(f.apply(&["a", "b", "c", "d"]).await?, [false; 4]);
    assert_eq!(f.subject.effects().await?, ["a", "b", "c", "d"]);
    assert_eq!(f.subject.receipts("stock").await?, ["a", "b", "c", "d"]);
    Ok(())
}

/// What was rolled back never happened: neither the receipt nor the effect.
pub async fn a_rolled_back_receipt_is_fresh_again<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    T::add_effect(&mut claimed.txn, "a").await?;
    f.store.rollback(claimed.txn).await;

    assert_eq!(f.subject.effects().await?, [""; 0]);
    assert_eq!(f.apply(&["a"]).await?, [true]);
    assert_eq!(f.subject.effects().await?, ["a"]);
    Ok(())
}

/// The same id is another message for another consumer, and for another tenant.
pub async fn consumers_and_tenants_are_apart<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let billing = ConsumerName::new("billing")?;
    for (consumer, tenant) in
        [(&f.consumer, ""), (&f.consumer, "acme"), (&f.consumer, "globex"), (&billing, "acme")]
    {
        for expected in [true, false] {
            let claimed = f.store.claim(consumer, &claims(consumer, tenant, &["a"])?).await?;
            assert_eq!(claimed.fresh, [expected], "{consumer} {tenant:?}");
            f.store.commit(claimed.txn, None).await?;
        }
    }
    assert_eq!(f.subject.receipts("stock").await?, ["a", "a", "a"]);
    assert_eq!(f.subject.receipts("billing").await?, ["a"]);
    Ok(())
}

/// Ids are compared byte by byte and stored as they are, whatever is in them.
pub async fn odd_ids_are_told_apart<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let long = "x".repeat(oncebox_core::names::MAX_ID_BYTES);
    let mut ids = vec![
        "a",
        "A",
        "a ",
        " a",
        "ä",
        "a\u{308}",
        "'",
        "\"",
        "\\",
        "\\n",
        "\n",
        "null",
        "[]",
        "{\"a\":1}",
        "%",
        "_",
        "?1",
        "$1",
        ":id",
        "--",
        ";",
        "\u{1}",
        "\u{fffd}",
        "🦀",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "01890A5D-AC96-774B-BCCE-B302099A8057",
        &long,
        &long[1..],
    ];
    assert_eq!(f.apply(&ids).await?, vec![true; ids.len()]);
    assert_eq!(f.fresh(&ids).await?, vec![false; ids.len()]);
    ids.sort_unstable();
    assert_eq!(f.subject.receipts("stock").await?, ids);
    Ok(())
}

/// The bounds of a batch are the engine's business; a store takes what it is given.
pub async fn a_large_batch_is_claimed_whole<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let names: Vec<String> = (0..5000).map(|n| format!("order-{n}")).collect();
    let ids: Vec<&str> = names.iter().map(String::as_str).collect();
    let thirds: Vec<&str> = ids.iter().copied().step_by(3).collect();

    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &thirds)?).await?;
    assert!(claimed.fresh.iter().all(|fresh| *fresh));
    f.store.commit(claimed.txn, None).await?;

    let fresh = f.fresh(&ids).await?;
    assert_eq!(fresh.len(), ids.len());
    for (n, fresh) in fresh.iter().enumerate() {
        assert_eq!(*fresh, n % 3 != 0, "order-{n}");
    }
    Ok(())
}

/// A batch may hold nothing but messages without an id; its letters still need a transaction.
pub async fn a_batch_without_ids_has_a_transaction<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut claimed = f.store.claim(&f.consumer, &[]).await?;
    assert!(claimed.fresh.is_empty());
    T::add_effect(&mut claimed.txn, "a").await?;
    f.store.rollback(claimed.txn).await;
    assert_eq!(f.subject.effects().await?, [""; 0]);
    Ok(())
}

/// The bare claim writes into a transaction that is already open, and shares its fate.
pub async fn a_bare_claim_joins_the_transaction<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let receipts = claims(&f.consumer, "", &["a", "b"])?;
    f.apply(&["b"]).await?;

    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    assert_eq!(f.store.claim_within(&mut txn, &f.consumer, &receipts).await?, [true, false]);
    f.store.rollback(txn).await;

    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    assert_eq!(f.store.claim_within(&mut txn, &f.consumer, &receipts).await?, [true, false]);
    assert_eq!(f.store.claim_within(&mut txn, &f.consumer, &receipts).await?, [false, false]);
    f.store.commit(txn, None).await?;
    assert_eq!(f.subject.receipts("stock").await?, ["a", "b"]);
    Ok(())
}

/// Outside of a transaction the receipt would be there before the effect, and a crash in between would lose the message.
pub async fn a_bare_claim_outside_a_transaction_is_refused<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut conn = f.subject.connection().await?;
    let receipts = claims(&f.consumer, "", &["a"])?;
    let claimed = f.store.claim_within(&mut conn, &f.consumer, &receipts).await;
    assert_eq!(refused(claimed, "a claim outside of a transaction")?.class, ErrorClass::Failed);
    assert_eq!(f.subject.receipts("stock").await?, [""; 0]);
    Ok(())
}

/// A receipt that belongs to another message: the new one was never applied, and whoever claims it is told.
pub async fn a_collision_of_receipts_is_told<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let billing = ConsumerName::new("billing")?;
    let claim = |n: u8, tenant, message_id| Claim {
        key: ReceiptKey::from([n; 16]),
        tenant,
        message_id,
        set: &[],
        fingerprint: None,
    };
    let first = [claim(1, "acme", "a"), claim(2, "acme", "b"), claim(3, "acme", "c"), claim(4, "acme", "d")];
    let claimed = f.store.claim(&f.consumer, &first).await?;
    assert_eq!((claimed.fresh, claimed.collisions), (vec![true; 4], vec![]));
    f.store.commit(claimed.txn, None).await?;

    let second =
        [claim(1, "acme", "a"), claim(2, "acme", "B"), claim(5, "acme", "e"), claim(3, "globex", "c")];
    let claimed = f.store.claim(&f.consumer, &second).await?;
    assert_eq!(claimed.fresh, [false, false, true, false]);
    assert_eq!(claimed.collisions, [1, 3]);
    f.store.rollback(claimed.txn).await;

    let claimed = f.store.claim(&billing, &first[3..]).await?;
    assert_eq!((claimed.fresh, claimed.collisions), (vec![false], vec![0]));
    f.store.rollback(claimed.txn).await;

    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    let bare = f.store.claim_within(&mut txn, &f.consumer, &second[1..2]).await;
    assert_eq!(refused(bare, "a bare claim of another message's receipt")?.class, ErrorClass::Failed);
    f.store.rollback(txn).await;
    Ok(())
}
