//! What a position knows beside its offset, and how an operator moves it.

use oncebox_core::error::BoxError;
use oncebox_core::source::{LogId, LogMark};
use oncebox_core::store::{
    Advance, Duplicates, ErrorClass, Ownership, PositionStatus, Positions, Progress, Status, Store,
};

use super::fixture::{Fixture, advance, claims, next, refused};
use super::pass::{DAY, ms_ago, now_ms};
use super::subject::{Subject, Verdict};

fn mark(offset: i64) -> LogMark {
    LogMark { offset, digest: -offset }
}

/// Tells a position of `orders/0` twice how far it is: with a message and without one. Returns what is stored then.
async fn tell<T: Subject>(f: &Fixture<T>, id: &str, told: Progress<'_>) -> Result<Ownership, BoxError> {
    let owner = f.store.acquire(&f.position(0)).await?;
    let advance = Advance {
        owner: &owner,
        progress: told,
        applied: 1,
        duplicates: Duplicates::default(),
        finished_attempt: None,
    };
    f.apply_and(&[id], Some(advance)).await?;
    let stored = f.store.acquire(&f.position(0)).await?;

    let owner = f.store.acquire(&f.position(0)).await?;
    f.store.record_progress(&owner, told).await?;
    let again = f.store.acquire(&f.position(0)).await?;
    let known = |o: &Ownership| (o.next_offset, o.log.clone(), o.mark, o.floor);
    assert_eq!(known(&stored), known(&again), "told again, without a message");
    Ok(again)
}

async fn status<T: Subject>(f: &Fixture<T>) -> Result<PositionStatus, BoxError> {
    Ok(f.store.status(10).await?.positions.pop().ok_or("there is no position")?)
}

/// A position remembers its log and the last settled record of it. What is not told stays, and a mark never goes back.
pub async fn a_position_keeps_its_log_and_its_mark<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let stored = tell(&f, "a", next(Some(3))).await?;
    assert_eq!((stored.log, stored.mark, stored.floor), (None, None, None));
    assert_eq!(status(&f).await?.log, None);

    let log = LogId::new("cluster/topic");
    let stored = tell(&f, "b", Progress { log: Some(&log), mark: Some(mark(7)), ..next(Some(8)) }).await?;
    assert_eq!((stored.log.as_ref(), stored.mark, stored.next_offset), (Some(&log), Some(mark(7)), Some(8)));
    let stored = tell(&f, "c", next(Some(9))).await?;
    assert_eq!((stored.log.as_ref(), stored.mark), (Some(&log), Some(mark(7))));

    for (told, expected) in [(3, 7), (11, 11), (10, 11)] {
        let progress = Progress { mark: Some(mark(told)), ..Progress::default() };
        assert_eq!(tell(&f, &format!("told-{told}"), progress).await?.mark, Some(mark(expected)));
    }
    let fuller = LogId::new("cluster/topic-2");
    let stored = tell(&f, "d", Progress { log: Some(&fuller), ..Progress::default() }).await?;
    assert_eq!((stored.log, stored.next_offset), (Some(fuller), Some(9)));
    assert_eq!(status(&f).await?.log.as_deref(), Some("cluster/topic-2"));
    Ok(())
}

/// Until when a partition is caught up only grows, and no clock that is ahead of the database's is believed.
pub async fn caught_up_only_moves_forward_and_never_ahead<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    tell(&f, "a", next(Some(1))).await?;
    assert_eq!(status(&f).await?.caught_up_ms, None);
    let (week, day) = (ms_ago(7 * DAY), ms_ago(DAY));
    for (at, (told, expected)) in [(week, week), (day, day), (week, day)].into_iter().enumerate() {
        let progress = Progress { caught_up_ms: Some(told), ..Progress::default() };
        tell(&f, &format!("told-{at}"), progress).await?;
        assert_eq!(status(&f).await?.caught_up_ms, Some(expected));
    }
    tell(&f, "b", next(Some(2))).await?;
    assert_eq!(status(&f).await?.caught_up_ms, Some(day), "what is not told stays");

    let ahead = Progress { caught_up_ms: Some(now_ms() + 3650 * 86_400_000), ..Progress::default() };
    tell(&f, "c", ahead).await?;
    let stored = status(&f).await?.caught_up_ms.ok_or("it was told")?;
    assert!(stored > day && stored < now_ms() + 60_000, "{stored}");
    Ok(())
}

