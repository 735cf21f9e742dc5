//! Dead letters that failed alike.

use bytes::Bytes;
use oncebox_core::error::BoxError;
use oncebox_core::names::ConsumerName;
use oncebox_core::operate;
use oncebox_core::store::{DeadFilter, DeadGroup, DeadLetter, DeadLetters, Status, Store, error_group};

use super::fixture::{Fixture, all, letter};
use super::pass::now_ms;
use super::subject::{Subject, Verdict};

const MOST: u64 = 100;

fn failed(id: &str, offset: i64, key: Option<&'static str>, error: &str) -> DeadLetter {
    let mut letter = letter(Some(id), offset);
    letter.record.key = key.map(Bytes::from);
    letter.error = error.to_owned();
    letter
}

/// Three that failed alike with two keys, and one that did not.
async fn two_groups<T: Subject>() -> Result<Fixture<T>, BoxError> {
    let f = Fixture::<T>::start().await?;
    f.park(&[
        failed("a", 1, Some("red"), "order 1: no such article \"A-1\""),
        failed("b", 2, Some("blue"), "order 2: no such article \"B-2\""),
        failed("c", 3, None, "the warehouse says 'no'"),
        failed("d", 4, Some("red"), "order 44: no such article \"C\""),
    ])
    .await?;
    Ok(f)
}

async fn groups<T: Subject>(f: &Fixture<T>, consumer: Option<&str>) -> Result<Vec<DeadGroup>, BoxError> {
    let mut groups = f.store.dead_groups(consumer, 100, MOST).await?;
    groups.sort_by_key(|group| group.newest);
    Ok(groups)
}

/// A group has its letters, its keys, and the error of the newest.
pub async fn letters_that_failed_alike_are_a_group<T: Subject>() -> Verdict {
    let f = two_groups::<T>().await?;
    let letters = f.store.dead_letters(&all()).await?;
    let found = groups(&f, None).await?;
    let [other, alike] = found.as_slice() else { return Err(format!("expected two: {found:?}").into()) };
    assert_eq!(alike.group, error_group("stock", "order 0: no such article \"\""));
    assert_eq!((alike.letters, alike.keys, alike.newest), (3, 2, letters[3].number));
    assert_eq!((alike.consumer.as_str(), alike.error.as_str()), ("stock", letters[3].error.as_str()));
    assert_eq!((alike.first_ms, alike.last_ms), (letters[0].failed_at_ms, letters[3].failed_at_ms));
    assert_eq!((other.letters, other.keys, other.newest), (1, 0, letters[2].number));
    assert!(letters.iter().all(|letter| letter.group() == alike.group || letter.group() == other.group));
    Ok(())
}

/// Two consumers that fail alike are two groups.
pub async fn groups_are_of_one_consumer<T: Subject>() -> Verdict {
    let f = two_groups::<T>().await?;
    let billing = ConsumerName::new("billing")?;
    let mut txn = f.store.claim(&billing, &[]).await?.txn;
    let same = failed("a", 1, None, "order 1: no such article \"A-1\"");
    f.store.park(&mut txn, &billing, &[same]).await?;
    f.store.commit(txn, None).await?;
    assert_eq!(groups(&f, None).await?.len(), 3);
    assert_eq!(groups(&f, Some("stock")).await?.len(), 2);
    let of_billing = groups(&f, Some("billing")).await?;
    assert_eq!(of_billing.len(), 1, "{of_billing:?}");
    assert_eq!((of_billing[0].consumer.as_str(), of_billing[0].letters), ("billing", 1));
    assert!(groups(&f, Some("nobody")).await?.is_empty());
    Ok(())
}

/// Groups and their letters are counted up to a cap, and no further.
pub async fn groups_are_bounded<T: Subject>() -> Verdict {
    let f = two_groups::<T>().await?;
    let capped = f.store.dead_groups(None, 100, 2).await?;
    let mut counts: Vec<u64> = capped.iter().map(|group| group.letters).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
    assert_eq!(f.store.dead_groups(None, 1, MOST).await?.len(), 1);
    assert!(f.store.dead_groups(None, 0, MOST).await?.is_empty());
    Ok(())
}

