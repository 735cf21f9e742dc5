//! How the messages of the demo travel: through Kafka, through RabbitMQ, or as requests.

use std::time::Duration;

use super::database::Database;
use super::http::Doors;
use super::kafka::Broker;
use super::producer::{Carrier, Producer};
use super::rabbitmq::Post;
use crate::args::{DemoArgs, DemoSource};
use crate::exit::{Exit, Failure};

/// One of the ways.
pub(crate) enum Courier {
    Kafka(Broker),
    Rabbitmq(Box<Post>),
    Http(Doors),
}

/// What a consumer's configuration says about it.
pub(crate) struct Sections {
    /// Sections of their own.
    pub(crate) broker: String,
    /// Keys of the inbox.
    pub(crate) inbox: String,
}

impl Courier {
    pub(crate) fn new(args: &DemoArgs) -> Result<Self, Failure> {
        if args.rabbitmq.is_some() && args.source != DemoSource::Rabbitmq {
            let text = "--rabbitmq is for --source rabbitmq: say that too".to_owned();
            return Err(Failure { exit: Exit::Usage, text });
        }
        Ok(match args.source {
            DemoSource::Kafka => Self::Kafka(Broker::new(args.brokers.as_deref())?),
            DemoSource::Rabbitmq => Self::Rabbitmq(Box::new(Post::new(args.rabbitmq.as_deref())?)),
            DemoSource::Http => Self::Http(Doors::new()?),
        })
    }

    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        match self {
            Self::Kafka(broker) => broker.create_topics().await,
            Self::Rabbitmq(post) => post.make_queue().await,
            Self::Http(_) => Ok(()),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Kafka(broker) => broker.describe(),
            Self::Rabbitmq(post) => post.describe(),
            Self::Http(doors) => doors.describe(),
        }
    }

    /// What the nth process reads in its nth life.
    pub(crate) fn sections(&self, process: usize, life: u32) -> Sections {
        match self {
            Self::Kafka(broker) => broker.sections(process, life),
            Self::Rabbitmq(post) => post.sections(),
            Self::Http(doors) => doors.sections(process),
        }
    }

    /// What the configuration leaves to the environment.
    pub(crate) fn variable(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Rabbitmq(post) => Some(post.variable()),
            Self::Kafka(_) | Self::Http(_) => None,
        }
    }

    pub(crate) async fn carrier(&self) -> Result<Box<dyn Carrier>, Failure> {
        Ok(match self {
            Self::Kafka(broker) => Box::new(broker.carrier()?),
            Self::Rabbitmq(post) => Box::new(post.carrier().await?),
            Self::Http(doors) => Box::new(doors.carrier()),
        })
    }

    /// How many of the records that were sent have arrived at consumers. Senders of requests wait for them.
    pub(crate) async fn read(&self, database: &Database, producer: &Producer) -> Result<i64, Failure> {
        // Before the queue is looked at: what is sent meanwhile waits there.
        let produced = producer.produced();
        match self {
            Self::Kafka(_) => database.read_up_to().await,
            Self::Rabbitmq(post) => Ok(produced - post.waiting().await?),
            Self::Http(_) => Ok(produced),
        }
    }

    /// Whether a message that is rejected becomes a dead letter. Who sends a request hears of it instead.
    pub(crate) fn parks(&self) -> bool {
        matches!(self, Self::Kafka(_) | Self::Rabbitmq(_))
    }

    /// How long nothing must have moved before it is worth looking whether all that has arrived is settled.
    pub(crate) fn quiet(&self) -> Duration {
        match self {
            Self::Rabbitmq(_) => Post::QUIET,
            Self::Kafka(_) | Self::Http(_) => Duration::ZERO,
        }
    }

    /// How many records are not settled, once all were read and no consumer runs: they have given back what they had.
    pub(crate) async fn left(&self) -> Result<i64, Failure> {
        match self {
            Self::Rabbitmq(post) => post.waiting().await,
            Self::Kafka(_) | Self::Http(_) => Ok(0),
        }
    }

    /// Copies that were skipped, as far as is known.
    pub(crate) async fn duplicates(&self, database: &Database) -> Result<i64, Failure> {
        match self {
            Self::Kafka(_) | Self::Rabbitmq(_) => database.duplicates().await,
            Self::Http(doors) => Ok(doors.replayed()),
        }
    }

    /// Whether that is all of them. The counts of a queue are written every few seconds, and who is killed takes them along.
    pub(crate) fn knows_all_duplicates(&self) -> bool {
        matches!(self, Self::Kafka(_) | Self::Http(_))
    }

    /// What the rows of the verdict are called that depend on it: records delivered, and copies among them.
    pub(crate) fn rows(&self) -> [&'static str; 2] {
        match self {
            Self::Kafka(_) => ["records delivered", "  duplicates suppressed"],
            Self::Rabbitmq(_) => ["records delivered, at least", "  duplicates suppressed, at least"],
            Self::Http(_) => ["requests brought to an end", "  answered as applied before"],
        }
    }

    pub(crate) async fn tidy(&self) {
        match self {
            Self::Kafka(broker) => broker.remove_topics().await,
            Self::Rabbitmq(post) => post.remove_queue().await,
            Self::Http(_) => {}
        }
    }
}
