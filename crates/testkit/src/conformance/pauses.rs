//! Consumers are paused and resumed, and stay so.

use oncebox_core::error::BoxError;
use oncebox_core::names::ConsumerName;
use oncebox_core::store::{Pause, PauseNote, Pauses};

use super::fixture::Fixture;
use super::pass::now_ms;
use super::subject::{Subject, Verdict};

async fn names<T: Subject>(f: &Fixture<T>) -> Result<Vec<String>, BoxError> {
    Ok(f.store.paused().await?.into_iter().map(|pause| pause.consumer).collect())
}

/// A pause is kept whole, whatever its note says, and every process sees it.
pub async fn a_pause_is_kept_whole<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    assert!(f.store.paused().await?.is_empty());
    for (who, why) in [
        ("ana", Some("the warehouse is being counted")),
        ("$by \'; DROP TABLE x; --", Some("$$ROOT \u{1f6d1} \\ \"")),
        ("", None),
    ] {
        let note = why.into_iter().fold(PauseNote::by(who), PauseNote::because);
        assert!(f.store.pause(&f.consumer, &note).await?);
        let paused = f.subject.connect().await?.paused().await?;
        let [Pause { consumer, since_ms, by, reason }] = paused.as_slice() else {
            return Err(format!("expected one pause: {paused:?}").into());
        };
        assert_eq!((consumer.as_str(), by.as_str(), reason.as_deref()), ("stock", who, why));
        assert!((now_ms() - since_ms).abs() < 60_000, "{since_ms}");
        assert!(f.store.resume(&f.consumer).await?);
    }
    let long = PauseNote::by("\u{fc}".repeat(5_000)).because("\u{fc}".repeat(5_000));
    assert!(f.store.pause(&f.consumer, &long).await?);
    assert_eq!(f.store.paused().await?[0].reason.as_deref(), long.reason());
    Ok(())
}

/// The first pause counts; to resume what is not paused changes nothing.
pub async fn the_first_pause_counts<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    assert!(!f.store.resume(&f.consumer).await?);
    assert!(f.store.pause(&f.consumer, &PauseNote::by("ana").because("first")).await?);
    let first = f.store.paused().await?;
    assert!(!f.store.pause(&f.consumer, &PauseNote::by("ben").because("second")).await?);
    assert_eq!(f.store.paused().await?, first);
    assert!(f.store.resume(&f.consumer).await?);
    assert!(!f.store.resume(&f.consumer).await?);
    assert!(f.store.paused().await?.is_empty());
    Ok(())
}

/// Each consumer is paused for itself, and they are told by name.
pub async fn consumers_are_paused_one_by_one<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let consumers = ["Stock", "ledger", "mail.out", "stock"].map(ConsumerName::new);
    let consumers = consumers.into_iter().collect::<Result<Vec<_>, _>>()?;
    for consumer in consumers.iter().rev() {
        assert!(f.store.pause(consumer, &PauseNote::by("ana")).await?, "{consumer}");
    }
    let all: Vec<&str> = consumers.iter().map(ConsumerName::as_str).collect();
    let mut told = names(&f).await?;
    told.sort();
    assert_eq!(told, all);
    assert!(f.store.resume(&consumers[3]).await?);
    let mut told = names(&f).await?;
    told.sort();
    assert_eq!(told, all[..3]);
    Ok(())
}

/// Of several who pause at once, one does.
pub async fn a_consumer_is_paused_by_one<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut pausing = tokio::task::JoinSet::new();
    for at in 0..8 {
        let (store, consumer) = (f.subject.connect().await?, f.consumer.clone());
        pausing.spawn(async move { store.pause(&consumer, &PauseNote::by(at.to_string())).await });
    }
    let mut made = 0;
    while let Some(paused) = pausing.join_next().await {
        made += usize::from(paused??);
    }
    assert_eq!((made, f.store.paused().await?.len()), (1, 1));
    Ok(())
}
