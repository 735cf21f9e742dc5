//! Where logs begin and end, and what a group has committed there: asked for many partitions at once.
//!
//! librdkafka asks all brokers side by side, but answers only when all have answered: one broker that is away, or one partition
//! that nobody leads, costs the answers about all others. So whoever asks about the partitions of several brokers asks about
//! those of each leader apart ([`by_leader`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_kafka_ffi::{Topics, commit_notes, describe_topics};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// Topic and partition.
pub(crate) type Place = (Arc<str>, i32);

/// The most partitions in one request: librdkafka compares each one of the answer with each one of the question.
const MAX_ASKED: usize = 1_000;

/// How often a question is cut in two because of an answer that is an error: librdkafka has one error for all partitions of a
/// question, though the broker has told which one it is about.
const MAX_CUTS: usize = 64;

/// Which end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The oldest offset that is still there.
    Oldest,
    /// One past the newest offset: of those that are committed, if the client reads only these.
    Newest,
}

/// These partitions by the broker that leads them; those without one, or of topics that are not there, with the reason.
#[derive(Debug, Default)]
pub(crate) struct ByLeader<T> {
    pub(crate) led: BTreeMap<i32, Vec<T>>,
    pub(crate) not_led: Vec<(T, KafkaError)>,
}

/// Asks who leads these partitions now. Any broker can tell, of all topics in one answer.
pub(crate) fn by_leader<C: ConsumerContext, T>(
    client: &BaseConsumer<C>,
    asked: Vec<T>,
    place: impl Fn(&T) -> &Place,
    timeout: Duration,
) -> KafkaResult<ByLeader<T>> {
    let names: BTreeSet<&str> = asked.iter().map(|one| &*place(one).0).collect();
    let topics = describe_topics(client.client(), &names.into_iter().collect::<Vec<_>>(), timeout)?;
    let mut sorted = ByLeader { led: BTreeMap::new(), not_led: Vec::new() };
    for one in asked {
        match leader(&topics, place(&one)) {
            Ok(leader) => sorted.led.entry(leader).or_insert_with(Vec::new).push(one),
            Err(reason) => sorted.not_led.push((one, reason)),
        }
    }
    Ok(sorted)
}

fn leader(topics: &Topics, (topic, partition): &Place) -> KafkaResult<i32> {
    let refused = |code| Err(KafkaError::MetadataFetch(code));
    let Some(topic) = topics.get(&**topic) else { return refused(RDKafkaErrorCode::UnknownTopicOrPartition) };
    match topic.as_ref().map_err(Clone::clone)?.leaders.get(partition) {
        Some(Some(leader)) => Ok(*leader),
        Some(None) => refused(RDKafkaErrorCode::LeaderNotAvailable),
        None => refused(RDKafkaErrorCode::UnknownPartition),
    }
}

/// One end of each of these logs. No answer at all is an error; so is none about a single log, in its place.
pub(crate) fn ends<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    places: &[&Place],
    end: End,
    timeout: Duration,
) -> KafkaResult<Offsets> {
    // A time is expected here, and these are the ones that stand for the ends.
    let time = match end {
        End::Oldest => Offset::Beginning,
        End::Newest => Offset::End,
    };
    let unknown = || Err(KafkaError::OffsetFetch(RDKafkaErrorCode::UnknownPartition));
    let found = asked_in_parts(places, time, timeout, |list, left| client.offsets_for_times(list, left))?;
    let offset = |at: Option<Commit>| at.map_or_else(unknown, |at| Ok(at.offset));
    Ok(found.into_iter().map(|(place, at)| (place, at.and_then(offset))).collect())
}

/// What the group of this client has committed in each of these partitions, and whether oncebox has. It does not join.
pub(crate) fn committed<C: ConsumerContext>(
    client: &BaseConsumer<C>,
    places: &[&Place],
    timeout: Duration,
) -> KafkaResult<Committed> {
    asked_in_parts(places, Offset::Invalid, timeout, |list, left| client.committed_offsets(list, left))
}

/// What oncebox writes beside an offset that it commits. Whoever sets an offset by other means leaves it out.
pub(crate) const OURS: &str = "oncebox";

/// An offset that a group has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) offset: i64,
    /// Whether oncebox has.
    pub(crate) ours: bool,
}

/// An offset for each place, or why it is not known.
pub(crate) type Offsets = HashMap<Place, KafkaResult<i64>>;
/// The same where there may be none, with who has set it.
pub(crate) type Committed = HashMap<Place, KafkaResult<Option<Commit>>>;

