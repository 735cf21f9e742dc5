//! How to reach a cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use oncebox_core::secret::Secrets;

use crate::address::Address;
use crate::error::Error;

/// How long a connection may take unless [`Rabbitmq::connect_timeout`] or the URL says otherwise.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often both sides say that they are there unless [`Rabbitmq::heartbeat`] or the URL says otherwise.
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(15);

/// A RabbitMQ cluster: its nodes and how to talk to them. Cheap to clone.
#[derive(Clone)]
pub struct Rabbitmq {
    pub(crate) addresses: Arc<[Address]>,
    pub(crate) connect_timeout: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) secrets: Secrets,
}

impl Rabbitmq {
    /// The cluster behind these URLs: one for each node, several with commas between them. See [the module](crate) for what a URL
    /// may say.
    pub fn nodes(urls: impl AsRef<str>) -> Result<Self, Error> {
        let mut secrets = Secrets::default();
        let addresses = Address::parse_all(urls.as_ref(), &mut secrets)?.into();
        Ok(Self {
            addresses,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            heartbeat: DEFAULT_HEARTBEAT,
            secrets,
        })
    }

    /// How long it may take until a node takes a connection: [`DEFAULT_CONNECT_TIMEOUT`] unless said otherwise.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// A node that is silent for twice as long is given up: [`DEFAULT_HEARTBEAT`] unless said otherwise. In whole seconds, and at
    /// least one; the broker may want it shorter.
    #[must_use]
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval.max(Duration::from_secs(1));
        self
    }
}

impl fmt::Debug for Rabbitmq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rabbitmq")
            .field("nodes", &self.addresses)
            .field("connect_timeout", &self.connect_timeout)
            .field("heartbeat", &self.heartbeat)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let rabbitmq = Rabbitmq::nodes("amqp://erp:canary@one/v,amqp://erp:canary@two/v").expect("urls");
        let shown = format!("{rabbitmq:?}");
        assert!(shown.contains("erp@one:5672") && !shown.contains("canary"), "{shown}");
    }
}
