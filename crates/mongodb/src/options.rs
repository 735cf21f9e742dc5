//! How a [`MongoStore`] is made.

use std::time::Duration;

use mongodb::Client;
use mongodb::options::{
    Acknowledgment, ClientOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use oncebox_core::error::Error;
use oncebox_core::inbox::Selector;
use oncebox_core::secret::Secret;
use oncebox_core::store::{Adopt, ErrorClass, StoreError, StoreResult};

use crate::adopted::Adopted;
use crate::claim::EVENT_TYPE;
use crate::classify::Context;
use crate::orphans;
use crate::store::{MongoStore, explained, refuse_unfit};

/// Connections beside those for messages, for what must not wait behind the traffic: purge, sweeps, status, health, leases.
const ASIDE_CONNECTIONS: u32 = 8;
/// How soon a primary that is gone without a word is noticed.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Longer than an election takes with the settings of a new set.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const CONNECTING: &str = "connecting to the server";

/// The limits of every transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) silence: Duration,
    pub(crate) lock: Duration,
    pub(crate) commit: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(90),
            lock: Duration::from_secs(10),
            commit: Duration::from_secs(60),
        }
    }
}

/// Settings of a [`MongoStore`] that is about to connect. See [`MongoStore::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct MongoStoreBuilder {
    url: Secret,
    max_connections: u32,
    server_timeout: Option<Duration>,
    limits: Limits,
    adopt: Option<Adopt>,
    event_type: Option<Selector>,
}

impl MongoStoreBuilder {
    /// The most connections that carry messages, unless [`MongoStoreBuilder::max_connections`] says otherwise.
    pub const DEFAULT_MAX_CONNECTIONS: u32 = 10;

    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: Secret::new(url),
            max_connections: Self::DEFAULT_MAX_CONNECTIONS,
            server_timeout: None,
            limits: Limits::default(),
            adopt: None,
            event_type: None,
        }
    }

    /// The most connections to a member that carry messages. Up to eight more are opened when purge, sweeps, status, health or
    /// the leases of a relay need them.
    pub fn max_connections(mut self, most: u32) -> Self {
        self.max_connections = most.max(1);
        self
    }

    /// How long to look for a primary; by default what the URL says (`serverSelectionTimeoutMS`), or 30 s.
    pub fn server_timeout(mut self, wait: Duration) -> Self {
        self.server_timeout = Some(wait);
        self
    }

    /// How long a server may be silent before it counts as away, 90 s by default. Zero is without limit.
    pub fn silence_timeout(mut self, limit: Duration) -> Self {
        self.limits.silence = limit;
        self
    }

    /// How long a concurrent copy of a message is waited for before the batch is tried again, 10 s by default. Zero is
    /// without limit.
    pub fn lock_timeout(mut self, limit: Duration) -> Self {
        self.limits.lock = limit;
        self
    }

    /// How long a commit is sent again whose answer got lost, 60 s by default; then nobody knows, and the batch runs again. Zero is
    /// without limit: its lane stands still until a primary answers.
    pub fn commit_timeout(mut self, limit: Duration) -> Self {
        self.limits.commit = limit;
        self
    }

    /// Keeps receipts in a collection that the application already has, instead of oncebox's own.
    pub fn adopt(mut self, collection: Adopt) -> Self {
        self.adopt = Some(collection);
        self
    }

    /// Where a message says of what kind it is. Its receipt then holds that as `event_type`, and as `received_at` when the message
    /// was first claimed here. In a collection that was adopted, [`Adopt::set`] does the same with fields of your own.
    pub fn event_type(mut self, selector: Selector) -> Self {
        self.event_type = Some(selector);
        self
    }

    /// Connects, and makes sure that there is a primary, and that it can do transactions.
    ///
    /// # Errors
    /// `failed` if the URL is wrong or names no database; `away` if there is no primary; `environment` if the server refuses the
    /// user, stands alone, or is too old.
    pub async fn connect(self) -> Result<MongoStore, Error> {
        let url = self.url.clone();
        let store = self.connect_lazy().await?;
        match refuse_unfit(&store).await {
            Ok(()) => Ok(store),
            Err(error) => Err(explained(url.expose(), error).await.into()),
        }
    }

    /// Makes the store without connecting; the first use does. A `mongodb+srv://` URL is looked up all the same.
    ///
    /// # Errors
    /// If the URL is wrong or names no database.
    pub async fn connect_lazy(self) -> Result<MongoStore, Error> {
        let reading = "reading the store's URL";
        let mut options = ClientOptions::parse(self.url.expose())
            .await
            .map_err(|error| StoreError::new(ErrorClass::Failed, reading, error))?;
        options.app_name = Some(orphans::name(options.app_name.as_deref()));
        options.server_selection_timeout =
            self.server_timeout.or(options.server_selection_timeout).or(Some(SERVER_TIMEOUT));
        options.heartbeat_freq.get_or_insert(HEARTBEAT);
        // What the URL says about them would weaken the promise.
        options.write_concern = Some(majority());
        options.read_concern = Some(ReadConcern::majority());
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
        let Some(database) = options.default_database.clone() else {
            return Err(StoreError::new(
                ErrorClass::Failed,
                reading,
                "it names no database: write mongodb://USER:PASSWORD@HOST/DATABASE?replicaSet=NAME",
            )
            .into());
        };
        let further = match (&self.adopt, self.event_type) {
            (Some(adopt), Some(_)) => {
                let why = format!(
                    "event_type is for oncebox's own receipts: write `set = {{ FIELD = \"header:NAME\" }}` for those in {adopt}"
                );
                return Err(StoreError::new(ErrorClass::Failed, "reading the store's settings", why).into());
            }
            (Some(adopt), None) => adopt.further().to_vec(),
            (None, Some(selector)) => vec![(EVENT_TYPE.to_owned(), selector)],
            (None, None) => Vec::new(),
        };
        let messages = client(&options, self.max_connections)?;
        let aside = client(&options, ASIDE_CONNECTIONS)?;
        let adopted = self.adopt.map(Adopted::new);
        Ok(MongoStore::new(&messages, &aside, &database, self.limits, adopted, further))
    }
}

fn client(options: &ClientOptions, connections: u32) -> StoreResult<Client> {
    let mut options = options.clone();
    options.max_pool_size = Some(connections);
    options.min_pool_size = None;
    // Whoever has no connection left is taken for gone: see `orphans`.
    options.max_idle_time = None;
    Client::with_options(options).context_of_begin(CONNECTING)
}

/// Confirmed by the journals of the majority: what is read then cannot be taken back by a failover.
pub(crate) fn majority() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let builder = MongoStore::builder("mongodb://erp:hunter2@localhost/erp");
        assert!(!format!("{builder:?}").contains("hunter2"));
    }
}
