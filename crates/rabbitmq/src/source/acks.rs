//! Which deliveries to acknowledge together.
//!
//! A channel numbers its deliveries 1, 2, 3 and so on, and we have one consumer on it. To acknowledge a delivery with all before it
//! costs one frame instead of hundreds, and is right only if all before it are done. A number that the broker does not know, or
//! not any more, would close the channel.

use std::collections::{BTreeSet, VecDeque};

/// What the broker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// Forget this one.
    Ack(u64),
    /// Forget this one and all before it.
    AckUpTo(u64),
    /// Deliver this one again.
    GiveBack(u64),
}

/// What one channel has delivered, and what was said about it.
#[derive(Debug)]
pub(super) struct Acks {
    /// Everything below is done.
    next: u64,
    /// Done, above that.
    done: BTreeSet<u64>,
    commands: VecDeque<Command>,
}

impl Acks {
    pub(super) fn new() -> Self {
        Self { next: 1, done: BTreeSet::new(), commands: VecDeque::new() }
    }

    /// These are settled, and those are given back.
    pub(super) fn answered(&mut self, settled: &[u64], given_back: &[u64]) {
        for tag in given_back {
            if self.is_open(*tag) {
                self.commands.push_back(Command::GiveBack(*tag));
                self.done.insert(*tag);
            }
        }
        let mut settled: BTreeSet<u64> = settled.iter().copied().filter(|tag| self.is_open(*tag)).collect();
        let (mut last, mut together) = (None, 0);
        loop {
            if settled.remove(&self.next) {
                (last, together) = (Some(self.next), together + 1);
            } else if !self.done.remove(&self.next) {
                break;
            }
            self.next += 1;
        }
        let prefix = last.map(|tag| if together == 1 { Command::Ack(tag) } else { Command::AckUpTo(tag) });
        self.commands.extend(prefix);
        self.commands.extend(settled.iter().copied().map(Command::Ack));
        self.done.append(&mut settled);
    }

    /// What to tell the broker next. It counts as told.
    pub(super) fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The last of those up to `delivered` that are not done: it, and all before it, can be given back together.
    pub(super) fn last_open(&self, delivered: u64) -> Option<u64> {
        (self.next..=delivered).rev().find(|tag| self.is_open(*tag))
    }

    fn is_open(&self, tag: u64) -> bool {
        tag >= self.next && !self.done.contains(&tag)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn commands(acks: &mut Acks) -> Vec<Command> {
        std::iter::from_fn(|| acks.next_command()).collect()
    }

    #[test]
    fn what_is_contiguous_is_acknowledged_together() {
        use Command::{Ack, AckUpTo, GiveBack};
        let mut acks = Acks::new();
        acks.answered(&[1, 2, 3], &[]);
        assert_eq!(commands(&mut acks), [AckUpTo(3)]);
        acks.answered(&[6, 5], &[]);
        assert_eq!(commands(&mut acks), [Ack(5), Ack(6)]);
        acks.answered(&[4], &[]);
        assert_eq!(commands(&mut acks), [Ack(4)]);
        acks.answered(&[9, 7], &[8]);
        assert_eq!(commands(&mut acks), [GiveBack(8), AckUpTo(9)]);
        acks.answered(&[9, 8, 1], &[7]);
        assert_eq!(commands(&mut acks), [], "the broker does not know them any more");
    }

    #[test]
    fn the_rest_is_what_is_not_done() {
        let mut acks = Acks::new();
        acks.answered(&[1, 4], &[]);
        assert_eq!((acks.last_open(5), acks.last_open(4), acks.last_open(1)), (Some(5), Some(3), None));
    }

    /// A broker that knows which deliveries are open, and closes the channel for any other.
    #[derive(Debug, Default)]
    struct Channel {
        open: BTreeSet<u64>,
        acknowledged: BTreeSet<u64>,
        requeued: BTreeSet<u64>,
    }

    impl Channel {
        fn take(&mut self, command: Command) {
            let tag = match command {
                Command::Ack(tag) | Command::AckUpTo(tag) | Command::GiveBack(tag) => tag,
            };
            assert!(self.open.contains(&tag), "{command:?} closes the channel");
            match command {
                Command::Ack(tag) => drop(self.open.remove(&tag) && self.acknowledged.insert(tag)),
                Command::GiveBack(tag) => drop(self.open.remove(&tag) && self.requeued.insert(tag)),
                Command::AckUpTo(tag) => {
                    let above = self.open.split_off(&(tag + 1));
                    self.acknowledged.append(&mut self.open);
                    self.open = above;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn exactly_what_was_answered_is_told(
            fates in prop::collection::vec((0_u8..3, any::<u16>()), 1..200),
            batches in prop::collection::vec(1_usize..40, 1..50),
        ) {
            let tags: Vec<u64> = (1..=fates.len() as u64).collect();
            let mut order = tags.clone();
            // A random order of the answers.
            order.sort_by_key(|tag| fates[*tag as usize - 1].1);
            let mut channel = Channel { open: tags.iter().copied().collect(), ..Channel::default() };
            let mut acks = Acks::new();
            let (mut settled, mut given_back) = (BTreeSet::new(), BTreeSet::new());
            let mut rest = &order[..];
            for size in batches.into_iter().cycle() {
                let (batch, after) = rest.split_at(size.min(rest.len()));
                let fate = |wanted: u8| -> Vec<u64> {
                    batch.iter().copied().filter(|tag| fates[*tag as usize - 1].0 == wanted).collect()
                };
                let (yes, no) = (fate(0), fate(1));
                acks.answered(&yes, &no);
                settled.extend(yes);
                given_back.extend(no);
                while let Some(command) = acks.next_command() {
                    channel.take(command);
                }
                prop_assert_eq!(&channel.acknowledged, &settled);
                prop_assert_eq!(&channel.requeued, &given_back);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(acks.last_open(tags.len() as u64), channel.open.last().copied());
        }
    }
}
