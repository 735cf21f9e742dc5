//! Messages of a queue that wait for their next try, and those that wait behind them.
//!
//! Invariant: as long as a message waits, no later message of its key is anywhere else in the lane. A message without a key
//! holds back nobody.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use bytes::Bytes;
use tokio::time::Instant;

use super::batch::Part;
use super::item::Item;

/// What waits in one lane.
#[derive(Debug, Default)]
pub(crate) struct HeldKeys {
    held: HashMap<u64, Held>,
    by_key: HashMap<Bytes, u64>,
    by_due: BTreeSet<(Instant, u64)>,
    next: u64,
}

/// A message that failed, and the later ones of its key.
#[derive(Debug)]
pub(crate) struct Held {
    /// What is known of the first of them.
    first: Part,
    items: Vec<Item>,
}

impl Held {
    /// What to run: the message that failed, with what is known of it, and after it the others.
    pub(crate) fn into_parts(mut self) -> (Vec<Item>, Part, Vec<Item>) {
        let behind = self.items.split_off(1);
        (self.items, self.first, behind)
    }

    /// All of them.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }
}

impl HeldKeys {
    /// Holds the message of `failed`, and the later ones of its key, which are taken out of `rest`: the parts of the same
    /// batch that are still to do, the next one on top. Returns what was held.
    pub(crate) fn hold(
        &mut self,
        items: &[Item],
        failed: Part,
        rest: &mut Vec<Part>,
        due: Instant,
    ) -> &[Item] {
        let at = failed.range.start;
        let key = items[at].record().key.clone();
        let mut held = vec![items[at].clone()];
        if key.is_some() {
            let same = |at: &usize| items[*at].record().key == key;
            let mut left = Vec::with_capacity(rest.len() + 1);
            for part in std::mem::take(rest) {
                left.extend(without(part.range, same).into_iter().rev().map(Part::of));
            }
            held.extend(items[at + 1..].iter().filter(|item| item.record().key == key).cloned());
            *rest = left;
        }
        let number = self.next;
        self.next += 1;
        self.by_due.insert((due, number));
        self.by_key.extend(key.map(|key| (key, number)));
        let held = Held { first: failed.at(0), items: held };
        &self.held.entry(number).or_insert(held).items
    }

    /// Puts those behind a message of their key that waits. Returns the others and those that were put, in their order.
    pub(crate) fn divert(&mut self, items: Vec<Item>) -> (Vec<Item>, Vec<Item>) {
        if self.by_key.is_empty() {
            return (items, Vec::new());
        }
        let (mut free, mut diverted) = (Vec::with_capacity(items.len()), Vec::new());
        for item in items {
            let number = item.record().key.as_ref().and_then(|key| self.by_key.get(key));
            match number.and_then(|number| self.held.get_mut(number)) {
                Some(held) => {
                    diverted.push(item.clone());
                    held.items.push(item);
                }
                None => free.push(item),
            }
        }
        (free, diverted)
    }

    /// When the next of them is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// The one that is due first, if it is due by now.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Held> {
        let first = *self.by_due.first().filter(|(due, _)| *due <= now)?;
        self.by_due.remove(&first);
        let (_, number) = first;
        let held = self.held.remove(&number)?;
        if let Some(key) = held.items.first().and_then(|item| item.record().key.as_ref()) {
            self.by_key.remove(key);
        }
        Some(held)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// All that wait.
    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> + Clone {
        self.held.values().flat_map(|held| &held.items)
    }
}

