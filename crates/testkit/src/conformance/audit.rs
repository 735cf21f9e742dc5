//! Who did what, and what came of it.

use std::time::Duration;

use oncebox_core::error::BoxError;
use oncebox_core::store::{Action, ActionNote, Audit, AuditEntry, AuditFilter};
use serde_json::json;

use super::fixture::Fixture;
use super::pass::{DAY, now_ms};
use super::subject::{Subject, Verdict};

fn newest(limit: u32) -> AuditFilter {
    AuditFilter { limit, ..AuditFilter::default() }
}

async fn only<T: Subject>(f: &Fixture<T>) -> Result<AuditEntry, BoxError> {
    let mut entries = f.subject.connect().await?.actions(&newest(10)).await?;
    match (entries.pop(), entries.is_empty()) {
        (Some(entry), true) => Ok(entry),
        _ => Err("expected one entry".into()),
    }
}

/// An action is there before it is done, then how far it is, then how it ended.
pub async fn an_action_is_written_down<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    assert!(f.store.actions(&newest(10)).await?.is_empty());
    let parameters = json!({ "group": "ab$cd.e", "reason": "it's \"odd\" \u{1f980} $who" });
    let action = Action::by("cli:$ana's", "replay").to("stock").with(parameters.clone());
    let number = f.store.begin_action(&action).await?;
    let begun = only(&f).await?;
    assert_eq!(begun.number, number);
    assert_eq!((begun.who.as_str(), begun.action.as_str()), ("cli:$ana's", "replay"));
    assert_eq!((begun.consumer.as_deref(), &begun.parameters), (Some("stock"), &parameters));
    assert_eq!((begun.ended_at_ms, &begun.result, &begun.error), (None, &None, &None));
    assert!((now_ms() - begun.at_ms).abs() < 60_000, "{}", begun.at_ms);

    f.store.note_action(number, &ActionNote::so_far(json!({ "applied": 3 }))).await?;
    let under_way = only(&f).await?;
    assert_eq!((under_way.ended_at_ms, &under_way.result), (None, &Some(json!({ "applied": 3 }))));

    f.store.note_action(number, &ActionNote::failed("the \"database\" is away")).await?;
    let failed = only(&f).await?;
    assert_eq!(
        (&failed.result, failed.error.as_deref()),
        (&Some(json!({ "applied": 3 })), Some("the \"database\" is away"))
    );
    assert!(failed.ended_at_ms.is_some_and(|ended| ended >= failed.at_ms), "{failed:?}");

    let second = f.store.begin_action(&Action::by("", "purge")).await?;
    f.store.note_action(second, &ActionNote::ended(json!({ "receipts": 7 }))).await?;
    let ended = f.store.actions(&newest(1)).await?.pop().ok_or("nothing")?;
    assert_eq!((ended.number, ended.consumer, ended.parameters), (second, None, json!({})));
    assert_eq!((ended.result, ended.error), (Some(json!({ "receipts": 7 })), None));
    assert!(ended.ended_at_ms.is_some());
    Ok(())
}

/// The newest come first, by filter and in pages.
pub async fn actions_are_found_by_filter<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let mut numbers = Vec::new();
    for (who, action, consumer) in [
        ("ana", "pause", "stock"),
        ("ben", "replay", "stock"),
        ("ana", "replay", "billing"),
        ("ana", "purge", ""),
    ] {
        numbers.push(f.store.begin_action(&Action::by(who, action).to(consumer)).await?);
    }
    assert!(numbers.is_sorted(), "{numbers:?}");
    let text = |text: &str| Some(text.to_owned());
    let all = newest(10);
    let cases: Vec<(AuditFilter, Vec<i64>)> = vec![
        (all.clone(), numbers.iter().rev().copied().collect()),
        (newest(2), vec![numbers[3], numbers[2]]),
        (AuditFilter { before: Some(numbers[2]), ..all.clone() }, vec![numbers[1], numbers[0]]),
        (AuditFilter { who: text("ben"), ..all.clone() }, vec![numbers[1]]),
        (AuditFilter { action: text("replay"), ..all.clone() }, vec![numbers[2], numbers[1]]),
        (AuditFilter { consumer: text("stock"), action: text("replay"), ..all.clone() }, vec![numbers[1]]),
        (AuditFilter { consumer: text("nobody"), ..all.clone() }, vec![]),
        (newest(0), vec![]),
    ];
    for (filter, wanted) in cases {
        let found: Vec<i64> = f.store.actions(&filter).await?.iter().map(|entry| entry.number).collect();
        assert_eq!(found, wanted, "{filter:?}");
    }
    Ok(())
}

/// What is old enough goes, in more than one step, and nothing else.
pub async fn old_actions_are_purged<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    for _ in 0..5 {
        f.store.begin_action(&Action::by("ana", "pause")).await?;
    }
    assert_eq!(f.store.purge_actions(DAY).await?, 0);
    assert_eq!(f.store.actions(&newest(10)).await?.len(), 5);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(f.store.purge_actions(Duration::from_millis(1)).await?, 5);
    assert!(f.store.actions(&newest(10)).await?.is_empty());
    Ok(())
}
