//! What operators do with many letters at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use oncebox_core::error::BoxError;
use oncebox_core::inbox::{Apply, Failure, Identity, OnFailure, Selector};
use oncebox_core::message::Message;
use oncebox_core::operate::{
    Edited, Operator, ReplayCounts, ReplayOrder, ReplayReport, Target, Would, dry_run,
};
use oncebox_core::store::{
    Audit, AuditEntry, AuditFilter, DeadFilter, DeadLetter, DeadLetters, LetterContent, Status,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fixture::{Fixture, all, letter};
use super::subject::{Conn, Subject, Verdict};

/// Adds the id to the effects, unless the payload says `bad`.
struct AddEffect<T>(std::marker::PhantomData<fn() -> T>);

impl<T: Subject> Apply<T::Store> for AddEffect<T> {
    async fn apply(&self, conn: &mut Conn<T>, fresh: &[Message]) -> Result<(), Failure> {
        for message in fresh {
            if message.payload() == Some(b"bad") {
                return Err(Failure::of_batch(format!("order {}: no such article", message.id())));
            }
            T::add_effect(conn, message.id().as_str()).await.map_err(Failure::of_batch)?;
        }
        Ok(())
    }
}

fn targets<T: Subject>(f: &Fixture<T>, on_failure: OnFailure) -> Vec<Target<AddEffect<T>>> {
    vec![Target {
        consumer: f.consumer.clone(),
        identity: Identity::new(Selector::Header("id".to_owned()), None),
        on_failure,
        handler: AddEffect(std::marker::PhantomData),
    }]
}

fn payload(id: &str, offset: i64, payload: &'static str) -> DeadLetter {
    let mut letter = letter(Some(id), offset);
    letter.record.payload = Some(Bytes::from(payload));
    letter
}

async fn good<T: Subject>(count: i64) -> Result<Fixture<T>, BoxError> {
    let f = Fixture::<T>::start().await?;
    let letters: Vec<DeadLetter> = (0..count).map(|n| payload(&format!("m{n}"), n, "good")).collect();
    f.park(&letters).await?;
    Ok(f)
}

async fn replay<T: Subject>(
    f: &Fixture<T>,
    order: &ReplayOrder,
    on_failure: OnFailure,
) -> Result<ReplayReport, BoxError> {
    let operator = Operator::new(&f.store, "cli:ana");
    Ok(operator.replay(&targets(f, on_failure), order, &CancellationToken::new(), &|_| {}).await?)
}

async fn last_action<T: Subject>(f: &Fixture<T>) -> Result<AuditEntry, BoxError> {
    let newest = AuditFilter { limit: 1, ..AuditFilter::default() };
    Ok(f.store.actions(&newest).await?.pop().ok_or("nothing is in the audit")?)
}

/// Each letter ends in one of the counts, and the audit has them.
pub async fn a_bulk_replay_tells_what_became_of_each<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.apply(&["known"]).await?;
    let mut copy = letter(None, 9);
    copy.record.headers.push("id", Some("known".into()));
    f.park(&[payload("a", 1, "good"), payload("b", 2, "bad"), payload("c", 3, "good"), copy]).await?;

    let order = ReplayOrder::default();
    let dry = dry_run(&f.store, &targets(&f, OnFailure::Park), &order, 100).await?;
    let would: Vec<&Would> = dry.letters.iter().map(|(_, would)| would).collect();
    assert_eq!(would, [&Would::Run, &Would::Run, &Would::Run, &Would::BeAlreadyApplied]);
    assert_eq!(
        (f.letters().await?.len(), f.subject.effects().await?.len()),
        (4, 1),
        "a dry run changes nothing"
    );

    let report = replay(&f, &order, OnFailure::Park).await?;
    let counts = ReplayCounts { applied: 2, already_applied: 1, failed: 1, ..ReplayCounts::default() };
    assert_eq!((report.counts, report.stopped), (counts, false));
    let [failure] = report.failures.as_slice() else { return Err(format!("{report:?}").into()) };
    let left = f.letters().await?;
    assert_eq!((left.len(), failure.number), (1, left[0].number));
    assert!(failure.reason.contains("order b: no such article"), "{failure:?}");
    assert_eq!(f.subject.effects().await?, ["known", "a", "c"]);
    let entry = last_action(&f).await?;
    assert_eq!((entry.who.as_str(), entry.action.as_str()), ("cli:ana", "replay"));
    assert_eq!(entry.result, Some(counts.as_json()));
    assert!(entry.ended_at_ms.is_some());
    let status = f.store.status(10).await?;
    let of_stock = status.consumers.iter().find(|status| status.consumer == "stock");
    assert_eq!(of_stock.map(|status| status.replayed), Some(2));
    Ok(())
}

/// A limit takes the oldest, and a rate takes its time.
pub async fn a_bulk_replay_keeps_its_limit_and_its_rate<T: Subject>() -> Verdict {
    let f = good::<T>(8).await?;
    let group = f.store.dead_letters(&all()).await?.first().ok_or("no letter")?.group();
    let filter = DeadFilter { group: Some(group), ..DeadFilter::default() };
    let began = Instant::now();
    let order = ReplayOrder { filter, at_most: Some(5), per_second: Some(20), force: false };
    let report = replay(&f, &order, OnFailure::Park).await?;
    assert_eq!(report.counts.applied, 5);
    assert!(began.elapsed() >= Duration::from_millis(195), "{:?}", began.elapsed());
    assert_eq!(f.subject.effects().await?, ["m0", "m1", "m2", "m3", "m4"]);
    assert_eq!(f.letters().await?.len(), 3);
    let parameters = last_action(&f).await?.parameters;
    assert_eq!((&parameters["at_most"], &parameters["per_second"]), (&json!(5), &json!(20)));
    Ok(())
}

