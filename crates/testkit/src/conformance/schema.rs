//! Tables, checks and the status.

use oncebox_core::error::BoxError;
use oncebox_core::store::{
    Admin, Advance, Cause, Check, Duplicates, FindingLevel, Migrate, Positions, Status,
};

use super::fixture::{Fixture, letter, next};
use super::subject::{Subject, Verdict};

/// The first run applies every step in order, the second none.
pub async fn migrations_are_applied_once<T: Subject>() -> Verdict {
    let subject = T::start().await?;
    let store = subject.connect().await?;
    let before = store.migrations().await?;
    assert!(!before.is_empty() && before.iter().all(|step| !step.applied));
    assert!(before.iter().map(|step| step.version).eq(1..=before.len() as u32));

    let applied = store.migrate().await?;
    assert_eq!(applied.len(), before.len());
    assert!(store.migrate().await?.is_empty());
    assert!(store.migrations().await?.iter().all(|step| step.applied));
    Ok(())
}

/// Processes that start together on an empty database: each step is applied by one of them, and all can go on.
pub async fn migrations_are_safe_from_several_processes<T: Subject>() -> Verdict {
    let subject = T::start().await?;
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(subject.connect().await?);
    }
    let steps = stores[0].migrations().await?.len();
    let running: Vec<_> =
        stores.into_iter().map(|store| tokio::spawn(async move { store.migrate().await })).collect();
    let mut applied = 0;
    for process in running {
        applied += process.await??.len();
    }
    assert_eq!(applied, steps);
    Ok(())
}

/// A check finds that the tables are missing, and nothing wrong once they are there.
pub async fn a_check_tells_about_missing_tables<T: Subject>() -> Verdict {
    let subject = T::start().await?;
    let store = subject.connect().await?;
    assert!(errors(&store).await? > 0);
    store.migrate().await?;
    assert_eq!(errors(&store).await?, 0);
    store.ping().await?;
    Ok(())
}

async fn errors<A: Admin>(store: &A) -> Result<usize, BoxError> {
    let findings = store.check(4 << 20).await?;
    Ok(findings.iter().filter(|finding| finding.level == FindingLevel::Error).count())
}

/// Counters add up over commits; counts of letters stop at the cap.
pub async fn the_status_shows_counters<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let owner = f.store.acquire(&f.position(4)).await?;
    let moved = |to, applied, causes: &[Cause]| {
        let duplicates = causes.iter().copied().collect();
        Some(Advance { owner: &owner, progress: next(Some(to)), applied, duplicates, finished_attempt: None })
    };
    f.apply_and(&["a"], moved(3, 2, &[Cause::Redelivered])).await?;
    f.apply_and(
        &["b"],
        moved(5, 1, &[Cause::Redelivered, Cause::Rewound, Cause::PublishedTwice, Cause::Unknown]),
    )
    .await?;
    f.park(&[letter(None, 1), letter(None, 2), letter(None, 3)]).await?;

    let status = f.store.status(2).await?;
    let [position] = status.positions.as_slice() else {
        return Err(format!("expected one position: {:?}", status.positions).into());
    };
    assert_eq!(
        (position.consumer.as_str(), position.topic.as_str(), position.partition),
        ("stock", "orders", 4)
    );
    assert_eq!((position.next_offset, position.epoch, position.starts), (Some(5), owner.epoch, 0));
    assert_eq!((position.applied, position.duplicates), (3, Duplicates::stored(5, 2, 1, 1)));
    assert!(position.updated_at_ms > 1_700_000_000_000, "{}", position.updated_at_ms);

    let [consumer] = status.consumers.as_slice() else {
        return Err(format!("expected one consumer: {:?}", status.consumers).into());
    };
    assert_eq!(
        (consumer.consumer.as_str(), consumer.dead_letters, consumer.purged_before_ms),
        ("stock", 2, None)
    );
    assert_eq!(status.outbox.pending, 0);
    Ok(())
}
