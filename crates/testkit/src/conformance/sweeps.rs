//! Sweeps: the rows of a query become events, each once in a while.

use std::collections::BTreeSet;
use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{ErrorClass, OutboxAdmin, StoreResult, Sweep};
use serde_json::{Value, json};

use super::fixture::refused;
use super::relaying::{HOUR, Relaying};
use super::subject::{Subject, SweepQuery, Verdict};

/// One event for each id among the effects, with how often it is there.
fn sweep<T: Subject>() -> Sweep {
    Sweep {
        name: "repeated".to_owned(),
        query: T::sweep_query(SweepQuery::EachId),
        row_key: "id".to_owned(),
        window: HOUR,
        topic: "found".to_owned(),
        event_key: None,
        limit: 100,
    }
}

/// A row becomes a JSON object with a field for each column, under the key that a column names.
pub async fn rows_of_a_sweep_become_events<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 0, "no rows, no events");
    add_effects(&r, &["'a' \u{1F980}", "b"]).await?;
    r.inner.apply(&["c"]).await?;
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 3);
    let keyed = Sweep { name: "keyed".to_owned(), event_key: Some("id".to_owned()), ..sweep::<T>() };
    assert_eq!(r.store.sweep(&Sweep { topic: "keyed".to_owned(), ..keyed }).await?, 3);

    let expected: Vec<Value> =
        ["'a' \u{1F980}", "b", "c"].iter().map(|id| json!({"id": id, "n": 1, "gone": null})).collect();
    for topic in ["found", "keyed"] {
        let events = r.next(topic).await?;
        let mut rows = Vec::new();
        for event in &events {
            let row: Value = serde_json::from_slice(event.payload.as_deref().unwrap_or_default())?;
            let key = (topic == "keyed").then(|| row["id"].as_str().unwrap_or_default().as_bytes());
            assert_eq!(event.key.as_deref(), key);
            rows.push(row);
        }
        rows.sort_by_key(|row| row["id"].to_string());
        assert_eq!(rows, expected);
        let ids: BTreeSet<_> = events.iter().map(|event| event.id).collect();
        assert_eq!(ids.len(), 3, "each event has an id of its own");
    }
    Ok(())
}

/// A row becomes an event once in its window, and again after it; what is new comes at once.
pub async fn a_sweep_emits_a_row_once_in_its_window<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    add_effects(&r, &["a", "b"]).await?;
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 2);
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 0);
    // The row has changed, but its key has not.
    add_effects(&r, &["a", "c"]).await?;
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 1);
    // Nobody forgets it too early.
    r.store.purge_published(Duration::ZERO).await?;
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 0);
    let other = Sweep { name: "other".to_owned(), ..sweep::<T>() };
    assert_eq!(r.store.sweep(&other).await?, 3, "a sweep of another name has windows of its own");
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 0);
    assert_eq!(r.next("found").await?.len(), 6);
    Ok(())
}

/// When its window is over, a row that is still there becomes an event again, and a new window begins.
pub async fn a_sweep_emits_a_row_again_after_its_window<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    add_effects(&r, &["a", "b"]).await?;
    let short = Sweep { window: Duration::from_millis(50), ..sweep::<T>() };
    assert_eq!(r.store.sweep(&short).await?, 2);
    tokio::time::sleep(2 * short.window).await;
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 2);
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 0);
    assert_eq!(found_ids(&r).await?, ["a", "a", "b", "b"]);
    let ids: BTreeSet<_> = r.next("found").await?.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), 4, "another event, not a copy of the first");
    Ok(())
}

/// One run emits no more than its limit; the next go on with the rest.
pub async fn a_sweep_is_bounded<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    add_effects(&r, &["a", "b", "c", "d", "e"]).await?;
    let two = Sweep { limit: 2, ..sweep::<T>() };
    for expected in [2, 2, 1, 0] {
        assert_eq!(r.store.sweep(&two).await?, expected);
    }
    assert_eq!(found_ids(&r).await?, ["a", "b", "c", "d", "e"]);
    Ok(())
}

/// Rows with the same key are the same row.
pub async fn a_sweep_emits_a_repeated_row_once<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    add_effects(&r, &["a", "b", "a", "a"]).await?;
    let every_row = Sweep { query: T::sweep_query(SweepQuery::EachEffect), ..sweep::<T>() };
    assert_eq!(r.store.sweep(&every_row).await?, 2);
    assert_eq!(found_ids(&r).await?, ["a", "b"]);
    Ok(())
}

/// Processes that sweep at the same time emit each row once between them.
pub async fn sweeps_are_safe_at_the_same_time<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    let names: Vec<String> = (0..60).map(|n| format!("row {n:02}")).collect();
    add_effects(&r, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let mut running = Vec::new();
    for _ in 0..4 {
        let store = r.inner.subject.connect().await?;
        running.push(tokio::spawn(async move {
            loop {
                match store.sweep(&sweep::<T>()).await {
                    Err(error) if error.class == ErrorClass::Transient => {}
                    done => return done,
                }
            }
        }));
    }
    let mut emitted = 0;
    for process in running {
        emitted += process.await??;
    }
    assert_eq!(emitted, 60);
    assert_eq!(found_ids(&r).await?, names);
    Ok(())
}

/// A query that cannot work is an error that says why, before and when it runs, and leaves nothing behind.
pub async fn a_wrong_sweep_is_an_error_that_names_it<T: Subject>() -> Verdict {
    let r = Relaying::<T>::start().await?;
    add_effects(&r, &["a"]).await?;
    let wrong = [
        (Sweep { row_key: "no_such_column".to_owned(), ..sweep::<T>() }, "no_such_column"),
        (Sweep { event_key: Some("no_such_key".to_owned()), ..sweep::<T>() }, "no_such_key"),
        (Sweep { query: T::sweep_query(SweepQuery::Refused), ..sweep::<T>() }, "missing"),
        (Sweep { query: T::sweep_query(SweepQuery::OfNoTable), ..sweep::<T>() }, "no_such_table"),
    ];
    for (sweep, named) in wrong {
        assert_names(r.store.check_sweep(&sweep).await, named)?;
        assert_names(r.store.sweep(&sweep).await, named)?;
    }
    assert!(r.next("found").await?.is_empty());

    r.store.check_sweep(&sweep::<T>()).await?;
    assert!(r.next("found").await?.is_empty(), "a check emits nothing");
    assert_eq!(r.store.sweep(&sweep::<T>()).await?, 1, "and remembers nothing");
    Ok(())
}

fn assert_names<R>(result: StoreResult<R>, named: &str) -> Verdict {
    let error = refused(result, named)?;
    let text = oncebox_core::error::describe_whole(&error);
    assert!(text.contains(named), "{text:?} does not name {named}");
    Ok(())
}

async fn add_effects<T: Subject>(r: &Relaying<T>, ids: &[&str]) -> Verdict {
    use oncebox_core::store::Store;
    let mut txn = r.store.claim(&r.inner.consumer, &[]).await?.txn;
    for id in ids {
        T::add_effect(&mut txn, id).await?;
    }
    Ok(r.store.commit(txn, None).await?)
}

/// The ids in the events that were found, sorted.
async fn found_ids<T: Subject>(r: &Relaying<T>) -> Result<Vec<String>, BoxError> {
    let mut ids = Vec::new();
    for event in r.next("found").await? {
        let row: Value = serde_json::from_slice(event.payload.as_deref().unwrap_or_default())?;
        ids.push(row["id"].as_str().unwrap_or_default().to_owned());
    }
    ids.sort_unstable();
    Ok(ids)
}
