//! Every message changes your database once.
//!
//! A broker delivers a message again: after a crash, a rebalance, a relay that published twice, an operator who rewound a
//! topic. oncebox writes the stable id of the message (its receipt), the effect of your handler and the events it emits in
//! one database transaction. A copy whose receipt is already there is skipped and acknowledged.
//!
//! ```text
//!           inbox                   one transaction                    outbox
//! Kafka ──► copies are ──► receipt + effect + events + position ──► relay, in order ──► Kafka, webhooks, mail
//!   ▲       skipped        all of it, or nothing                    for each key          │
//!   └──────────────────────────── the next service, with its own inbox ◄──────────────────┘
//! ```
//!
//! A handler is a plain `async fn`. It gets the open transaction in your driver's own type:
//!
//! ```no_run
//! # #[cfg(all(feature = "kafka", feature = "postgres"))]
//! # mod example {
#![doc = include_str!("../../../examples/first.rs")]
//! # }
//! ```
//!
//! # Which page do I need?
//!
//! | I want to … | page |
//! |---|---|
//! | apply messages with a handler | [`Inbox`], then [`Worker`] |
//! | know what a handler gets and may return | [`Message`], [`Outcome`], [`reject`], [`retry_after`] |
//! | write a handler with state, or one for whole batches | [`Handler`], [`Inbox::batch`], [`handler`] |
//! | say where the id of a message is | [`Selector`] |
//! | take only some messages of a topic | [`Filter`] |
//! | use my own loop and my own transaction | [`Inbox::claim`] |
//! | tell others what happened | [`Event`], [`Emit`], then [`Relay`] |
//! | send mail or call a service, at least once | [`sink::ByEvent`] |
//! | decide what happens to a message that fails | [`OnFailure`], [`RetryPolicy`], [`Worker::replay`] |
//! | understand an error of the library | [`Error`] |
//! | know whether everything runs | [`Monitor`], [`store::Status`] |
//! | pause a consumer in every process, and let it go on | [`store::Pauses`] |
//! | replay many dead letters, change them, find a message, know who did what | [`operate`] |
//! | test a handler or a relay without a broker | [`testing::TestInbox`], [`testing::FakeSink`] |
//! | connect | [`postgres::PgStore`], [`mysql::MysqlStore`], [`mongodb::MongoStore`], [`sqlite::SqliteStore`], [`kafka::Kafka`], [`rabbitmq::Rabbitmq`], [`http::HttpInbox`], [`webhook::Webhook`] |
//! | read from or deliver to something else | [`source`], [`sink`] |
//!
//! # Features
//!
//! None is on by default: choose a store, and where messages come from.
//!
//! | feature | what it adds |
//! |---|---|
//! | `http` | [`http`]: the HTTP source, for webhooks and API calls |
//! | `kafka` | [`kafka`]: the Kafka source and sink |
//! | `mongodb` | [`mongodb`]: the MongoDB store |
//! | `mysql` | [`mysql`]: the MySQL and MariaDB store |
//! | `postgres` | [`postgres`]: the PostgreSQL store |
//! | `rabbitmq` | [`rabbitmq`]: the RabbitMQ source and sink |
//! | `sql` | [`sql`]: handlers written in SQL, with the speed of the daemon |
//! | `sqlite` | [`sqlite`]: the SQLite store |
//! | `testing` | [`testing`]: tests for handlers and relays, without a broker |
//! | `webhook` | [`webhook`]: the sink that delivers events over HTTP |
//!
//! # What it promises, and what not
//!
//! - The effect of a message on the database of its handler is applied once per (tenant, consumer, message id) within the
//!   retention, which is seven days unless [`Inbox::retention`] says otherwise.
//! - A handler may be *invoked* more than once (a crash, a deadlock, the isolation of a failing message); its effect commits
//!   once.
//! - Messages of one key are applied in the order of their partition. Events of one topic and key are published in the order
//!   in which they were written.
//! - What is not in the transaction (mail, HTTP) is not covered. Through the outbox it happens at least once, with a stable
//!   id that the receiver can tell copies by.
//! - The id must be stable. A producer that makes up a new id for each copy cannot be helped: use a business key.
//! - A message that waits for its retry holds back the messages behind it in its lane.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(inline)]
pub use oncebox_core::backoff::Backoff;
#[doc(inline)]
pub use oncebox_core::error::{BoxError, Error, Outcome, Result, reject, retry, retry_after};
#[doc(inline)]
pub use oncebox_core::inbox::{
    BatchBounds, Filter, Handler, Inbox, OnFailure, Receipt, Replayed, RetryPolicy, Selector, Settings,
    StalePolicy, StartPolicy, Worker,
};
#[doc(inline)]
pub use oncebox_core::message::Message;
#[doc(inline)]
pub use oncebox_core::monitor::Monitor;
#[doc(inline)]
pub use oncebox_core::outbox::{Emit, Event, LocalQueue, Relay, RelaySettings};
#[doc(inline)]
pub use oncebox_core::{operate, source, store, telemetry};

