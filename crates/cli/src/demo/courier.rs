//! How the messages of the demo travel: through Kafka, through RabbitMQ, or as requests.

use super::http::Doors;
use super::kafka::Broker;
use super::producer::Carrier;
use crate::args::{DemoArgs, DemoSource};
use crate::exit::Failure;

/// One of the ways.
pub(crate) enum Courier {
    Kafka(Broker),
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
        Ok(match args.source {
            DemoSource::Kafka => Self::Kafka(Broker::new(args.brokers.as_deref())?),
            DemoSource::Http => Self::Http(Doors::new()?),
        })
    }

    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        match self {
            Self::Kafka(broker) => broker.create_topics().await,
            Self::Http(_) => Ok(()),
        }
    }

    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Kafka(broker) => broker.describe(),
            Self::Http(doors) => doors.describe(),
        }
    }

    /// What the nth process reads in its nth life.
    pub(crate) fn sections(&self, process: usize, life: u32) -> Sections {
        match self {
            Self::Kafka(broker) => broker.sections(process, life),
            Self::Http(doors) => doors.sections(process),
        }
    }

    pub(crate) fn carrier(&self) -> Result<Box<dyn Carrier>, Failure> {
        Ok(match self {
            Self::Kafka(broker) => Box::new(broker.carrier()?),
            Self::Http(doors) => Box::new(doors.carrier()),
        })
    }

    /// Whether everything that was sent is settled once the sender is done, without asking the database.
    pub(crate) fn answers_the_sender(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    pub(crate) async fn tidy(&self) {
        match self {
            Self::Kafka(broker) => broker.remove_topics().await,
            Self::Http(_) => {}
        }
    }
}