/// After it is told to stop, the letter in flight ends, and no other begins.
pub async fn a_bulk_replay_can_be_stopped<T: Subject>() -> Verdict {
    let f = good::<T>(10).await?;
    let stop = CancellationToken::new();
    let seen = Mutex::new(Vec::new());
    let progress = |counts: &ReplayCounts| {
        seen.lock().expect("nobody panics").push(counts.applied);
        if counts.applied == 4 {
            stop.cancel();
        }
    };
    let operator = Operator::new(&f.store, "cli:ana");
    let report =
        operator.replay(&targets(&f, OnFailure::Park), &ReplayOrder::default(), &stop, &progress).await?;
    assert!(report.stopped);
    assert_eq!(report.counts.applied, 4);
    assert_eq!(*seen.lock().expect("nobody panics"), [1, 2, 3, 4]);
    assert_eq!((f.subject.effects().await?.len(), f.letters().await?.len()), (4, 6));
    assert_eq!(last_action(&f).await?.result.unwrap_or_default()["stopped"], true);
    Ok(())
}

/// Two who replay the same letters apply each once.
pub async fn two_bulk_replays_apply_each_letter_once<T: Subject>() -> Verdict {
    let f = good::<T>(30).await?;
    let applied = AtomicU64::new(0);
    let one = async || -> Result<(), BoxError> {
        let operator = Operator::new(&f.subject.connect().await?, "cli:one");
        let (order, stop) = (ReplayOrder::default(), CancellationToken::new());
        let report = operator.replay(&targets(&f, OnFailure::Park), &order, &stop, &|_| {}).await?;
        assert_eq!(report.counts.failed, 0, "{report:?}");
        applied.fetch_add(report.counts.applied, Ordering::Relaxed);
        Ok(())
    };
    let (first, second) = tokio::join!(one(), one());
    first?;
    second?;
    assert_eq!(applied.into_inner(), 30);
    let mut effects = f.subject.effects().await?;
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 30);
    assert!(f.letters().await?.is_empty());
    Ok(())
}

/// Under `park-key` no letter passes an earlier one of its key that stays.
pub async fn a_bulk_replay_keeps_the_order_of_a_key<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    let keyed = |id: &str, offset, text| {
        let mut letter = payload(id, offset, text);
        letter.record.key = Some(Bytes::from("red"));
        letter
    };
    f.park(&[keyed("a", 1, "bad"), keyed("b", 2, "good"), payload("c", 3, "good")]).await?;
    let letters = f.store.dead_letters(&all()).await?;
    let second = DeadFilter { numbers: vec![letters[1].number], ..DeadFilter::default() };
    let order = ReplayOrder { filter: second, ..ReplayOrder::default() };
    let dry = dry_run(&f.store, &targets(&f, OnFailure::ParkKey), &order, 100).await?;
    assert_eq!(dry.letters.first().map(|(_, would)| would), Some(&Would::BeBehind(letters[0].number)));

    let report = replay(&f, &ReplayOrder::default(), OnFailure::ParkKey).await?;
    assert_eq!((report.counts.applied, report.counts.failed, report.counts.behind), (1, 1, 1), "{report:?}");
    assert_eq!(f.subject.effects().await?, ["c"]);
    let forced = replay(&f, &ReplayOrder { force: true, ..order }, OnFailure::ParkKey).await?;
    assert_eq!(forced.counts.applied, 1, "{forced:?}");
    Ok(())
}

/// A letter is changed, replayed as it is then, and the audit holds neither content.
pub async fn a_mended_letter_is_replayed<T: Subject>() -> Verdict {
    let f = Fixture::<T>::start().await?;
    f.park(&[payload("a", 1, "bad")]).await?;
    let stored = f.letters().await?.pop().ok_or("no letter")?;
    let operator = Operator::new(&f.store, "cli:ana");
    let mended = LetterContent {
        payload: Some(Bytes::from("secret and good")),
        ..LetterContent::of(&stored.letter.record)
    };
    assert_eq!(operator.edit(stored.number, 0, &mended).await?, Edited::Done);
    assert_eq!(operator.edit(stored.number, 1, &mended).await?, Edited::Same);
    assert_eq!(operator.edit(stored.number, 0, &mended).await?, Edited::Meanwhile);
    let entry = last_action(&f).await?;
    assert_eq!(
        (entry.action.as_str(), &entry.parameters["changed"]),
        ("edit", &json!({ "payload_bytes": [3, 15] }))
    );
    assert!(!format!("{entry:?}").contains("secret"), "{entry:?}");

    assert_eq!(replay(&f, &ReplayOrder::default(), OnFailure::Park).await?.counts.applied, 1);
    assert_eq!(f.subject.effects().await?, ["a"]);
    assert_eq!(operator.edit(stored.number, 1, &mended).await?, Edited::Gone);
    Ok(())
}

/// Letters are dropped by filter, with the reason in the audit.
pub async fn letters_are_dropped_with_a_reason<T: Subject>() -> Verdict {
    let f = good::<T>(5).await?;
    let operator = Operator::new(&f.store, "cli:ana");
    let one = DeadFilter { message_id: Some("m1".to_owned()), ..DeadFilter::default() };
    let stop = CancellationToken::new();
    assert_eq!(operator.drop_letters(&one, Some("a test order"), &stop).await?, 1);
    let entry = last_action(&f).await?;
    assert_eq!((entry.action.as_str(), &entry.parameters["reason"]), ("drop", &json!("a test order")));
    assert_eq!(entry.result, Some(json!({ "dropped": 1, "stopped": false })));
    assert_eq!(operator.drop_letters(&DeadFilter::default(), None, &stop).await?, 4);
    assert!(f.letters().await?.is_empty());
    Ok(())
}
