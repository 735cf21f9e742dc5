//! What a replay would do, as far as looking tells.

use std::collections::HashSet;

use super::replay::{Letters, ReplayOrder, Target};
use crate::inbox::OnFailure;
use crate::names::ConsumerName;
use crate::store::{DeadFilter, DeadLetters, DeadSummary, Find, StoreResult};

/// How many earlier letters of a key are looked at.
const MAX_EARLIER: u32 = 100;

/// What would become of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Would {
    /// The handler would run. Whether it succeeds, nobody knows before.
    Run,
    /// Its message has no id in the letter, but one now, and was applied under that: the letter would only be removed.
    BeAlreadyApplied,
    /// It would have to wait for an earlier letter of its key, which is not among those that are replayed.
    BeBehind(i64),
    /// It would fail before the handler runs, for this reason.
    Fail(String),
}

impl Would {
    /// A word for it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::BeAlreadyApplied => "already applied",
            Self::BeBehind(_) => "behind",
            Self::Fail(_) => "fail",
        }
    }
}

/// What a replay would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DryRun {
    /// The letters, in the order in which they would be replayed.
    pub letters: Vec<(DeadSummary, Would)>,
    /// Whether there are more than these.
    pub more: bool,
}

impl DryRun {
    /// How many would end so.
    #[must_use]
    pub fn count(&self, word: &str) -> usize {
        self.letters.iter().filter(|(_, would)| would.as_str() == word).count()
    }
}

/// Looks at the letters that a replay would take, up to `most`. Nothing is changed, and no handler runs.
pub async fn dry_run<S: DeadLetters + Find, A>(
    store: &S,
    targets: &[Target<A>],
    order: &ReplayOrder,
    most: usize,
) -> StoreResult<DryRun> {
    let mut letters = Letters::new(store, &order.filter, order.at_most).await?;
    let (mut dry, mut would_go) = (DryRun::default(), HashSet::new());
    while let Some(letter) = letters.next().await? {
        if dry.letters.len() == most {
            dry.more = true;
            break;
        }
        let would = would(store, targets, order, &letter, &would_go).await?;
        if matches!(would, Would::Run | Would::BeAlreadyApplied) {
            would_go.insert(letter.number);
        }
        dry.letters.push((letter, would));
    }
    Ok(dry)
}

async fn would<S: DeadLetters + Find, A>(
    store: &S,
    targets: &[Target<A>],
    order: &ReplayOrder,
    letter: &DeadSummary,
    would_go: &HashSet<i64>,
) -> StoreResult<Would> {
    let target = targets.iter().find(|target| target.consumer.as_str() == letter.consumer);
    let Some(target) = target else {
        return Ok(Would::Fail(format!("no [[inbox]] has the consumer {}", letter.consumer)));
    };
    let in_order = target.on_failure == OnFailure::ParkKey && !order.force;
    if in_order
        && letter.key.is_some()
        && let Some(first) = earlier(store, letter, would_go).await?
    {
        return Ok(Would::BeBehind(first));
    }
    if letter.message_id.is_some() {
        return Ok(Would::Run);
    }
    without_id(store, target, letter).await
}

/// The first letter of the key that would still be there.
async fn earlier<S: DeadLetters>(
    store: &S,
    letter: &DeadSummary,
    would_go: &HashSet<i64>,
) -> StoreResult<Option<i64>> {
    // A list has only the beginning of a key.
    let Some(whole) = store.dead_letter(letter.number).await? else { return Ok(None) };
    let of_key = DeadFilter {
        consumer: Some(letter.consumer.clone()),
        topic: Some(letter.topic.clone()),
        key: whole.letter.record.key.map(|key| key.to_vec()),
        before: Some(letter.number),
        limit: MAX_EARLIER,
        ..DeadFilter::default()
    };
    let earlier = store.dead_letters(&of_key).await?;
    let stays =
        |other: &&DeadSummary| other.partition == letter.partition && !would_go.contains(&other.number);
    Ok(earlier.iter().find(stays).map(|other| other.number))
}

async fn without_id<S: DeadLetters + Find, A>(
    store: &S,
    target: &Target<A>,
    letter: &DeadSummary,
) -> StoreResult<Would> {
    let Some(whole) = store.dead_letter(letter.number).await? else { return Ok(Would::BeAlreadyApplied) };
    let consumer: &ConsumerName = &target.consumer;
    match target.identity.identify(whole.letter.record) {
        Err(unfit) => Ok(Would::Fail(unfit.reason)),
        Ok(message) => {
            let receipt = store.receipt(consumer, message.tenant(), message.id()).await?;
            Ok(if receipt.is_some() { Would::BeAlreadyApplied } else { Would::Run })
        }
    }
}
