//! What the producers have sent: the simplest possible reference.

use std::collections::BTreeMap;

/// What a handler does with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Applies it.
    Good,
    /// Fails so many times, then applies it.
    FailsTimes(u32),
    /// Fails every time.
    Fails,
    /// Rejects it.
    Rejects,
    /// Panics every time.
    Panics,
    /// Ends the process so many times, then applies it.
    CrashesTimes(u32),
    /// Ends the process every time.
    Crashes,
    /// Something is in its way every time.
    AlwaysTransient,
    /// Leaves a transaction in which nothing else works.
    Poisons,
    /// Wants to be tried again much later, so many times, and then applies it.
    RetriesLater(u32),
}

impl Behaviour {
    /// Whether giving it up is right, sooner or later.
    pub(crate) fn may_be_parked(self, excused: Excused, attempts: u32, crash_limit: u32) -> bool {
        let Excused { exposed, killed } = excused;
        match self {
            Self::Good => exposed >= attempts || killed >= crash_limit,
            Self::FailsTimes(times) | Self::RetriesLater(times) => {
                times + exposed >= attempts || killed >= crash_limit
            }
            Self::CrashesTimes(times) => times + killed >= crash_limit || exposed >= attempts,
            _ => true,
        }
    }
}

/// What happened to a message through no fault of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Excused {
    /// How often its transaction failed for a reason that may count against it.
    pub(crate) exposed: u32,
    /// How often its process was killed from outside while it may have run alone.
    pub(crate) killed: u32,
}

/// A message, however many copies of it there are.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) behaviour: Behaviour,
    /// An operator has mended what was wrong with it.
    pub(crate) mended: bool,
    pub(crate) invoked: u32,
    /// How often its transaction failed for a reason that was not its own but may count against it.
    pub(crate) exposed: u32,
    /// How often its process was killed from outside while it may have run alone.
    pub(crate) killed: u32,
    /// How often it has ended a process.
    pub(crate) ended: u32,
    pub(crate) emits: u8,
}

/// All messages by the name that their payload carries.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    sent: BTreeMap<u32, Sent>,
}

impl Messages {
    pub(crate) fn send(&mut self, number: u32, behaviour: Behaviour, emits: u8) {
        let sent = Sent { behaviour, mended: false, invoked: 0, exposed: 0, killed: 0, ended: 0, emits };
        self.sent.entry(number).or_insert(sent);
    }

    pub(crate) fn get(&self, number: u32) -> Option<&Sent> {
        self.sent.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Sent> {
        self.sent.get_mut(&number)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.sent.values_mut()
    }
}
