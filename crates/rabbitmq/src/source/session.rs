//! One connection that reads a queue, from its beginning to its end.
//!
//! Whatever happens to the connection, the channel or the consumer ends the session: what is in memory is dropped, since the broker
//! delivers it again, and the source begins anew. The client could mend connections by itself; it would not know what of the old one
//! is still in a transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Consumer};
use oncebox_core::backoff::GIVEN_BACK;
use oncebox_core::source::{Answered, Intake, LogId, OpenStream, Stream};
use tokio::sync::mpsc::{self, Receiver, Sender, unbounded_channel};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use super::RabbitmqSource;
use super::acknowledge::Acknowledger;
use super::health::{Counts, Health};
use super::record::Mapping;
use super::watch::{self, LOOK_EVERY, Seen};
use crate::connection::{Connection, answer};
use crate::error::Error;

pub(super) struct Session<'s> {
    source: &'s RabbitmqSource,
    queue: ShortString,
    stream: CloseOnDrop,
    consumer: Consumer,
    acknowledger: Acknowledger,
    mapping: Mapping,
    counts: Arc<Counts>,
    channel: Channel,
    // Last: what goes before may still say goodbye.
    connection: Connection,
}

/// Whoever drops the source without stopping it first must not leave work behind.
struct CloseOnDrop(Stream);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<'s> Session<'s> {
    /// Connects, looks for the queue, and begins to read it.
    pub(super) async fn open(source: &'s RabbitmqSource, intake: &Intake) -> Result<Self, Error> {
        let name = format!("oncebox {}", intake.consumer());
        let connection = source.rabbitmq.connect(&name).await?;
        let queue = queue_name(&source.queue)?;
        watch::look(&connection, &queue).await?;
        let channel = connection.channel().await?;
        let prefetch = channel.basic_qos(source.prefetch, BasicQosOptions::default());
        answer("setting the prefetch", prefetch).await?;

        let counts = Arc::new(Counts::default());
        let (tell, answers) = unbounded_channel();
        let on_answer = move |answered: &[Answered]| {
            for one in answered {
                // Nobody listens after the end of a session.
                tell.send(one.clone()).ok();
            }
        };
        let open = OpenStream::queue(&*source.queue)
            .system("rabbitmq")
            .give_back_after(GIVEN_BACK)
            .says_redelivered()
            .on_answer(on_answer);
        let stream = intake.open(open);
        let stream = CloseOnDrop(stream);
        let id = Uuid::now_v7();
        let tag = ShortString::try_new(format!("{} {id}", intake.consumer())).unwrap_or_default();
        let consume =
            channel.basic_consume(queue.clone(), tag, BasicConsumeOptions::default(), FieldTable::default());
        let consumer = answer(&format!("reading queue {queue}"), consume).await?;
        info!(consumer = intake.consumer(), queue = %queue, "reading");
        Ok(Self {
            source,
            mapping: Mapping {
                queue: source.queue.as_str().into(),
                log: LogId::new(id.to_string()),
                key: source.key.clone(),
            },
            acknowledger: Acknowledger::new(channel.clone(), answers, Arc::clone(&counts)),
            counts,
            queue,
            stream,
            consumer,
            channel,
            connection,
        })
    }

    /// Reads until it is told to stop, the consumer is paused, or something breaks.
    pub(super) async fn run(
        mut self,
        intake: &Intake,
        health: &Health,
        stop: &CancellationToken,
    ) -> Result<(), Error> {
        let (tell_seen, seen) = mpsc::channel(1);
        let (stream, counts) = (self.stream.0.clone(), Arc::clone(&self.counts));
        let told = |seen: &Seen| health.saw(seen.waiting, &counts, &stream);
        let reading = read(&mut self.consumer, &self.mapping, &stream, &counts, seen, told);
        let watching =
            watching(&self.connection, &self.channel, &self.queue, self.source.prefetch, &tell_seen);
        let broken = tokio::select! {
            () = stop.cancelled() => None,
            () = intake.paused() => None,
            error = reading => Some(error),
            error = self.acknowledger.run() => Some(error),
            error = watching => Some(error),
        };
        self.end().await;
        broken.map_or(Ok(()), Err)
    }

    /// Ends what is under way, acknowledges what is settled, and gives the rest back, as far as the broker still listens.
    async fn end(mut self) {
        let listens = self.connection.is_up() && self.channel.status().connected();
        if listens {
            let cancel = self.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
            // The channel is closed soon; what it still delivers is given back then.
            answer("cancelling the consumer", cancel).await.ok();
        }
        let budget = self.source.drain_budget;
        let finish = async {
            tokio::select! {
                () = self.stream.0.finish() => true,
                // The transactions go on: they are waited for all the same.
                _ = self.acknowledger.run() => false,
            }
        };
        match timeout(budget, finish).await {
            Ok(true) => {}
            Ok(false) => drop(timeout(budget, self.stream.0.finish()).await),
            Err(_) => {
                warn!(queue = %self.queue, ?budget, "transactions take too long to end; not waiting for them");
            }
        }
        if listens {
            // What the client holds and we have not taken.
            while let Some(Some(Ok(delivery))) = self.consumer.next().now_or_never() {
                self.counts.delivered.store(delivery.delivery_tag, Ordering::Relaxed);
            }
            // If that fails, the broker delivers again what is settled, and the receipts say so.
            self.acknowledger.finish(self.counts.delivered.load(Ordering::Relaxed)).await.ok();
        }
        self.connection.close().await;
    }
}

/// The name of a queue as the protocol carries it.
pub(super) fn queue_name(queue: &str) -> Result<ShortString, Error> {
    ShortString::try_new(queue)
        .map_err(|_| Error::Setting(format!("{queue:?} is longer than a queue's name may be")))
}

/// Hands over what is delivered, as long as the stream has room, and tells it when the queue was empty.
async fn read(
    consumer: &mut Consumer,
    mapping: &Mapping,
    stream: &Stream,
    counts: &Counts,
    mut seen: Receiver<Seen>,
    told: impl Fn(&Seen),
) -> Error {
    loop {
        tokio::select! {
            // In this order: when the second is looked at, all that had arrived is handed over.
            biased;
            delivery = consumer.next() => match delivery {
                Some(Ok(delivery)) => {
                    counts.delivered.store(delivery.delivery_tag, Ordering::Relaxed);
                    // A stream that stands still takes nothing. The broker keeps what is not acknowledged.
                    stream.send(mapping.record(delivery)).await;
                }
                Some(Err(error)) => return Error::request(format!("reading queue {}", mapping.queue), &error),
                None => return Error::Cancelled(mapping.queue.to_string()),
            },
            Some(seen) = seen.recv() => {
                told(&seen);
                if let Some(asked) = seen.empty_at && stream.stopped().is_none() {
                    stream.nothing_waits(asked);
                }
            }
        }
    }
}

async fn watching(
    connection: &Connection,
    channel: &Channel,
    queue: &ShortString,
    prefetch: u16,
    tell: &Sender<Seen>,
) -> Error {
    loop {
        match watch::look_closely(connection, channel, queue, prefetch).await {
            // One that could not be told is told the next time.
            Ok(seen) => drop(tell.try_send(seen)),
            Err(error) => return error,
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