/// The range without some of its indices, as ranges in order.
fn without(range: Range<usize>, taken: impl Fn(&usize) -> bool) -> Vec<Range<usize>> {
    let mut left: Vec<Range<usize>> = Vec::new();
    for at in range.filter(|at| !taken(at)) {
        match left.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => left.push(at..at + 1),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::receipt::ReceiptKey;
    use crate::message::{Message, Record};
    use crate::names::{ConsumerName, MessageId, Tenant};
    use proptest::prelude::*;
    use std::time::Duration;

    fn item(offset: i64, key: Option<u8>) -> Item {
        let mut record = Record::at("q", 0, offset);
        record.key = key.map(|key| vec![key].into());
        let id = MessageId::new(offset.to_string()).unwrap();
        let receipt = ReceiptKey::of(&ConsumerName::new("stock").unwrap(), &Tenant::none(), &id);
        Item::Fit(Message::new(id, Tenant::none(), record), receipt)
    }

    fn offsets(items: &[Item]) -> Vec<i64> {
        items.iter().map(Item::offset).collect()
    }

    proptest! {
        /// Whatever fails and however batches arrive, each key is run in order, nothing is lost, and who has no key or
        /// another one is not held back.
        #[test]
        fn the_order_of_a_key_holds(
            keys in prop::collection::vec(prop::option::of(0_u8..4), 1..60),
            fails in prop::collection::vec(0_u8..3, 60),
            sizes in prop::collection::vec(1_usize..12, 1..60),
        ) {
            let all: Vec<Item> = keys.iter().enumerate().map(|(at, key)| item(at as i64, *key)).collect();
            let mut fails: Vec<u8> = fails;
            let (mut held, mut done) = (HeldKeys::default(), Vec::new());
            let now = Instant::now();
            let mut arriving = all.as_slice();
            let mut sizes = sizes.into_iter().cycle();
            let mut behind = Vec::new();
            while !arriving.is_empty() || !held.is_empty() || !behind.is_empty() {
                let due = if behind.is_empty() && arriving.len().is_multiple_of(2) { held.take_due(now) } else { None };
                let (items, mut parts) = match due {
                    Some(due) => {
                        let (first, part, rest) = due.into_parts();
                        behind = rest;
                        (first, vec![part])
                    }
                    None => {
                        let mut batch = std::mem::take(&mut behind);
                        if batch.is_empty() {
                            let (next, rest) = arriving.split_at(sizes.next().unwrap().min(arriving.len()));
                            arriving = rest;
                            batch = next.to_vec();
                        }
                        let (free, _) = held.divert(batch);
                        let whole = 0..free.len();
                        (free, if whole.is_empty() { vec![] } else { vec![Part::of(whole)] })
                    }
                };
                while let Some(part) = parts.pop() {
                    let range = part.range.clone();
                    let bad = range.clone().find(|at| fails[items[*at].offset() as usize] > 0);
                    match bad {
                        None => done.extend(items[range].iter().map(|item| (item.offset(), item.record().key.clone()))),
                        Some(at) if range.len() == 1 => {
                            fails[items[at].offset() as usize] -= 1;
                            held.hold(&items, part, &mut parts, now);
                        }
                        Some(at) => {
                            let cut = [range.start..at, at..at + 1, at + 1..range.end];
                            parts.extend(cut.into_iter().rev().filter(|part| !part.is_empty()).map(Part::of));
                        }
                    }
                }
            }
            let mut seen: Vec<i64> = done.iter().map(|(offset, _)| *offset).collect();
            for key in done.iter().filter_map(|(_, key)| key.clone()) {
                let of_key: Vec<i64> =
                    done.iter().filter(|(_, other)| other.as_ref() == Some(&key)).map(|(at, _)| *at).collect();
                prop_assert!(of_key.is_sorted(), "{of_key:?}");
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..keys.len() as i64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_its_own_key_waits_behind_a_message() {
        let items = [item(0, Some(1)), item(1, Some(2)), item(2, Some(1)), item(3, None), item(4, Some(1))];
        let (mut held, now) = (HeldKeys::default(), Instant::now());
        let mut rest = vec![Part::of(3..5), Part::of(1..3)];
        held.hold(&items, Part::of(0..1), &mut rest, now + Duration::from_secs(1));
        let left: Vec<Range<usize>> = rest.iter().rev().map(|part| part.range.clone()).collect();
        assert_eq!(left, [1..2, 3..4]);
        let (free, diverted) = held.divert(vec![item(5, Some(1)), item(6, None)]);
        assert_eq!((offsets(&free), offsets(&diverted)), (vec![6], vec![5]));
        assert!(held.take_due(now).is_none(), "it is not due yet");
        let due = held.take_due(now + Duration::from_secs(1)).expect("it is due");
        assert_eq!(offsets(due.items()), [0, 2, 4, 5]);
    }

    #[test]
    fn a_message_without_a_key_holds_back_nobody() {
        let items = [item(0, None), item(1, None)];
        let (mut held, mut rest) = (HeldKeys::default(), vec![Part::of(1..2)]);
        held.hold(&items, Part::of(0..1), &mut rest, Instant::now());
        assert_eq!(rest.len(), 1);
        assert_eq!(offsets(&held.divert(vec![item(2, None)]).0), [2]);
    }
}
