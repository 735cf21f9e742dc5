//! What can go wrong between us and a broker, in words that help.

use std::time::Duration;

use lapin::ErrorKind;

/// Why something with RabbitMQ did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that is no address of a node.
    #[error(
        "the address of RabbitMQ {0}; it is like amqp://user:password@host:5672/vhost, or amqps:// for TLS"
    )]
    Address(String),
    /// A setting that cannot be.
    #[error("{0}")]
    Setting(String),
    /// TLS cannot be set up.
    #[error("no TLS to RabbitMQ: {0}")]
    Tls(String),
    /// No node takes a connection.
    #[error("no connection to RabbitMQ: {0}")]
    Unreachable(String),
    /// The queue is not there.
    #[error("queue {0} does not exist: create it, or correct its name; it is looked for again and again")]
    NoQueue(String),
    /// The exchange is not there.
    #[error(
        "exchange {exchange} does not exist: create it, or correct the route of topic {topic}; its events wait until then"
    )]
    NoExchange {
        /// The exchange.
        exchange: String,
        /// The topic whose events go there.
        topic: String,
    },
    /// Nothing is bound to the exchange for this routing key.
    #[error(
        "no queue takes the events of topic {topic}: exchange {exchange:?} has none bound for the routing key \
         {routing_key:?}; bind one, or correct the route; the events wait until then"
    )]
    Unroutable {
        /// The topic.
        topic: String,
        /// The exchange.
        exchange: String,
        /// The routing key.
        routing_key: String,
    },
    /// A batch was not published, or not all of it.
    #[error(
        "{missing} of {events} events to {topic} were not confirmed: {reason}; they will be published again"
    )]
    NotPublished {
        /// Where they go.
        topic: String,
        /// How many of them are not known to be at the broker.
        missing: usize,
        /// How many there were.
        events: usize,
        /// Why.
        reason: String,
    },
    /// The broker has ended the consumer: its queue was deleted, or has another leader.
    #[error(
        "RabbitMQ has cancelled the consumer of queue {0}: the queue was deleted or moved; beginning again"
    )]
    Cancelled(String),
    /// The broker refused something, or the connection broke.
    #[error("{what}: {reason}")]
    Request {
        /// What was asked.
        what: String,
        /// Why there is no answer.
        reason: String,
        /// The broker's code for it, if it gave one.
        code: Option<u16>,
    },
    /// The broker does not answer.
    #[error("{what}: no answer from RabbitMQ within {limit:?}")]
    Silent {
        /// What was asked.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
}

/// The broker's codes that mean something to us.
pub(crate) mod code {
    pub(crate) const ACCESS_REFUSED: u16 = 403;
    pub(crate) const NOT_FOUND: u16 = 404;
    pub(crate) const PRECONDITION_FAILED: u16 = 406;
}

/// The broker's code for an error, if it is the broker's.
pub(crate) fn code_of(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

/// What happened, without the words of the client.
pub(crate) fn reason(error: &lapin::Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(error) => error.get_message().to_string(),
        ErrorKind::IOError(error) => format!("the connection is lost ({error})"),
        ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_) => {
            "the channel is closed".to_owned()
        }
        ErrorKind::InvalidConnectionState(_) => "the connection is closed".to_owned(),
        ErrorKind::MissingHeartbeatError => "nothing was heard of the broker any more".to_owned(),
        _ => error.to_string(),
    }
}

impl Error {
    pub(crate) fn request(what: impl Into<String>, error: &lapin::Error) -> Self {
        Self::Request { what: what.into(), reason: reason(error), code: code_of(error) }
    }

    /// The broker's code, if there is one.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Self::Request { code, .. } => *code,
            _ => None,
        }
    }
}
