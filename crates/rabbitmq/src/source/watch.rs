//! Looks now and then how much waits in the queue: for the lag, and for retention, which counts from when nothing did.

use std::time::Duration;

use lapin::options::{BasicQosOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Queue};
use oncebox_core::source::Instant;

use crate::connection::{Connection, answer};
use crate::error::{Error, code};

/// How often it is looked.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Asks for the queue, on a channel of its own: to ask for one that is not there closes the channel.
pub(crate) async fn look(connection: &Connection, queue: &ShortString) -> Result<Queue, Error> {
    let channel = connection.channel().await?;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let asking = channel.queue_declare(queue.clone(), passive, FieldTable::default());
    match answer(&format!("looking for queue {queue}"), asking).await {
        Ok(found) => {
            answer("closing a channel", channel.close(200, "done".into())).await?;
            Ok(found)
        }
        Err(error) if error.code() == Some(code::NOT_FOUND) => Err(Error::NoQueue(queue.to_string())),
        Err(error) => Err(error),
    }
}

/// What was seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// How many messages waited in the queue.
    pub(super) waiting: u32,
    /// When nothing waited, when that was asked. Whatever the broker had sent us by then has arrived at the client.
    pub(super) empty_at: Option<Instant>,
}

/// Looks, and if nothing waits makes sure that what is on its way to us has arrived.
pub(super) async fn look_closely(
    connection: &Connection,
    consuming: &Channel,
    queue: &ShortString,
    prefetch: u16,
) -> Result<Seen, Error> {
    let asked = Instant::now();
    let waiting = look(connection, queue).await?.message_count();
    if waiting > 0 {
        return Ok(Seen { waiting, empty_at: None });
    }
    // The broker answers in the order in which it sends: behind this answer there is nothing that it had sent before. (It sets
    // what is set already.)
    let again = consuming.basic_qos(prefetch, BasicQosOptions::default());
    answer("waiting for what is on its way", again).await?;
    Ok(Seen { waiting, empty_at: Some(asked) })
}
