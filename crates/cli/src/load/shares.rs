//! What the parts of a process share, and how: the connections of the store, and memory.

use oncebox_config::{Config, Connections, StoreConfig, StoreKind};
use oncebox_core::inbox::{Memory, Settings};
use oncebox_core::outbox::RelaySettings;
use oncebox_mongodb::MongoStoreBuilder;
use oncebox_mysql::MysqlStoreBuilder;
use oncebox_postgres::PgStoreBuilder;

/// The share of each.
pub(crate) struct Shares {
    connections: Option<Connections>,
    memory: Memory,
    kafka_inboxes: usize,
}

impl Shares {
    pub(crate) fn of(config: &Config) -> Self {
        let kafka_inboxes = config.inboxes.iter().filter(|inbox| inbox.source.kafka().is_some()).count();
        Self {
            connections: config.connections(default_pool(config.store.kind)),
            memory: Memory::new(config.limits.memory),
            kafka_inboxes,
        }
    }

    /// The store with a pool that has room for all shares.
    pub(crate) fn store(&self, config: &StoreConfig) -> StoreConfig {
        let pool = self.connections.as_ref().map(|connections| connections.pool);
        StoreConfig { max_connections: pool.or(config.max_connections), ..config.clone() }
    }

    /// Gives the inbox with this number its share.
    pub(crate) fn give_inbox(&self, number: usize, settings: &mut Settings) {
        let share = self.connections.as_ref().and_then(|connections| connections.inboxes.get(number));
        settings.max_connections = share.map(|share| *share as usize);
        settings.memory = self.memory.clone();
    }

    /// Gives the relay its share.
    pub(crate) fn give_relay(&self, settings: &mut RelaySettings) {
        settings.max_connections = self.connections.as_ref().map(|connections| connections.relay as usize);
    }

    /// What the client of one inbox may fetch ahead.
    pub(crate) fn fetched_ahead(&self) -> usize {
        self.memory.fetched_ahead() / self.kafka_inboxes.max(1)
    }
}

fn default_pool(store: StoreKind) -> u32 {
    match store {
        StoreKind::Mongodb => MongoStoreBuilder::DEFAULT_MAX_CONNECTIONS,
        StoreKind::Mysql => MysqlStoreBuilder::DEFAULT_MAX_CONNECTIONS,
        StoreKind::Postgres | StoreKind::Sqlite => PgStoreBuilder::DEFAULT_MAX_CONNECTIONS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::parse;

    #[test]
    fn the_pool_has_room_for_all_shares() {
        let inbox = |name: &str| {
            format!(
                "[[inbox]]\nconsumer = \"{name}\"\ntopics = [\"t\"]\nid = \"key\"\nhandler.each = [\"SELECT 1\"]\n"
            )
        };
        let rest = format!("[kafka]\nbrokers = \"k\"\n[outbox]\nrelay = true\n{}{}", inbox("a"), inbox("b"));
        let shares = |url: &str| {
            let config = parse(&format!("[store]\nurl = \"{url}\"\n{rest}")).unwrap();
            let shares = Shares::of(&config);
            let (mut first, mut relay) = (Settings::default(), RelaySettings::default());
            shares.give_inbox(0, &mut first);
            shares.give_relay(&mut relay);
            let pool = shares.store(&config.store).max_connections;
            (pool, first.max_connections, relay.max_connections, shares.fetched_ahead())
        };
        let half = Memory::DEFAULT_BYTES / 4 / 2;
        for url in ["postgres://erp@db/erp", "mysql://erp@db/erp"] {
            assert_eq!(shares(url), (Some(10), Some(4), Some(3), half), "{url}");
        }
        assert_eq!(shares("sqlite://erp.db"), (None, None, None, half));
    }
}
