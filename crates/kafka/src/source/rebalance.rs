//! Taking over partitions and giving them back.
//!
//! What the group asks of a member and what we make of it:
//!
//! * **Assign**: open a stream for each partition. Nothing is fetched before the engine owns the position in the database
//!   and it is known where to begin; that happens later, in the loop, see `begin`.
//! * **Revoke**: as long as we have not answered, nobody else gets these partitions. So: stop the work on all of them at
//!   once, wait until the transactions in flight have ended, commit what is settled, and only then let go. The next owner
//!   then begins exactly where we ended. The wait is bounded; letting go too early is still safe, since the epoch of the
//!   position fences whoever comes late.
//! * **Lost**: the group gave the partitions away without asking, because it had not heard from us. A commit would be refused
//!   or, worse, move the offset of the next owner. So: stop, commit nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oncebox_core::source::OpenStream;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::TopicPartitionList;
use tracing::{info, warn};

use super::assignment::{answer_assign, answer_revoke, is_cooperative, stop_fetching};
use super::commit::commit_again;
use super::partition::{Partition, named};
use super::reader::Reader;
use crate::ends::Place;

/// How long a fenced partition must stay ours before it is taken over again: several heartbeats.
const TAKE_BACK_DELAY: Duration = Duration::from_secs(10);

impl Reader {
    pub(super) fn take_over(&mut self, assigned: &TopicPartitionList) -> KafkaResult<()> {
        if !is_cooperative(&self.consumer) {
            // The list is everything. A revoke came before it, so there should be nothing to close.
            close_and_wait(&self.partitions.take(), Duration::ZERO);
        }
        answer_assign(&self.consumer)?;
        // What was sent during the rebalance was refused.
        self.partitions.iter_mut().for_each(|p| p.committed = None);
        let elements = assigned.elements();
        if !elements.is_empty() {
            let places = named(elements.iter().map(|e| (e.topic(), e.partition())));
            info!(
                consumer = self.intake.consumer(),
                partitions = elements.len(),
                places,
                "partitions assigned"
            );
        }
        let mut topics: HashMap<&str, Arc<str>> = HashMap::new();
        for element in &elements {
            // One name for all partitions of a topic.
            let topic = topics.entry(element.topic()).or_insert_with(|| element.topic().into());
            self.open(Arc::clone(topic), element.partition());
        }
        Ok(())
    }

    fn open(&mut self, topic: Arc<str>, number: i32) {
        let bell = self.bells.bell((Arc::clone(&topic), number));
        let news = Arc::clone(&bell);
        let open = OpenStream::new(Arc::clone(&topic), number).system("kafka").on_news(move || news.ring());
        let stream = self.intake.open(open);
        self.opened += 1;
        let partition = Partition::new(stream, topic, self.opened, bell);
        if let Some(former) = self.partitions.insert(partition) {
            former.stream.close();
        }
    }

    /// A process that no longer has a partition may still acquire its position late, and so fence us although the partition
    /// is ours. A process that really lost it is told so within a heartbeat; whoever still has it after a while takes it over
    /// again.
    pub(super) fn take_back_fenced(&mut self) -> KafkaResult<()> {
        let is_ours = |p: &&Partition| p.stopped_for() > TAKE_BACK_DELAY && p.stream.is_fenced();
        let fenced: Vec<Place> = self.partitions.iter().filter(is_ours).map(Partition::key).collect();
        let taken = fenced.iter().filter_map(|(topic, number)| self.partitions.remove(topic, *number));
        let former: Vec<Partition> = taken.collect();
        if former.is_empty() {
            return Ok(());
        }
        let places = named(former.iter().map(|p| (&*p.topic, p.number)));
        warn!(consumer = self.intake.consumer(), places, "fenced but still ours: taking over again");
        former.iter().for_each(|partition| partition.stream.close());
        stop_fetching(&self.consumer, &self.partitions, &former)?;
        for (topic, number) in fenced {
            self.open(topic, number);
        }
        Ok(())
    }

    pub(super) fn give_back(&mut self, revoked: &TopicPartitionList, lost: bool) -> KafkaResult<()> {
        let mut going: Vec<Partition> = if is_cooperative(&self.consumer) {
            let named = revoked.elements();
            named.iter().filter_map(|e| self.partitions.remove(e.topic(), e.partition())).collect()
        } else {
            self.partitions.take()
        };
        if !going.is_empty() {
            let places = named(going.iter().map(|p| (&*p.topic, p.number)));
            info!(
                consumer = self.intake.consumer(),
                partitions = going.len(),
                places,
                lost,
                "partitions revoked"
            );
        }
        let late = close_and_wait(&going, if lost { Duration::ZERO } else { self.drain_budget });
        if !lost {
            self.warn_of_late(&late);
            commit_again(&self.consumer, &mut going);
        }
        answer_revoke(&self.consumer, revoked)
    }

    /// The way out: like a revoke of everything, but nobody waits for an answer.
    pub(super) fn give_all_back(&mut self) {
        let mut all = self.partitions.take();
        self.warn_of_late(&close_and_wait(&all, self.drain_budget));
        commit_again(&self.consumer, &mut all);
    }

    fn warn_of_late(&self, late: &[Place]) {
        if !late.is_empty() {
            let places = named(late.iter().map(|(topic, number)| (&**topic, *number)));
            warn!(
                consumer = self.intake.consumer(),
                places, "still at work when it was time to let go; the next owner will fence it"
            );
        }
    }
}

/// Closes all, then waits for all within one budget. Returns the places that are still at work.
fn close_and_wait(partitions: &[Partition], budget: Duration) -> Vec<Place> {
    for partition in partitions {
        partition.stream.close();
    }
    let deadline = Instant::now() + budget;
    let late = |p: &&Partition| !p.stream.wait_closed(deadline.saturating_duration_since(Instant::now()));
    partitions.iter().filter(late).map(Partition::key).collect()
}