pub mod handler {
    //! The shapes of handlers, and the trait for those that work on whole batches.
    //!
    //! | method | the handler |
    //! |---|---|
    //! | [`each`](crate::Inbox::each) | an [`EachFn`]: `async fn(&mut Conn, &Message) -> oncebox::Result` |
    //! | [`each_json`](crate::Inbox::each_json) | an [`EachJsonFn`]: `async fn(&mut Conn, T) -> oncebox::Result` |
    //! | [`batch`](crate::Inbox::batch) | a [`BatchFn`]: `async fn(&mut Conn, &[Message]) -> oncebox::Result` |
    //! | [`with`](crate::Inbox::with) | a type that implements [`Handler`](crate::Handler) |
    //! | [`apply`](crate::Inbox::apply) | a type that implements [`Apply`] |
    //!
    //! `Conn` is the connection of your driver, such as `sqlx::PgConnection`, inside the open transaction.

    #[doc(inline)]
    pub use oncebox_core::inbox::{Apply, BatchFn, EachFn, EachJsonFn, Failure};
}

pub mod message {
    //! What a message is made of: the record that a source delivered, and the names that make up its identity.

    #[doc(inline)]
    pub use oncebox_core::inbox::{Parts, PartsError, SelectError, SelectorSyntaxError};
    #[doc(inline)]
    pub use oncebox_core::message::{Headers, PROPERTY_PREFIX, Record};
    #[doc(inline)]
    pub use oncebox_core::names::{
        ConsumerName, MAX_CONSUMER_BYTES, MAX_ID_BYTES, MAX_TENANT_BYTES, MessageId, NameError, Tenant,
    };
}

pub mod monitor {
    //! What the loops of an inbox and of a relay report to a [`Monitor`](crate::Monitor).

    #[doc(inline)]
    pub use oncebox_core::monitor::{ConsumerLag, LagReport, LoopHandle, LoopReport, Tallied};
}

pub mod outbox {
    //! The rarer parts of writing events: their limits, and how relays of this process learn of them at once.

    #[doc(inline)]
    pub use oncebox_core::outbox::{
        EventError, MAX_EVENT_HEADER_BYTES, MAX_EVENT_KEY_BYTES, MAX_EVENT_PAYLOAD_BYTES, MAX_TOPIC_BYTES,
        events_committed,
    };
}

pub mod settings {
    //! The rarer parts of [`Settings`](crate::Settings): limits of a record, the crash guard's turn, memory, who knows which
    //! consumers are paused, the clock; and settings that change while the inbox runs.

    #[doc(inline)]
    pub use oncebox_core::clock::Clock;
    #[doc(inline)]
    pub use oncebox_core::inbox::{Identity, Limits, Memory, PauseWatch, Turn, Unfit};
    #[doc(inline)]
    pub use oncebox_core::live::Live;
}

pub mod sink {
    //! Where events go, and how to write a sink of your own.
    //!
    //! For one event at a time, such as a mail or a call of another service, a function is enough: [`ByEvent::from_fn`]. It
    //! keeps the order of each key and delivers several keys at once.
    //!
    //! A sink that takes whole batches implements [`Sink`]:
    //!
    //! ```
    //! use oncebox::BoxError;
    //! use oncebox::sink::{Delivery, OutgoingEvent, Sink};
    //!
    //! /// Prints events. Who may get an event twice, as every sink may, tells the copies by their id.
    //! struct Print;
    //!
    //! impl Sink for Print {
    //!     async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
    //!         for event in events {
    //!             println!("{} {} {:?}", event.id(), event.topic(), event.payload());
    //!         }
    //!         Ok(vec![Delivery::Delivered; events.len()])
    //!     }
    //! }
    //! ```
    //!
    //! The folder `examples/own-source` has one that appends events to a file.

    #[doc(inline)]
    pub use oncebox_core::outbox::{
        ByEvent, Deliver, Delivery, KEEP_TRYING, OutgoingEvent, Sink, SinkFn, Standing,
    };
}

#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
#[doc(inline)]
pub use oncebox_http as http;
#[cfg(feature = "kafka")]
#[cfg_attr(docsrs, doc(cfg(feature = "kafka")))]
#[doc(inline)]
pub use oncebox_kafka as kafka;
#[cfg(feature = "mongodb")]
#[cfg_attr(docsrs, doc(cfg(feature = "mongodb")))]
#[doc(inline)]
pub use oncebox_mongodb as mongodb;
#[cfg(feature = "mysql")]
#[cfg_attr(docsrs, doc(cfg(feature = "mysql")))]
#[doc(inline)]
pub use oncebox_mysql as mysql;
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
#[doc(inline)]
pub use oncebox_postgres as postgres;
#[cfg(feature = "rabbitmq")]
#[cfg_attr(docsrs, doc(cfg(feature = "rabbitmq")))]
#[doc(inline)]
pub use oncebox_rabbitmq as rabbitmq;
#[cfg(feature = "sql")]
#[cfg_attr(docsrs, doc(cfg(feature = "sql")))]
#[doc(inline)]
pub use oncebox_sql as sql;
#[cfg(feature = "sqlite")]
#[cfg_attr(docsrs, doc(cfg(feature = "sqlite")))]
#[doc(inline)]
pub use oncebox_sqlite as sqlite;
#[cfg(feature = "webhook")]
#[cfg_attr(docsrs, doc(cfg(feature = "webhook")))]
#[doc(inline)]
pub use oncebox_webhook as webhook;