/// Letters are found by their group, by what their error says and by their time, from either end.
pub async fn letters_are_found_by_what_failed<T: Subject>() -> Verdict {
    let f = two_groups::<T>().await?;
    let letters = f.store.dead_letters(&all()).await?;
    let numbers: Vec<i64> = letters.iter().map(|letter| letter.number).collect();
    let group = Some(letters[0].group());
    let text = |text: &str| Some(text.to_owned());
    let newest = DeadFilter { newest_first: true, ..all() };
    let reversed: Vec<i64> = numbers.iter().rev().copied().collect();
    let now = now_ms();
    let cases: Vec<(DeadFilter, Vec<i64>)> = vec![
        (DeadFilter { group: group.clone(), ..all() }, vec![numbers[0], numbers[1], numbers[3]]),
        (DeadFilter { group: group.clone(), ..newest.clone() }, vec![numbers[3], numbers[1], numbers[0]]),
        (DeadFilter { group, before: Some(numbers[3]), limit: 1, ..newest.clone() }, vec![numbers[1]]),
        (DeadFilter { group: text("000000000000"), ..all() }, vec![]),
        (DeadFilter { error: text("no such article"), ..all() }, vec![numbers[0], numbers[1], numbers[3]]),
        (DeadFilter { error: text("says 'no'"), ..all() }, vec![numbers[2]]),
        (DeadFilter { error: text("No Such"), ..all() }, vec![]),
        (DeadFilter { error: text("%"), ..all() }, vec![]),
        (newest.clone(), reversed.clone()),
        (DeadFilter { before: Some(numbers[2]), ..newest.clone() }, reversed[2..].to_vec()),
        (DeadFilter { after: numbers[0], before: Some(numbers[3]), ..all() }, numbers[1..3].to_vec()),
        (DeadFilter { failed_from_ms: Some(now - 600_000), ..all() }, numbers.clone()),
        (DeadFilter { failed_from_ms: Some(now + 600_000), ..all() }, vec![]),
        (DeadFilter { failed_until_ms: Some(now - 600_000), ..all() }, vec![]),
        (DeadFilter { failed_until_ms: Some(now + 600_000), ..all() }, numbers.clone()),
    ];
    for (filter, wanted) in cases {
        let found: Vec<i64> = f.store.dead_letters(&filter).await?.iter().map(|l| l.number).collect();
        assert_eq!(found, wanted, "{filter:?}");
    }
    let of_group = DeadFilter { group: Some(letters[2].group()), ..all() };
    assert_eq!(f.store.drop_dead(&of_group).await?, 1);
    assert_eq!(groups(&f, None).await?.len(), 1, "a group without letters is none");
    Ok(())
}

/// A page has the newest letters that fit, and says where the next one begins.
pub async fn a_page_of_letters_goes_on<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let letters: Vec<DeadLetter> = (0..25_i64)
        .map(|n| failed(&format!("m{n}"), n, None, if n % 5 == 0 { "odd" } else { "even" }))
        .collect();
    f.park(&letters).await?;
    let patience = std::time::Duration::from_secs(60);
    let mut filter = DeadFilter { error: Some("odd".to_owned()), limit: 2, ..DeadFilter::default() };
    let mut found = Vec::new();
    for _ in 0..10 {
        let page = operate::page(&f.store, &filter, patience).await?;
        assert!(page.letters.len() <= 2);
        found.extend(page.letters.into_iter().map(|letter| letter.offset));
        filter.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(found, [20, 15, 10, 5, 0]);
    Ok(())
}

/// Letters that an older oncebox has written get their group in steps.
pub async fn letters_without_a_group_get_one<T: Subject>() -> Verdict {
    let f = two_groups::<T>().await?;
    assert_eq!(f.store.group_letters(100).await?, 0, "they have theirs");
    let before = groups(&f, None).await?;
    f.subject.forget_groups().await?;
    let mut grouped = 0;
    for _ in 0..10 {
        grouped += f.store.group_letters(3).await?;
    }
    // The model tells the group of a letter by its error.
    assert!(grouped == 4 || grouped == 0, "{grouped}");
    assert_eq!(groups(&f, None).await?, before);
    Ok(())
}

/// The status counts replays, also of a consumer that has nothing else.
pub async fn replays_are_counted<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    for _ in 0..3 {
        f.store.count_replay(&f.consumer).await?;
    }
    f.store.count_replay(&ConsumerName::new("billing")?).await?;
    let status = f.store.status(10).await?;
    let mut replayed: Vec<_> =
        status.consumers.iter().map(|status| (status.consumer.as_str(), status.replayed)).collect();
    replayed.sort_unstable();
    assert_eq!(replayed, [("billing", 1), ("stock", 3)]);
    Ok(())
}
