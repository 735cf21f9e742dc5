//! What librdkafka is told to fetch, in the words of the rebalance protocol in use.
//!
//! A partition that the group gives us is **not** handed to librdkafka at once. The rebalance is answered with what is being
//! fetched already, and the partition follows when it is known where it begins, with that offset. The obvious other way, to
//! assign it paused and to seek later, has traps, all of them seen with librdkafka 2.12 against its mock and Kafka 4:
//!
//! * Assigned without an offset, a partition without a committed one stops with an `AutoOffsetReset` error and answers every
//!   later seek with `State`.
//! * Assigned at the beginning or the end, librdkafka looks that offset up; a seek meanwhile is accepted and undone half a
//!   second later, when the outdated answer makes it look again. From the beginning everything came twice, from the end
//!   nothing came at all, without an error.
//! * Assigned at a number, such as 0, a fetch may go out before the pause arrives, and on a topic that lost its head that is
//!   out of range: `AutoOffsetReset` again.
//! * After seek and resume the first record came a second later, since a resume does not wake the thread that fetches.
//!
//! Under a cooperative protocol changes are added and removed; under an eager one each assign states everything.
//!
//! Before a partition is fetched its queue is split from the common one, see `deliver`. In this order no record can end up in
//! the wrong queue and so out of the order of its partition.

use std::collections::HashSet;
use std::sync::Arc;

use rdkafka::consumer::{BaseConsumer, Consumer, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::callbacks::Callbacks;
use super::partition::{Partition, Partitions, Phase};
use crate::ends::Place;

/// Whether the group's lists say what changes, instead of naming everything.
pub(super) fn is_cooperative(consumer: &BaseConsumer<Callbacks>) -> bool {
    matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative)
}

/// Answers the group's assign: understood, more to come.
pub(super) fn answer_assign(consumer: &BaseConsumer<Callbacks>) -> KafkaResult<()> {
    let nothing_yet = TopicPartitionList::new();
    if is_cooperative(consumer) {
        consumer.incremental_assign(&nothing_yet)
    } else {
        consumer.assign(&nothing_yet)
    }
}

/// Answers the group's revoke: these are not fetched any more.
pub(super) fn answer_revoke(
    consumer: &BaseConsumer<Callbacks>,
    revoked: &TopicPartitionList,
) -> KafkaResult<()> {
    if !is_cooperative(consumer) {
        return consumer.unassign();
    }
    // Those that never began are unknown to librdkafka, which would refuse the whole list for one of them.
    let fetched = consumer.assignment()?;
    let fetched = fetched.elements();
    let fetched: HashSet<(&str, i32)> = fetched.iter().map(|e| (e.topic(), e.partition())).collect();
    let mut going = TopicPartitionList::new();
    for element in revoked.elements() {
        if fetched.contains(&(element.topic(), element.partition())) {
            going.add_partition(element.topic(), element.partition());
        }
    }
    consumer.incremental_unassign(&going)
}

/// Gives a partition its own queue, whose first record rings the bell.
pub(super) fn split_queue(
    consumer: &Arc<BaseConsumer<Callbacks>>,
    partition: &mut Partition,
) -> KafkaResult<()> {
    if partition.queue.is_some() {
        return Ok(());
    }
    let queue = consumer.split_partition_queue(&partition.topic, partition.number);
    let mut queue = queue.ok_or(KafkaError::MessageConsumption(RDKafkaErrorCode::UnknownPartition))?;
    let bell = Arc::clone(&partition.bell);
    queue.set_nonempty_callback(move || bell.ring());
    partition.queue = Some(queue);
    Ok(())
}

/// Fetches these partitions, which have a start and are not fetched yet, from there on. The others go on.
pub(super) fn fetch_started(
    consumer: &BaseConsumer<Callbacks>,
    all: &Partitions,
    started: &[Place],
) -> KafkaResult<()> {
    fetch(consumer, all, started.iter().filter_map(|(topic, number)| all.get(topic, *number)))
}

/// Stops fetching partitions that were taken out of the table. The others go on.
pub(super) fn stop_fetching(
    consumer: &BaseConsumer<Callbacks>,
    others: &Partitions,
    partitions: &[Partition],
) -> KafkaResult<()> {
    if is_cooperative(consumer) {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(&partition.topic, partition.number);
        }
        return answer_revoke(consumer, &list);
    }
    fetch(consumer, others, std::iter::empty())
}

/// Fetches a partition that librdkafka has given up on again, from after its last record.
pub(super) fn fetch_again(
    consumer: &BaseConsumer<Callbacks>,
    all: &Partitions,
    topic: &str,
    number: i32,
) -> KafkaResult<()> {
    let this = all.get(topic, number);
    if is_cooperative(consumer)
        && let Some(partition) = this
    {
        consumer.incremental_unassign(&partition.list()?)?;
    }
    fetch(consumer, all, this.into_iter())
}

fn fetch<'a>(
    consumer: &BaseConsumer<Callbacks>,
    all: &'a Partitions,
    these: impl Iterator<Item = &'a Partition>,
) -> KafkaResult<()> {
    if is_cooperative(consumer) {
        return consumer.incremental_assign(&at_their_next_offsets(these)?);
    }
    let flowing = all.iter().filter(|p| p.phase == Phase::Flowing);
    let others = flowing.chain(these.filter(|p| p.phase != Phase::Flowing));
    consumer.assign(&at_their_next_offsets(others)?)
}

fn at_their_next_offsets<'a>(
    partitions: impl Iterator<Item = &'a Partition>,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        if let Some(next) = partition.fetch_from() {
            list.add_partition_offset(&partition.topic, partition.number, Offset::Offset(next))?;
        }
    }
    Ok(list)
}
