//! Dead letters that an operator has changed.

use bytes::Bytes;
use oncebox_core::error::BoxError;
use oncebox_core::message::Headers;
use oncebox_core::store::{DeadLetters, LetterContent, Store, StoredDeadLetter};

use super::fixture::{Fixture, all, letter};
use super::pass::now_ms;
use super::subject::{Subject, Verdict};

fn content(payload: Option<&'static str>, key: Option<&'static str>) -> LetterContent {
    let headers: Headers = [("trace", Some(Bytes::from("1"))), ("none", None)].into_iter().collect();
    LetterContent { key: key.map(Bytes::from), payload: payload.map(Bytes::from), headers }
}

async fn one_letter<T: Subject>() -> Result<(Fixture<T>, StoredDeadLetter), BoxError> {
    let f = Fixture::<T>::start().await?;
    let mut parked = letter(Some("a"), 1);
    parked.record.key = Some(Bytes::from_static(&[0, 0xff]));
    parked.record.headers.push("x", Some(Bytes::from_static(&[1, 0xfe])));
    f.park(&[parked]).await?;
    let stored = f.letters().await?.pop().ok_or("no letter")?;
    assert_eq!(stored.edit, None);
    Ok((f, stored))
}

/// What arrived stays beside the letter, however often that is changed.
pub async fn an_edited_letter_keeps_what_arrived<T: Subject>() -> Verdict {
    let (f, stored) = one_letter::<T>().await?;
    let arrived = LetterContent::of(&stored.letter.record);
    let edits = [content(Some("{\"qty\":1}"), Some("red")), content(None, None), content(Some(""), Some(""))];
    for (times, wanted) in (0..).zip(&edits) {
        assert!(f.store.edit_dead(stored.number, times, wanted, "cli:ana's").await?);
        let now = f.store.dead_letter(stored.number).await?.ok_or("the letter is not there")?;
        assert_eq!(LetterContent::of(&now.letter.record), *wanted);
        let edit = now.edit.ok_or("it is changed")?;
        assert_eq!((&edit.original, edit.times, edit.by.as_str()), (&arrived, times + 1, "cli:ana's"));
        assert!((now_ms() - edit.at_ms).abs() < 60_000, "{}", edit.at_ms);
        assert_eq!(
            (now.letter.error, now.letter.message_id),
            (stored.letter.error.clone(), Some("a".to_owned()))
        );
    }
    let listed = f.store.dead_letters(&all()).await?;
    assert_eq!((listed.len(), listed[0].edited), (1, true));
    Ok(())
}

/// Who has looked before somebody else changed it does not write over that.
pub async fn an_edit_of_what_has_changed_is_refused<T: Subject>() -> Verdict {
    let (f, stored) = one_letter::<T>().await?;
    let (first, second) = (content(Some("first"), None), content(Some("second"), None));
    assert!(!f.store.edit_dead(stored.number, 1, &first, "ana").await?);
    assert!(f.store.edit_dead(stored.number, 0, &first, "ana").await?);
    assert!(!f.store.edit_dead(stored.number, 0, &second, "ben").await?);
    assert!(!f.store.edit_dead(stored.number + 1, 0, &second, "ben").await?, "there is no such letter");
    let now = f.store.dead_letter(stored.number).await?.ok_or("the letter is not there")?;
    assert_eq!(now.letter.record.payload.as_deref(), Some(b"first".as_slice()));
    Ok(())
}

/// A replay gets what it was changed to. One that is rolled back leaves both.
pub async fn an_edited_letter_is_taken_as_it_is_now<T: Subject>() -> Verdict {
    let (f, stored) = one_letter::<T>().await?;
    let wanted = content(Some("mended"), Some("red"));
    assert!(f.store.edit_dead(stored.number, 0, &wanted, "ana").await?);
    let (txn, taken) = f.store.take_dead(stored.number).await?.ok_or("it is gone")?;
    assert_eq!(LetterContent::of(&taken.letter.record), wanted);
    assert_eq!(taken.edit.map(|edit| edit.original), Some(LetterContent::of(&stored.letter.record)));
    f.store.rollback(txn).await;
    let left = f.store.dead_letter(stored.number).await?.ok_or("it is gone")?;
    assert_eq!(left.edit.map(|edit| edit.original), Some(LetterContent::of(&stored.letter.record)));
    let (txn, _) = f.store.take_dead(stored.number).await?.ok_or("it is gone")?;
    f.store.commit(txn, None).await?;
    assert!(f.letters().await?.is_empty());
    Ok(())
}
