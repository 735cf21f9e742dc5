//! The webhook sink of oncebox: every event becomes one HTTP request to an address of your choice.
//!
//! ```
//! use std::time::Duration;
//!
//! use oncebox::webhook::Webhook;
//!
//! let sink = Webhook::to("http://127.0.0.1:8080/events")?
//!     .secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?
//!     .header("authorization", "Bearer 0123456789")?
//!     .timeout(Duration::from_secs(5))
//!     .at_once(16)
//!     .into_sink();
//! # Ok::<(), oncebox::webhook::Error>(())
//! ```
//!
//! Events of one key arrive one after the other, in their order; other keys go on meanwhile. An event may arrive more than
//! once, always with the same id: the receiver keeps the ids it has seen, as an oncebox inbox does.
//!
//! # The request
//!
//! `POST`, with the payload as it is. A tombstone has an empty body and no `content-type`.
//!
//! | header | value |
//! |---|---|
//! | `content-type` | the event's own, otherwise `application/octet-stream` |
//! | `idempotency-key`, `oncebox-id` | the id of the event, the same in every attempt |
//! | `ce-id`, `ce-source`, `ce-type`, `ce-time`, `ce-specversion` | CloudEvents 1.0, binary mode |
//! | `oncebox-topic` | the topic |
//! | `oncebox-key` | the key, if it is printable ASCII |
//! | `oncebox-causation-id` | the id of the message that caused the event, if one did |
//! | `webhook-id`, `webhook-timestamp`, `webhook-signature` | the signature, if there is a secret |
//!
//! The other headers of the event are passed on: `traceparent`, and whatever else HTTP can carry (the name is a token, the
//! value is printable ASCII). Where a name repeats, the last one counts. A header that steers the connection or speaks for
//! the sender (`host`, `cookie`, `authorization`, `x-forwarded-for` and the like) is never taken from an event; the
//! configuration may set it with [`Webhook::header`].
//!
//! # The signature
//!
//! As the open Standard Webhooks specification has it: `webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over
//! `<webhook-id>.<webhook-timestamp>.<body>`. Its libraries, in many languages, check it. The time is that of the attempt, so
//! that a receiver can refuse old copies. To change a secret, give both for a while: the header then holds both signatures.
//!
//! # The answer
//!
//! | answer | what follows |
//! |---|---|
//! | 2xx | delivered |
//! | 400, 410, 413, 415, 422 ([`Webhook::park_on`]) | parked, with the status and the beginning of the answer: this very event is wrong |
//! | anything else, also 401, 403, 404 and redirects; no answer in time, no connection | another try, with the usual backoff |
//!
//! A receiver in trouble is spared. When five different events have failed one after another, nothing is sent for a while, and then
//! one request tries whether it is back; the pauses grow as the backoff does. Meanwhile the events wait without using up their attempts.
//! `Retry-After`, in seconds or as a date, holds the whole receiver (at most an hour). When ten different events were refused one after
//! another, no more are parked until one is delivered. Keys whose requests get no answer in time share one request at a time.
//! `Sink::standing` says how the receiver is, and a relay shows it with its [`Monitor`](oncebox_core::monitor::Monitor).
//!
//! # Secrets
//!
//! Errors, logs and `Debug` show scheme, host and port of the address (many receivers keep a token in the path) and no header values.
//! An answer that repeats a secret, or a part of the path, is cleaned before it becomes part of an error.

mod address;
mod answer;
mod breaker;
mod client;
mod error;
mod failure;
mod gate;
mod request;
mod signature;
mod slow;
mod text;
mod webhook;

pub use error::Error;
pub use webhook::{DEFAULT_AT_ONCE, DEFAULT_PARK_ON, DEFAULT_TIMEOUT, Webhook};
