//! A lane of a queue: as any lane, but who waits for a retry does not hold up the others, and who was delivered before runs
//! alone.

use std::sync::Arc;

use tokio::time::Instant;

use super::Engine;
use super::batch::{Batch, End, Part};
use super::guard::Guarded;
use super::held::HeldKeys;
use super::item::Item;
use super::memory::InFlight;
use super::partition::Partition;
use crate::mistake::mistaken;
use crate::monitor::LoopHandle;
use crate::source::{Answer, Answered, GivenBack, Why};
use crate::store::InboxStore;

/// What a lane does next.
enum Work {
    /// Messages that have just arrived.
    Arrived(Vec<Item>),
    /// A message that failed before, what is known of it, and those behind it.
    Again(Vec<Item>, Part, Vec<Item>),
}

impl<S: InboxStore> Engine<S> {
    /// Runs a lane until its stream closes or stops. Returns why it stands still, if it does.
    pub(super) async fn run_queue_lane(
        self: Arc<Self>,
        partition: Arc<Partition>,
        lane: usize,
    ) -> Option<String> {
        let place = format!("{}#{lane}", partition.key.topic);
        let health = self.monitor.register(format!("inbox:{}", self.consumer), place);
        let mut held = HeldKeys::default();
        let reason = self.work_in_queue(&partition, lane, &mut held, &health).await;
        // They are given back, and a queue that stands still for days must not keep their memory.
        drop(partition.queues.let_go(held.items()));
        reason
    }

    async fn work_in_queue(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        lane: usize,
        held: &mut HeldKeys,
        health: &LoopHandle,
    ) -> Option<String> {
        loop {
            if held.is_empty() && partition.queues.is_empty(lane) {
                health.idle();
            }
            let (work, _in_flight) = self.next_work(partition, lane, held).await?;
            health.busy();
            let end = match work {
                Work::Again(first, part, behind) => {
                    match self.run(partition, lane, first, part, held, health).await {
                        End::Finished => self.run_arrived(partition, lane, behind, held, health).await,
                        other => other,
                    }
                }
                Work::Arrived(items) => self.run_arrived(partition, lane, items, held, health).await,
            };
            match end {
                End::Finished => {}
                End::Closing => return None,
                End::Stopped(reason) => return Some(reason),
            }
        }
    }

    /// `None` once no new work may begin.
    async fn next_work(
        &self,
        partition: &Partition,
        lane: usize,
        held: &mut HeldKeys,
    ) -> Option<(Work, InFlight)> {
        let due = async {
            match held.next_due() {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = partition.queues.ended() => None,
            () = due => {
                let due = held.take_due(Instant::now())?;
                let in_flight = partition.queues.let_go(due.items().iter());
                let (first, part, behind) = due.into_parts();
                Some((Work::Again(first, part, behind), in_flight))
            }
            taken = partition.queues.next(lane, self.settings.batch) => {
                let taken = taken?;
                let items = self.take_in(partition, taken.records, &taken.arrivals);
                Some((Work::Arrived(items), taken.in_flight))
            }
        }
    }

    /// In their order: who was delivered before runs alone, the others as batches.
    async fn run_arrived(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        lane: usize,
        items: Vec<Item>,
        held: &mut HeldKeys,
        health: &LoopHandle,
    ) -> End {
        if items.is_empty() {
            // None was wanted. There may be many such batches, and no other place to wait at.
            tokio::task::yield_now().await;
        }
        let items =
            if mistaken("RedeliveredIsDuplicate") { without_redelivered(partition, items) } else { items };
        let mut rest = items.into_iter().peekable();
        while let Some(first) = rest.next() {
            let mut batch = vec![first];
            while !batch[0].record().redelivered
                && let Some(next) = rest.next_if(|next| !next.record().redelivered)
            {
                batch.push(next);
            }
            // Only now: who ran before may have to wait, and its key with it.
            let (batch, diverted) =
                if mistaken("RetryLetsPass") { (batch, Vec::new()) } else { held.divert(batch) };
            partition.queues.keep(&diverted);
            let batch = if self.gives_back(partition) { without_unfit(partition, batch) } else { batch };
            if batch.is_empty() {
                continue;
            }
            let whole = Part::of(0..batch.len());
            match self.run(partition, lane, batch, whole, held, health).await {
                End::Finished if partition.queues.has_ended() => return End::Closing,
                End::Finished => {}
                other => return other,
            }
        }
        End::Finished
    }

    async fn run(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        lane: usize,
        items: Vec<Item>,
        part: Part,
        held: &mut HeldKeys,
        health: &LoopHandle,
    ) -> End {
        let guarded = Guarded::in_queue(&partition.key);
        let alone = matches!(&*items, [Item::Fit(message, _)] if message.record().redelivered);
        let guarded = (alone && !mistaken("NoQueueGuard")).then_some(&guarded);
        let batch = Batch { partition, lane, items: &Arc::new(items), guarded, health };
        self.finish_parts(batch, vec![part], Some(held)).await
    }
}

/// The mistake: what was delivered before counts as applied.
fn without_redelivered(partition: &Partition, items: Vec<Item>) -> Vec<Item> {
    let (again, first): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| item.record().redelivered);
    let answer = |item: &Item| Answered::new(item.offset(), Answer::Duplicate);
    partition.answer(&again.iter().map(answer).collect::<Vec<_>>());
    first
}

/// Who has no identity goes back: no retry can help.
fn without_unfit(partition: &Arc<Partition>, items: Vec<Item>) -> Vec<Item> {
    let (fit, unfit): (Vec<Item>, Vec<Item>) =
        items.into_iter().partition(|item| matches!(item, Item::Fit(..)));
    for item in unfit {
        if let Item::Unfit(unfit) = &item {
            let given_back = GivenBack::new(Why::Rejected, unfit.reason.as_str());
            partition.give_back(std::iter::once(item.offset()), &given_back);
        }
    }
    fit
}
