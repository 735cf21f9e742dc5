//! Taking a dead letter back, to replay it.

use oncebox_core::error::BoxError;
use oncebox_core::message::Record;
use oncebox_core::store::{DeadLetter, DeadLetters, Store};

use super::fixture::{Fixture, all, claims, letter};
use super::pass::{DAY, purge};
use super::subject::{Subject, Verdict};

/// The letter and the effect of its replay change places in one transaction.
pub async fn a_taken_letter_is_gone_after_the_commit<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.park(&[letter(Some("a"), 1), letter(None, 2)]).await?;
    let numbers = numbers(&f).await?;
    for (number, id) in numbers.iter().zip([Some("a"), None]) {
        let (mut txn, stored) = f.store.take_dead(*number).await?.ok_or("the letter is not there")?;
        assert_eq!((stored.number, stored.letter.message_id.as_deref()), (*number, id));
        assert_eq!(stored.letter.record.payload.as_deref(), Some(b"{}".as_slice()));
        T::add_effect(&mut txn, id.unwrap_or("none")).await?;
        f.store.commit(txn, None).await?;
        assert!(f.store.take_dead(*number).await?.is_none());
    }
    assert_eq!(f.subject.effects().await?, ["a", "none"]);
    assert!(f.store.dead_letters(&all()).await?.is_empty());
    Ok(())
}

/// A replay that fails leaves the letter as it was, also when its task goes away.
pub async fn a_taken_letter_comes_back_after_a_rollback<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.park(&[letter(Some("a"), 1)]).await?;
    let number = numbers(&f).await?[0];
    for dropped in [false, true] {
        let (mut txn, _) = f.store.take_dead(number).await?.ok_or("the letter is not there")?;
        T::add_effect(&mut txn, "a").await?;
        if dropped {
            drop(txn);
        } else {
            f.store.rollback(txn).await;
        }
    }
    let (txn, stored) = f.store.take_dead(number).await?.ok_or("the letter did not come back")?;
    f.store.rollback(txn).await;
    assert_eq!(stored.letter.message_id.as_deref(), Some("a"));
    assert_eq!(f.subject.effects().await?, [""; 0]);
    assert_eq!(f.fresh(&["a"]).await?, [false]);
    Ok(())
}

/// A letter whose receipt is not there (any more) gets it when it is taken, so that a late copy is skipped.
pub async fn a_taken_letter_has_its_receipt<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut tenant = letter(Some("a"), 1);
    tenant.tenant = oncebox_core::names::Tenant::new("acme")?;
    let mut txn = f.store.claim(&f.consumer, &[]).await?.txn;
    f.store.park(&mut txn, &f.consumer, &[tenant]).await?;
    f.store.commit(txn, None).await?;
    assert_eq!(f.subject.receipts("stock").await?, [""; 0]);

    let (txn, _) = f.store.take_dead(numbers(&f).await?[0]).await?.ok_or("the letter is not there")?;
    f.store.commit(txn, None).await?;
    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "acme", &["a"])?).await?;
    assert_eq!(claimed.fresh, [false]);
    f.store.rollback(claimed.txn).await;
    assert_eq!(f.fresh(&["a"]).await?, [true], "the receipt is the tenant's");
    Ok(())
}

/// Two operators replay the same letter: one of them does.
pub async fn a_letter_is_taken_by_one<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.park(&[letter(Some("a"), 1)]).await?;
    let number = numbers(&f).await?[0];
    let mut operators = Vec::new();
    for _ in 0..4 {
        let store = f.subject.connect().await?;
        operators.push(tokio::spawn(async move {
            let Some((mut txn, _)) = store.take_dead(number).await? else { return Ok(false) };
            T::add_effect(&mut txn, "a").await?;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            store.commit(txn, None).await?;
            Ok::<bool, BoxError>(true)
        }));
    }
    let mut taken = 0;
    for operator in operators {
        taken += u32::from(operator.await??);
    }
    assert_eq!(taken, 1);
    assert_eq!(f.subject.effects().await?, ["a"]);
    Ok(())
}

/// The effect of a replay is new, so the time for which copies of it are recognised begins anew.
pub async fn a_replay_renews_the_receipt<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.park(&[letter(Some("a"), 1), letter(Some("b"), 2)]).await?;
    let numbers = numbers(&f).await?;
    f.subject.age_receipts("stock", 10 * DAY).await?;
    let (txn, _) = f.store.take_dead(numbers[0]).await?.ok_or("the letter is not there")?;
    f.store.commit(txn, None).await?;
    let (txn, _) = f.store.take_dead(numbers[1]).await?.ok_or("the letter is not there")?;
    f.store.rollback(txn).await;
    f.store.drop_dead(&all()).await?;

    assert_eq!(purge(&f, DAY).await?.receipts, 1);
    assert_eq!(f.fresh(&["a", "b"]).await?, [false, true], "only the replay that was committed counts");
    Ok(())
}

/// Whoever replays a letter of a key out of order can be told.
pub async fn an_earlier_letter_of_the_key_is_found<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let keyed = |id: &str, partition, key: Option<&'static str>| {
        let record = Record { key: key.map(Into::into), ..Record::at("orders", partition, 1) };
        DeadLetter { record, ..letter(Some(id), 1) }
    };
    let of_others = [keyed("x", 1, Some("red")), keyed("y", 0, Some("blue")), keyed("z", 0, None)];
    f.park(&of_others).await?;
    let ids = ["a", "b", "c"];
    f.park(&ids.map(|id| keyed(id, 0, Some("red")))).await?;
    f.park(&[keyed("without", 0, None)]).await?;
    let numbers = numbers(&f).await?;
    let [.., a, b, c, without] = numbers[..] else { return Err("expected seven letters".into()) };

    for (number, before) in [(a, None), (b, Some(a)), (c, Some(a)), (without, None)] {
        let (mut txn, stored) = f.store.take_dead(number).await?.ok_or("the letter is not there")?;
        assert_eq!(f.store.letter_before(&mut txn, &stored).await?, before, "of {number}, of {numbers:?}");
        f.store.rollback(txn).await;
    }
    let (txn, _) = f.store.take_dead(a).await?.ok_or("the letter is not there")?;
    f.store.commit(txn, None).await?;
    let (mut txn, stored) = f.store.take_dead(c).await?.ok_or("the letter is not there")?;
    assert_eq!(f.store.letter_before(&mut txn, &stored).await?, Some(b));
    f.store.rollback(txn).await;
    Ok(())
}

async fn numbers<T: Subject>(f: &Fixture<T>) -> Result<Vec<i64>, BoxError> {
    Ok(f.store.dead_letters(&all()).await?.iter().map(|stored| stored.number).collect())
}
