//! How the connections of the store are divided between the inboxes and the relay, so that none of them can take all.

use super::reader::Place;
use super::source::{HttpMode, SourceConfig};
use super::{Config, StoreKind};

/// What an inbox, and the relay, must have. One connection of the relay's only records what was published.
const INBOX_LEAST: u32 = 1;
pub(super) const RELAY_LEAST: u32 = 2;
/// What an inbox has at least where nobody has said how large the pool is.
const INBOX_USUAL: u32 = 2;
/// More than that hardly help the relay.
const RELAY_USUAL_MOST: u32 = 5;

/// How many connections each may use at once. Together they are never more than the pool has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connections {
    /// The whole pool.
    pub pool: u32,
    /// The share of each inbox, in their order.
    pub inboxes: Vec<u32>,
    /// The share of the relay; 0 if there is none.
    pub relay: u32,
}

/// Who wants how many.
struct Wishes {
    inboxes: Vec<Option<u32>>,
    /// `None` if there is no relay.
    relay: Option<Option<u32>>,
    /// An inbox that accepts requests stores them on one connection of its own.
    accepting: u32,
}

impl Wishes {
    fn of(config: &Config) -> Self {
        let accepts = |source: &SourceConfig| matches!(source, SourceConfig::Http(http) if http.mode == HttpMode::Accept);
        let accepting = config.inboxes.iter().filter(|inbox| accepts(&inbox.source)).count();
        Self {
            inboxes: config.inboxes.iter().map(|inbox| inbox.max_connections).collect(),
            relay: config.outbox.relay.then_some(config.outbox.max_connections),
            accepting: u32::try_from(accepting).unwrap_or(u32::MAX),
        }
    }

    /// How many it takes, if an inbox that has no wish gets that many.
    fn needed(&self, each: u32) -> u32 {
        let inboxes = self.inboxes.iter().map(|wish| wish.unwrap_or(each));
        let relay = self.relay.map(|wish| wish.unwrap_or(RELAY_LEAST));
        inboxes.chain(relay).fold(self.accepting, u32::saturating_add)
    }
}

impl Config {
    /// The share of each. `default` is the pool of a store that is not told; it is larger where that would not do.
    ///
    /// What nobody has asked for is divided evenly. `None` for SQLite: a file has one writer, and there is nothing to divide.
    #[must_use]
    pub fn connections(&self, default: u32) -> Option<Connections> {
        if self.store.kind == StoreKind::Sqlite {
            return None;
        }
        let wishes = Wishes::of(self);
        let pool = self.store.max_connections.unwrap_or_else(|| default.max(wishes.needed(INBOX_USUAL)));
        let asked = wishes.inboxes.iter().flatten().chain(wishes.relay.iter().flatten());
        let mut left =
            pool.saturating_sub(asked.fold(wishes.accepting, |sum, wish| sum.saturating_add(*wish)));
        let mut open = wishes.inboxes.iter().filter(|wish| wish.is_none()).count() as u32;
        let relay = match wishes.relay {
            None => 0,
            Some(Some(wish)) => wish,
            Some(None) if open == 0 => left,
            Some(None) => {
                let share = (left / (open + 1)).clamp(RELAY_LEAST, RELAY_USUAL_MOST);
                left = left.saturating_sub(share);
                share
            }
        };
        let share = |wish: Option<u32>| {
            wish.unwrap_or_else(|| {
                let share = left.div_ceil(open.max(1)).max(INBOX_LEAST);
                (left, open) = (left.saturating_sub(share), open.saturating_sub(1));
                share
            })
        };
        let inboxes = wishes.inboxes.iter().copied().map(share).collect();
        Some(Connections { pool, inboxes, relay })
    }
}

/// Where the file speaks of connections.
#[derive(Default)]
pub(super) struct Places<'c, 'a> {
    pub(super) pool: Option<Place<'c, 'a>>,
    /// Of the inboxes and the relay.
    pub(super) shares: Vec<Place<'c, 'a>>,
}

/// Reports shares that no pool can give.
pub(super) fn check(config: &Config, places: &Places<'_, '_>) {
    if config.store.kind == StoreKind::Sqlite {
        for place in &places.shares {
            place.report(
                "a SQLite file has one writer, so there are no connections to divide",
                "remove the key",
            );
        }
        return;
    }
    let (Some(pool), Some(place)) = (config.store.max_connections, &places.pool) else { return };
    let wishes = Wishes::of(config);
    let needed = wishes.needed(INBOX_LEAST);
    if needed <= pool {
        return;
    }
    let asked: Vec<String> = places.shares.iter().map(ToString::to_string).collect();
    let asked = match asked.as_slice() {
        [] => String::new(),
        [one] => format!(" (what {one} asks for included)"),
        several => format!(" (what {} ask for included)", several.join(" and ")),
    };
    let relay = if config.outbox.relay { " and the relay" } else { "" };
    place.report(
        format!("{pool} connections are too few: the inboxes{relay} need {needed}{asked}"),
        format!("write at least {needed}, or lower the shares"),
    );
}
