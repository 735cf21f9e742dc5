//! The way people write it: the receipt first, then the order, then the event, then the offset. Four steps, and a process can
//! die between any two of them.

use std::time::Duration;

use mongodb::bson::{DateTime, Document, doc};
use mongodb::error::{Error, ErrorKind, WriteFailure};
use mongodb::{Client, Collection};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{Offset, TopicPartitionList};

use crate::crash;
use crate::order::{COMMANDS, CREATED, Order};

const DUPLICATE_KEY: i32 = 11000;

/// Reads commands from where it left off, until the `end` of the topic.
pub(crate) async fn run(url: &str, brokers: &str, end: i64) -> oncebox::Result {
    let database = Client::with_uri_str(url).await?.default_database().ok_or("the URL names no database")?;
    let inbox: Collection<Document> = database.collection("inbox_event");
    let orders: Collection<Order> = database.collection("orders");
    let config = || ClientConfig::new().set("bootstrap.servers", brokers).clone();
    let producer: ThreadedProducer<DefaultProducerContext> = config().create()?;
    let consumer: BaseConsumer =
        config().set("group.id", "two-step").set("enable.auto.commit", "false").create()?;
    let mut place = TopicPartitionList::new();
    place.add_partition_offset(COMMANDS, 0, Offset::Beginning)?;
    let committed = consumer.committed_offsets(place.clone(), Duration::from_secs(10))?;
    if let Some(Offset::Offset(next)) = committed.find_partition(COMMANDS, 0).map(|found| found.offset()) {
        place.set_partition_offset(COMMANDS, 0, Offset::Offset(next))?;
        if next >= end {
            return Ok(());
        }
    }
    consumer.assign(&place)?;
    loop {
        let Some(message) = consumer.poll(Duration::from_secs(1)) else { continue };
        let message = message?;
        let command: Order = serde_json::from_slice(message.payload().unwrap_or_default())?;

        let receipt =
            doc! { "_id": &command.order, "eventType": "PlaceOrder", "receivedAt": DateTime::now() };
        match inbox.insert_one(receipt).await {
            Ok(_) => {
                crash::in_the_middle();
                orders.insert_one(&command).await?;
                let event = serde_json::to_string(&command)?;
                let event = BaseRecord::to(CREATED).key(&command.order).payload(&event);
                producer.send(event).map_err(|(error, _)| error)?;
                producer.flush(Duration::from_secs(10))?;
            }
            // It is there already: a copy, and so it must have been done.
            Err(error) if is_duplicate(&error) => {}
            Err(error) => return Err(error.into()),
        }
        place.set_partition_offset(COMMANDS, 0, Offset::Offset(message.offset() + 1))?;
        consumer.commit(&place, CommitMode::Sync)?;
        if message.offset() + 1 >= end {
            return Ok(());
        }
    }
}

fn is_duplicate(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Write(WriteFailure::WriteError(e)) if e.code == DUPLICATE_KEY)
}
