//! What `oncebox check` finds out about queues and exchanges. Nothing here reads a message or changes anything.
//!
//! AMQP tells whether a queue is there, how many messages wait in it and how many consumers it has; with some cunning
//! ([`arguments`]) how it was made. It does not tell what a policy adds to that, how many nodes hold a quorum queue, what is out with
//! other consumers, and which limits the broker has: for that there is RabbitMQ's management plugin, which is not asked here.

mod arguments;

use lapin::types::ShortString;
use oncebox_core::store::Finding;

pub use arguments::Arguments;

use crate::connection::Connection;
use crate::error::Error;
use crate::settings::Rabbitmq;
use crate::source::watch;

/// What a queue looks like from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueState {
    /// How many messages wait in it. What is out with consumers is not among them.
    pub waiting: u32,
    /// How many consumers it has.
    pub consumers: u32,
    /// How it was made, as far as the broker says. What a policy adds is not seen.
    pub arguments: Option<Arguments>,
}

/// What a consumer wants of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// After how many ends of the process a message is parked: `Settings::crash_limit`.
    pub crash_limit: u32,
    /// Whether the order of messages with the same key matters.
    pub in_order: bool,
}

impl Rabbitmq {
    /// Looks at a queue.
    ///
    /// # Errors
    /// [`Error::NoQueue`] if there is none; otherwise, why the broker did not answer.
    pub async fn queue_state(&self, queue: &str) -> Result<QueueState, Error> {
        let connection = self.connect("oncebox check").await?;
        let state = state(&connection, queue).await;
        connection.close().await;
        state
    }

    /// What is right and wrong with a queue that is to be read.
    pub async fn check_queue(&self, queue: &str, wanted: Wanted) -> Vec<Finding> {
        let subject = format!("queue {queue}");
        match self.queue_state(queue).await {
            Ok(state) => state.findings(&subject, wanted),
            Err(error) => vec![Finding::error(subject, error.to_string())],
        }
    }
}

impl QueueState {
    /// What is right and wrong with a queue that is to be read.
    #[must_use]
    pub fn findings(&self, subject: &str, wanted: Wanted) -> Vec<Finding> {
        findings(subject, self, wanted)
    }
}

async fn state(connection: &Connection, queue: &str) -> Result<QueueState, Error> {
    let name = ShortString::try_new(queue)
        .map_err(|_| Error::Setting(format!("{queue:?} is longer than a queue's name may be")))?;
    let found = watch::look(connection, &name).await?;
    let arguments = arguments::arguments(connection, &name).await?;
    Ok(QueueState { waiting: found.message_count(), consumers: found.consumer_count(), arguments })
}

fn findings(subject: &str, state: &QueueState, wanted: Wanted) -> Vec<Finding> {
    let ok = |detail: String| Finding::ok(subject, detail);
    let warning = |detail: String| Finding::warning(subject, detail);
    let QueueState { waiting, consumers, arguments } = state;
    let mut findings = vec![ok(format!("{waiting} messages wait, {consumers} consumers"))];
    let Some(arguments) = arguments else {
        findings.push(ok(
            "how it was made cannot be told: the user may not declare it, or the broker's answer is not understood".to_owned(),
        ));
        return findings;
    };
    if !arguments.durable {
        findings.push(warning(
            "it does not outlive a restart of the broker, nor do its messages; make it durable".to_owned(),
        ));
    }
    let ends = wanted.crash_limit.saturating_add(1);
    match (arguments.queue_type.as_str(), &arguments.dead_letter_exchange, arguments.delivery_limit) {
        ("quorum", dead, limit) => {
            let limited = limit.map_or_else(
                || "no x-delivery-limit (RabbitMQ 4 takes 20, older versions none)".to_owned(),
                |limit| format!("x-delivery-limit {limit}"),
            );
            findings.push(ok(format!("a quorum queue, {limited}")));
            if let Some(limit) = limit.filter(|limit| *limit >= 0 && *limit < i64::from(ends)) {
                findings.push(warning(format!(
                    "x-delivery-limit {limit} is too low: a message that ends the process is found and parked after {ends} ends, and by then \
                     the broker has given up everything that was out with it; make it 20 or more"
                )));
            }
            if dead.is_none() {
                findings.push(warning(
                    "no dead-letter exchange in its arguments: what reaches the delivery limit is dropped by the broker, unless a policy names \
                     one"
                        .to_owned(),
                ));
            }
        }
        ("stream", ..) => findings.push(Finding::error(
            subject,
            "a stream, not a queue: it keeps its messages, and acknowledging them has no meaning; read a queue".to_owned(),
        )),
        (kind, ..) => findings.push(warning(format!(
            "a {kind} queue: it is on one node, and away or lost with it; a quorum queue is replicated"
        ))),
    }
    if wanted.in_order && *consumers > 1 && !arguments.single_active_consumer {
        findings.push(warning(format!(
            "{consumers} consumers share it without x-single-active-consumer: two messages of one key may be with two of them at once, and be \
             applied in any order"
        )));
    }
    findings
}

#[cfg(test)]
mod tests {
    use oncebox_core::store::FindingLevel;

    use super::*;

    const WANTED: Wanted = Wanted { crash_limit: 3, in_order: true };

    fn quorum() -> Arguments {
        Arguments {
            durable: true,
            queue_type: "quorum".to_owned(),
            dead_letter_exchange: Some("dead".to_owned()),
            delivery_limit: Some(20),
            single_active_consumer: false,
        }
    }

    fn complaints(consumers: u32, arguments: Arguments) -> String {
        let state = QueueState { waiting: 0, consumers, arguments: Some(arguments) };
        let findings = findings("q", &state, WANTED).into_iter();
        let bad = findings.filter(|finding| finding.level != FindingLevel::Ok).map(|finding| finding.detail);
        bad.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn what_is_wrong_with_a_queue_is_said() {
        assert_eq!(complaints(1, quorum()), "");
        let low = complaints(1, Arguments { delivery_limit: Some(3), ..quorum() });
        assert!(low.contains("too low") && low.contains("after 4 ends"), "{low}");
        assert_eq!(complaints(1, Arguments { delivery_limit: Some(4), ..quorum() }), "");
        assert_eq!(complaints(1, Arguments { delivery_limit: Some(-1), ..quorum() }), "", "no limit");
        let no_letters = complaints(1, Arguments { dead_letter_exchange: None, ..quorum() });
        assert!(no_letters.contains("dead-letter exchange"), "{no_letters}");
        let classic = complaints(1, Arguments { queue_type: "classic".to_owned(), ..quorum() });
        assert!(classic.contains("one node"), "{classic}");
        let transient = complaints(1, Arguments { durable: false, ..quorum() });
        assert!(transient.contains("restart"), "{transient}");
        let stream = complaints(1, Arguments { queue_type: "stream".to_owned(), ..quorum() });
        assert!(stream.contains("a stream, not a queue"), "{stream}");
        assert!(complaints(2, quorum()).contains("2 consumers share it"));
        assert_eq!(complaints(2, Arguments { single_active_consumer: true, ..quorum() }), "");
    }
}
