//! The RabbitMQ source and sink of oncebox, built on lapin.
//!
//! ```no_run
//! use oncebox::rabbitmq::Rabbitmq;
//!
//! let rabbitmq = Rabbitmq::nodes("amqps://erp:secret@one/shop,amqps://erp:secret@two/shop")?;
//!
//! // What an inbox reads, and where the events of a relay go.
//! let source = rabbitmq.source("stock.updates").prefetch(1_000);
//! let sink = rabbitmq.sink("events")?.route("mail.*", "mail", "{topic}.{key}")?;
//! # Ok::<(), oncebox::rabbitmq::Error>(())
//! ```
//!
//! # The address
//!
//! `amqp://user:password@host:5672/vhost`, or `amqps://` for TLS; one for each node of a cluster, with commas between them. A node is
//! chosen by chance, and the others are tried if it does not answer. What is special in a password or a virtual host is written as `%XX`; without
//! a virtual host it is `/`. Parameters, named as RabbitMQ's own clients name them; another one is an error:
//!
//! | parameter | meaning |
//! |---|---|
//! | `heartbeat` | in seconds; a node that is silent for twice as long is given up. Default 15 |
//! | `connection_timeout` | in milliseconds. Default 10,000 |
//! | `auth_mechanism` | `plain`, or `external` for a user whose certificate is enough |
//! | `cacertfile` | whom to trust, in PEM form. Default: the authorities of the machine |
//! | `certfile`, `keyfile` | who we are, in PEM form |
//! | `server_name_indication` | the name in the broker's certificate, if it is not the host |
//!
//! Certificates are always checked. Neither errors nor `Debug` show a password, and the log of the client, which holds whole messages, is not
//! passed on.
//!
//! # The source
//!
//! It reads a queue that exists; it makes none. What the broker sends ahead ([`RabbitmqSource::prefetch`]) is in memory. A message is
//! acknowledged after the commit of its transaction, on the channel that delivered it, together with all before it where that is right.
//!
//! Whatever happens to the connection, the channel or the consumer (a node restarts, a queue gets another leader, is deleted or moved, a handler
//! is slower than the broker's `consumer_timeout`) ends the same way: what was not begun is dropped, transactions in flight end, and a new
//! connection begins with what the broker delivers again. What was committed and not acknowledged is recognised by its receipt.
//!
//! A message becomes a record:
//!
//! | part of the record | of the message |
//! |---|---|
//! | payload | the body; none if it is empty |
//! | headers | the headers: text and bytes as they are, numbers as text, tables and lists as JSON |
//! | header `content-type` | the property `content_type`, unless there is such a header |
//! | headers `ce_…` | of a CloudEvent with the prefix `cloudEvents:` or `cloudEvents_`: its attributes |
//! | headers `property:…` | the [properties](PROPERTIES), the exchange and the routing key: for selectors such as `property:message_id` |
//! | key | wherever [`RabbitmqSource::key`] says; by default the header `oncebox-key` |
//! | timestamp | the header `timestamp_in_ms`, or the property `timestamp` |
//! | place | the queue, and the number that the channel gave the delivery |
//!
//! A property, the name of a header or a routing key that is not UTF-8 is left out.
//!
//! # The sink
//!
//! It publishes each event to an exchange that exists, persistent and with `mandatory`, and waits for the broker's confirmation.
//!
//! | part of the message | of the event |
//! |---|---|
//! | exchange, routing key | of the first [route](RabbitmqSink::route) that fits the topic; the topic is the routing key by default |
//! | body | the payload; empty if there is none |
//! | properties | `message_id`: the id. `type`: `ce_type`. `content_type`. `timestamp`: when it was written. `delivery_mode` 2 |
//! | headers | those that the Kafka sink sends: `oncebox-id`, `ce_id`, `ce_source`, `ce_type`, `ce_time`, `ce_specversion`, `oncebox-causation-id`, and the event's own. Of those with the same name, the last |
//! | header `oncebox-key` | the key |
//!
//! An event follows another one of its key only when that one is confirmed: otherwise the first might be refused and the second not.
//! So a batch of events that all have the same key goes out one by one.
//!
//! # Limits
//!
//! * A quorum queue counts deliveries that went wrong, and gives messages up at its limit: see `docs/guides/rabbitmq.md`.
//! * Order for each key needs one consumer, or `x-single-active-consumer`: a broker that gives messages of one key to two consumers has no
//!   order to keep.
//! * As many messages as the prefetch allows are in memory, however large they are.
//! * Streams are not read.
//!
//! # Which file does what
//!
//! | file | what it does |
//! |---|---|
//! | `settings.rs`, `address.rs`, `tls.rs` | how to reach a cluster |
//! | `connection.rs`, `runtime.rs` | a connection, made, cut and closed within bounds; what the client runs on |
//! | `legible.rs` | text that is not UTF-8, which the client would end the connection at |
//! | `error.rs` | errors |
//! | `source.rs`, `source/session.rs` | the source; one connection of it, from its beginning to its end |
//! | `source/record.rs`, `source/table.rs` | a message as a record |
//! | `source/acknowledge.rs`, `source/acks.rs` | from the engine's answers to acknowledgements; which go together |
//! | `source/watch.rs`, `source/health.rs` | how much waits; lag, retention, `/healthz` |
//! | `sink.rs`, `sink/batch.rs` | the sink; what is sent together, and what became of each event |
//! | `sink/pool.rs`, `sink/publisher.rs` | the connections, one batch each; publishing with confirmations |
//! | `sink/route.rs`, `sink/message.rs` | where an event goes; an event as a message |
//! | `check.rs`, `check/arguments.rs` | what `oncebox check` finds out |
//! | `own_queue.rs` | a queue for `oncebox demo` |

mod address;
mod check;
mod connection;
mod error;
mod legible;
mod own_queue;
mod runtime;
mod settings;
mod sink;
mod source;
mod tls;

pub use check::{Arguments, QueueState, Wanted};
pub use error::Error;
#[doc(hidden)]
pub use own_queue::{Filler, OwnQueue};
pub use settings::{DEFAULT_CONNECT_TIMEOUT, DEFAULT_HEARTBEAT, Rabbitmq};
pub use sink::RabbitmqSink;
pub use source::{DEFAULT_PREFETCH, PROPERTIES, RabbitmqSource, check_selector};
