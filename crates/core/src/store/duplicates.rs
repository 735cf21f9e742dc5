//! Duplicates, by what made them.

use std::ops::AddAssign;

/// Why a copy of a message came that was settled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The same record once more: a process ended, or lost its partition, before what it had settled was acknowledged.
    Redelivered,
    /// The same record once more: somebody has moved the position back, or the offset that the broker keeps.
    Rewound,
    /// Another record with the same id.
    PublishedTwice,
    /// Nobody can tell.
    Unknown,
}

impl Cause {
    /// All of them, as they are shown.
    pub const ALL: [Self; 4] = [Self::Redelivered, Self::Rewound, Self::PublishedTwice, Self::Unknown];

    /// The word for it in metrics and in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redelivered => "redelivered",
            Self::Rewound => "rewound",
            Self::PublishedTwice => "published_twice",
            Self::Unknown => "unknown",
        }
    }

    /// The same for people, behind a number.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Redelivered => "redelivered",
            Self::Rewound => "rewound",
            Self::PublishedTwice => "published twice",
            Self::Unknown => "of unknown cause",
        }
    }
}

/// How many duplicates there were, by cause.
///
/// ```
/// use oncebox::store::{Cause, Duplicates};
///
/// let mut duplicates = Duplicates::stored(10, 4, 0, 1);
/// duplicates.add(Cause::Rewound, 2);
/// assert_eq!((duplicates.total(), duplicates.of(Cause::Unknown)), (12, 5));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Duplicates {
    redelivered: u64,
    rewound: u64,
    published_twice: u64,
    unknown: u64,
}

impl Duplicates {
    /// What a database has counted: all of them, and those of each known cause. The rest were counted before causes were.
    #[must_use]
    pub fn stored(total: u64, redelivered: u64, rewound: u64, published_twice: u64) -> Self {
        let known = redelivered.saturating_add(rewound).saturating_add(published_twice);
        Self { redelivered, rewound, published_twice, unknown: total.saturating_sub(known) }
    }

    /// Those of one cause.
    #[must_use]
    pub fn of(&self, cause: Cause) -> u64 {
        match cause {
            Cause::Redelivered => self.redelivered,
            Cause::Rewound => self.rewound,
            Cause::PublishedTwice => self.published_twice,
            Cause::Unknown => self.unknown,
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        Cause::ALL.iter().map(|cause| self.of(*cause)).fold(0, u64::saturating_add)
    }

    /// Those causes that there were, with how many.
    pub fn by_cause(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.into_iter().map(|cause| (cause, self.of(cause))).filter(|(_, count)| *count > 0)
    }

    /// What came on top of an earlier count.
    #[must_use]
    pub fn since(&self, earlier: Self) -> Self {
        let mut more = Self::default();
        for cause in Cause::ALL {
            more.add(cause, self.of(cause).saturating_sub(earlier.of(cause)));
        }
        more
    }

    /// So many more.
    pub fn add(&mut self, cause: Cause, more: u64) {
        let counted = match cause {
            Cause::Redelivered => &mut self.redelivered,
            Cause::Rewound => &mut self.rewound,
            Cause::PublishedTwice => &mut self.published_twice,
            Cause::Unknown => &mut self.unknown,
        };
        *counted = counted.saturating_add(more);
    }
}

impl AddAssign for Duplicates {
    fn add_assign(&mut self, more: Self) {
        Cause::ALL.into_iter().for_each(|cause| self.add(cause, more.of(cause)));
    }
}

impl FromIterator<Cause> for Duplicates {
    fn from_iter<I: IntoIterator<Item = Cause>>(causes: I) -> Self {
        let mut counted = Self::default();
        causes.into_iter().for_each(|cause| counted.add(cause, 1));
        counted
    }
}

impl std::iter::Sum for Duplicates {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}