fn asked_in_parts(
    places: &[&Place],
    with: Offset,
    timeout: Duration,
    ask: impl Fn(TopicPartitionList, Duration) -> KafkaResult<TopicPartitionList>,
) -> KafkaResult<Committed> {
    let deadline = Instant::now() + timeout;
    let ask = |part: &[&Place]| {
        let mut list = TopicPartitionList::with_capacity(part.len());
        for (topic, partition) in part {
            list.add_partition_offset(topic, *partition, with)?;
        }
        ask(list, deadline.saturating_duration_since(Instant::now()))
    };
    let mut found = Committed::with_capacity(places.len());
    let (mut parts, mut cuts) = (places.chunks(MAX_ASKED).collect::<Vec<_>>(), 0);
    while let Some(part) = parts.pop() {
        match ask(part) {
            Ok(answer) => {
                for (element, note) in answer.elements().into_iter().zip(commit_notes(&answer)) {
                    let place = (element.topic().into(), element.partition());
                    let Offset::Offset(offset) = element.offset() else {
                        found.insert(place, element.error().map(|()| None));
                        continue;
                    };
                    let commit = Commit { offset, ours: note == OURS.as_bytes() };
                    found.insert(place, element.error().map(|()| Some(commit)));
                }
            }
            Err(e) if is_of_the_broker(&e) => return Err(e),
            // Somebody among them is in trouble, and all of them pay for it.
            Err(_) if part.len() > 1 && cuts < MAX_CUTS => {
                cuts += 1;
                let (one, other) = part.split_at(part.len() / 2);
                parts.extend([one, other]);
            }
            Err(e) => {
                let answer = |place: &&Place| ((*place).clone(), Err(e.clone()));
                found.extend(part.iter().map(answer));
            }
        }
    }
    Ok(found)
}

/// Whether it says nothing about any partition.
fn is_of_the_broker(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{
        AllBrokersDown, Authentication, BrokerTransportFailure, CoordinatorNotAvailable,
        GroupAuthorizationFailed, OperationTimedOut, RequestTimedOut, WaitingForCoordinator,
    };
    let code = error.rdkafka_error_code();
    code.is_none_or(|code| {
        [
            AllBrokersDown,
            Authentication,
            BrokerTransportFailure,
            CoordinatorNotAvailable,
            GroupAuthorizationFailed,
            OperationTimedOut,
            RequestTimedOut,
            WaitingForCoordinator,
        ]
        .contains(&code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncebox_kafka_ffi::Topic;

    /// One partition that fails costs the others nothing; a broker that does not answer is not asked again and again.
    #[test]
    fn an_error_is_found_by_cutting() {
        let places: Vec<Place> = (0..100).map(|number| ("t".into(), number)).collect();
        let places: Vec<&Place> = places.iter().collect();
        let asked = std::cell::Cell::new(0);
        let ask = |list: TopicPartitionList, _: Duration| {
            asked.set(asked.get() + 1);
            match list.find_partition("t", 42) {
                Some(_) => Err(KafkaError::OffsetFetch(RDKafkaErrorCode::NotLeaderForPartition)),
                None => Ok(list),
            }
        };
        let found = asked_in_parts(&places, Offset::Offset(7), Duration::from_secs(1), ask).expect("answers");
        assert_eq!(found.len(), 100);
        let failed: Vec<i32> = found.iter().filter(|(_, at)| at.is_err()).map(|(place, _)| place.1).collect();
        assert_eq!(failed, [42]);
        assert!(asked.get() < 20, "{}", asked.get());

        asked.set(0);
        let away = |_: TopicPartitionList, _: Duration| {
            asked.set(asked.get() + 1);
            Err(KafkaError::OffsetFetch(RDKafkaErrorCode::OperationTimedOut))
        };
        assert!(asked_in_parts(&places, Offset::End, Duration::from_secs(1), away).is_err());
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn who_leads() {
        let leaders = [(0, Some(7)), (1, None)].into();
        let gone = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
        let topics: Topics =
            [("there".to_owned(), Ok(Topic { id: None, leaders })), ("gone".to_owned(), Err(gone.clone()))]
                .into();
        let of = |topic: &str, partition| leader(&topics, &(topic.into(), partition));
        assert_eq!(of("there", 0), Ok(7));
        assert_eq!(of("there", 1), Err(KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable)));
        assert_eq!(of("there", 2), Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownPartition)));
        assert_eq!(of("gone", 0), Err(gone.clone()));
        assert_eq!(of("left out of the answer", 0), Err(gone));
    }
}
