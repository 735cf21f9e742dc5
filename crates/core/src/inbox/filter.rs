//! Which messages of a source an inbox wants. The others are settled unseen.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use super::Engine;
use super::identity::Selector;
use super::item::Item;
use super::partition::Partition;
use crate::message::Record;
use crate::source::{Answer, Answered};
use crate::store::InboxStore;

/// Which messages of a source an inbox wants: see [`Inbox::filter`](super::Inbox::filter).
#[derive(Clone)]
pub struct Filter {
    wants: Arc<dyn Fn(&Record) -> bool + Send + Sync>,
    reads_payload: bool,
}

impl Filter {
    /// Those that have one of these values at this place. A message that has nothing there, or nothing that can be read, is not
    /// wanted.
    ///
    /// ```
    /// use oncebox::message::Record;
    /// use oncebox::{Filter, Selector};
    ///
    /// let filter = Filter::equals(Selector::Header("type".into()), ["OrderShipped", "OrderCancelled"]);
    /// let mut record = Record::at("orders", 0, 7);
    /// assert!(!filter.wants(&record), "it has no such header");
    /// record.headers.push("type", Some("OrderShipped".into()));
    /// assert!(filter.wants(&record));
    /// ```
    pub fn equals(selector: Selector, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let values: Vec<String> = values.into_iter().map(Into::into).collect();
        let reads_payload = selector.reads_payload();
        let wants = move |record: &Record| selector.select(record).is_ok_and(|found| values.contains(&found));
        Self { wants: Arc::new(wants), reads_payload }
    }

    /// Those that this function says yes to. It sees the message as its source delivered it, and must not block or panic.
    pub fn by(wants: impl Fn(&Record) -> bool + Send + Sync + 'static) -> Self {
        Self { wants: Arc::new(wants), reads_payload: false }
    }

    /// Whether a record is wanted.
    #[must_use]
    pub fn wants(&self, record: &Record) -> bool {
        (self.wants)(record)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").finish_non_exhaustive()
    }
}

impl super::Settings {
    /// Whether the inbox wants a record. What is too large to be read is wanted: it becomes a dead letter, so that nobody misses it.
    pub(crate) fn wants(&self, record: &Record) -> bool {
        self.filter.as_ref().is_none_or(|filter| {
            let too_large = || self.identity.limits.exceeded_by(record).is_some();
            (filter.reads_payload && too_large()) || filter.wants(record)
        })
    }
}

impl<S: InboxStore> Engine<S> {
    /// Gives the records that are wanted their identity. The others are settled: no transaction, no receipt, no id. The
    /// position moves past them with the next commit, or with a note.
    pub(super) fn take_in(
        &self,
        partition: &Partition,
        records: Vec<Record>,
        arrivals: &[(i64, Instant)],
    ) -> Vec<Item> {
        let (wanted, others): (Vec<Record>, Vec<Record>) =
            records.into_iter().partition(|record| self.settings.wants(record));
        if !others.is_empty() {
            if partition.deliveries.is_none() {
                partition.progress.pass(&others);
            }
            let answer = |record: &Record| Answered::new(record.offset, Answer::Filtered);
            partition.answer(&others.iter().map(answer).collect::<Vec<_>>());
            self.meters.filtered.increment(others.len() as u64);
        }
        let items = self.identify(wanted);
        self.trace_arrivals(partition, &items, arrivals);
        items
    }
}