/// An operator moves a position back, forward and to another log. What was known about the place it left is forgotten.
pub async fn a_position_is_moved_by_an_operator<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let (old, new) = (LogId::new("cluster/old"), LogId::new("cluster/new"));
    for (to, log) in [(3, Some(&new)), (500, None), (40, Some(&old))] {
        let owner = f.store.acquire(&key).await?;
        let progress = Progress {
            next_offset: Some(100),
            log: Some(&old),
            mark: Some(mark(99)),
            caught_up_ms: Some(ms_ago(DAY)),
            ..Progress::default()
        };
        f.store.record_progress(&owner, progress).await?;
        f.store.record_attempt(&owner, 600).await?;

        f.store.move_position(&key, to, log).await?;
        let shown = status(&f).await?;
        assert_eq!((shown.next_offset, shown.caught_up_ms), (Some(to), None));
        assert_eq!(shown.log.as_deref(), log.map(LogId::as_str));
        let owner = f.store.acquire(&key).await?;
        assert_eq!((owner.next_offset, owner.log.as_ref()), (Some(to), log));
        assert_eq!((owner.mark, owner.floor), (None, Some(to)));
        assert!(!owner.attempts_recorded);
        assert_eq!(tell(&f, &format!("at-{to}"), next(Some(to + 1))).await?.floor, Some(to));
    }
    Ok(())
}

/// How far anything of the log was settled is remembered, whatever is open below and wherever the position is moved to. What lies
/// below a move is rewound, in the same log.
pub async fn a_position_remembers_how_far_it_was_settled<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let known = |o: &Ownership| (o.settled_to, o.rewound_to);
    assert_eq!(known(&f.store.acquire(&key).await?), (None, None));
    let settled = |to| Progress { settled_to: Some(to), ..next(Some(3)) };
    assert_eq!(known(&tell(&f, "a", settled(9)).await?), (Some(9), None));
    assert_eq!(known(&tell(&f, "b", settled(5)).await?), (Some(9), None), "never lowered");
    assert_eq!(known(&tell(&f, "c", next(Some(4))).await?), (Some(9), None), "what is not told stays");
    let back = Progress { rewound_to: Some(6), ..Progress::default() };
    assert_eq!(known(&tell(&f, "d", back).await?), (Some(9), Some(6)));

    let (log, other) = (LogId::new("cluster/topic"), LogId::new("cluster/another"));
    for (nth, to) in [1, 100, 2].into_iter().enumerate() {
        f.store.move_position(&key, to, Some(&log)).await?;
        assert_eq!(known(&f.store.acquire(&key).await?), (Some(9), Some(9)), "move {nth}, to {to}");
    }
    f.store.move_position(&key, 4, Some(&other)).await?;
    assert_eq!(known(&f.store.acquire(&key).await?), (Some(4), None), "another log");
    Ok(())
}

/// Whoever is at work on a position that is moved does not carry it back.
pub async fn a_moved_position_fences_its_owner<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let owner = f.store.acquire(&key).await?;
    let mut claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    T::add_effect(&mut claimed.txn, "a").await?;
    f.store.rollback(claimed.txn).await;
    f.store.move_position(&key, 3, None).await?;

    let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
    let error = refused(f.store.commit(claimed.txn, advance(&owner, Some(9))).await, "a commit")?;
    assert_eq!(error.class, ErrorClass::Fenced);
    let error = refused(f.store.record_progress(&owner, next(Some(9))).await, "progress")?;
    assert_eq!(error.class, ErrorClass::Fenced);
    assert_eq!(f.store.acquire(&key).await?.next_offset, Some(3));
    Ok(())
}

