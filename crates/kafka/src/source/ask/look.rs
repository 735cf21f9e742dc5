//! Asks one broker about the partitions that it leads.

use std::collections::BTreeSet;

use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};

use super::{ANSWER_TIMEOUT, About, Asked, Clients, Seen};
use crate::ends::{Committed, End, Offsets, Place, committed, ends};
use crate::log_ids::{LogIds, log_ids, log_of};

/// The most topics that are looked at anew after one question.
const MAX_TOPICS: usize = 16;

/// What the broker says about each of them.
pub(super) fn look(
    clients: &Clients,
    about: About,
    partitions: Vec<Asked>,
) -> Vec<(Asked, KafkaResult<Seen>)> {
    let places: Vec<&Place> = partitions.iter().map(|one| &one.place).collect();
    let found = ask(clients, about, &places);
    let seen = |one: &Asked| found.as_ref().map_err(Clone::clone).and_then(|found| found.about(&one.place));
    let seen: Vec<KafkaResult<Seen>> = partitions.iter().map(seen).collect();
    if found.is_ok() {
        remember_anew(clients, partitions.iter().zip(&seen));
    }
    partitions.into_iter().zip(seen).collect()
}

/// librdkafka remembers for minutes who leads, and how many partitions there are. When that was of no use, it looks again, so that the
/// next question finds the leader of then.
fn remember_anew<'a>(clients: &Clients, seen: impl Iterator<Item = (&'a Asked, &'a KafkaResult<Seen>)>) {
    let failed = seen.filter(|(_, seen)| seen.is_err());
    let topics: BTreeSet<&str> = failed.map(|(one, _)| &*one.place.0).collect();
    for topic in topics.into_iter().take(MAX_TOPICS) {
        for client in [Some(&clients.asking), clients.stable.as_ref()].into_iter().flatten() {
            // Only to be remembered.
            client.fetch_metadata(Some(topic), ANSWER_TIMEOUT).ok();
        }
    }
}

struct Found {
    committed: Option<Committed>,
    lows: Option<Offsets>,
    highs: Offsets,
    logs: LogIds,
}

fn ask(clients: &Clients, about: About, places: &[&Place]) -> KafkaResult<Found> {
    let asking = &*clients.asking;
    let at_the_end = clients.stable.as_deref().filter(|_| about == About::Begin).unwrap_or(asking);
    let begins = about == About::Begin;
    let committed = begins.then(|| committed(asking, places, ANSWER_TIMEOUT)).transpose()?;
    let wants_lows = about != About::Survey;
    let lows = wants_lows.then(|| ends(asking, places, End::Oldest, ANSWER_TIMEOUT)).transpose()?;
    let highs = ends(at_the_end, places, End::Newest, ANSWER_TIMEOUT)?;
    // Last: see `Seen::log`.
    let topics: BTreeSet<&str> = places.iter().map(|(topic, _)| &**topic).collect();
    let logs = log_ids(asking.client(), &topics.into_iter().collect::<Vec<_>>(), ANSWER_TIMEOUT)?;
    Ok(Found { committed, lows, highs, logs })
}

impl Found {
    fn about(&self, place: &Place) -> KafkaResult<Seen> {
        let unanswered = || Err(KafkaError::OffsetFetch(RDKafkaErrorCode::UnknownPartition));
        let known = |offsets: &Offsets| offsets.get(place).cloned().unwrap_or_else(unanswered);
        let committed = self.committed.as_ref().and_then(|offsets| offsets.get(place).cloned());
        Ok(Seen {
            low: self.lows.as_ref().map(known).transpose()?,
            high: known(&self.highs)?,
            committed: committed.transpose()?.flatten(),
            log: log_of(&place.0, &self.logs)?,
        })
    }
}