/// A position that is not there yet is made, and one that is retired comes back to life.
pub async fn a_position_is_made_or_revived_by_moving_it<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let log = LogId::new("cluster/topic");
    f.store.move_position(&f.position(0), 7, Some(&log)).await?;
    assert_eq!(status(&f).await?.next_offset, Some(7));
    f.store.retire_positions(&f.consumer, "orders").await?;
    assert!(status(&f).await?.retired);
    f.store.move_position(&f.position(0), 5, Some(&log)).await?;
    assert!(!status(&f).await?.retired);
    let owner = f.store.acquire(&f.position(0)).await?;
    assert_eq!((owner.next_offset, owner.log.as_ref(), owner.floor), (Some(5), Some(&log), Some(5)));
    assert!(!owner.was_retired);
    f.apply_and(&["a"], advance(&owner, Some(8))).await?;
    assert_eq!(status(&f).await?.next_offset, Some(8));
    Ok(())
}

/// A database that knows less than the owner was told is committed has lost commits: the owner does not write on there, and
/// whoever takes over begins where the database is.
pub async fn an_owner_that_knows_more_than_the_database_is_fenced<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let key = f.position(0);
    let owner = f.store.acquire(&key).await?;
    let told = |at_least| Progress { at_least: Some(at_least), ..next(Some(9)) };
    let ahead = |at_least| {
        Some(Advance {
            owner: &owner,
            progress: told(at_least),
            applied: 1,
            duplicates: Duplicates::default(),
            finished_attempt: None,
        })
    };
    for stored in [None, Some(5)] {
        f.store.record_progress(&owner, next(stored)).await?;
        let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["a"])?).await?;
        let error = refused(f.store.commit(claimed.txn, ahead(6)).await, "a commit")?;
        assert_eq!(error.class, ErrorClass::Fenced);
        let error = refused(f.store.record_progress(&owner, told(6)).await, "progress")?;
        assert_eq!(error.class, ErrorClass::Fenced);
        assert_eq!(status(&f).await?.next_offset, stored);
    }
    f.apply_and(&["a"], ahead(5)).await?;
    f.store.record_progress(&owner, told(9)).await?;
    assert_eq!(f.store.acquire(&key).await?.next_offset, Some(9));
    Ok(())
}

/// Every advance is counted, and an owner that knows of more than the database does is fenced: with several lanes a commit may
/// be lost that did not move the position.
pub async fn an_owner_that_knows_of_more_commits_than_the_database_is_fenced<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let owner = f.store.acquire(&f.position(0)).await?;
    assert_eq!(owner.commits, 0);
    let knowing = |commits| Progress { commits: Some(commits), ..Progress::default() };
    let advance = |commits| {
        let progress = knowing(commits);
        Some(Advance {
            owner: &owner,
            progress,
            applied: 1,
            duplicates: Duplicates::default(),
            finished_attempt: None,
        })
    };
    f.apply_and(&["a"], advance(0)).await?;
    f.store.record_progress(&owner, knowing(1)).await?;
    f.apply_and(&["b"], advance(1)).await?;
    for told in [3, 4] {
        let claimed = f.store.claim(&f.consumer, &claims(&f.consumer, "", &["c"])?).await?;
        let error = refused(f.store.commit(claimed.txn, advance(told)).await, "a commit")?;
        assert_eq!(error.class, ErrorClass::Fenced);
        let error = refused(f.store.record_progress(&owner, knowing(told)).await, "progress")?;
        assert_eq!(error.class, ErrorClass::Fenced);
    }
    assert_eq!(f.store.acquire(&f.position(0)).await?.commits, 2);
    Ok(())
}
