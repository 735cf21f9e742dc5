//! Which sink takes which topic.

use std::sync::Arc;

use crate::error::BoxError;
use crate::inbox::RetryPolicy;
use crate::monitor::{LoopHandle, Monitor};
use crate::outbox::local::TOPIC_PREFIX;
use crate::outbox::sink::{AnySink, Delivery, OutgoingEvent, Sink};

/// A sink, the topics it takes, and how it is.
pub(super) struct Route {
    /// The topics, as they were given.
    pub(super) pattern: String,
    pub(super) sink: Arc<dyn AnySink>,
    /// How many of its batches may be under way. Asked once: the work is cut by it, and a key must stay where it is.
    pub(super) at_once: usize,
    pub(super) health: LoopHandle,
}

/// All routes; the last one takes everything.
pub(super) struct Routes(Vec<Arc<Route>>);

impl Routes {
    pub(super) fn new(
        routes: Vec<(String, Arc<dyn AnySink>)>,
        rest: Option<Arc<dyn AnySink>>,
        monitor: &Monitor,
    ) -> Self {
        let rest = Rest(rest.unwrap_or_else(|| Arc::new(NoSink)));
        let all = routes.into_iter().chain([("*".to_owned(), Arc::new(rest) as Arc<dyn AnySink>)]).map(
            |(pattern, sink)| {
                let health = monitor.register("relay", pattern.as_str());
                health.idle();
                Arc::new(Route { pattern, at_once: sink.concurrency(), sink, health })
            },
        );
        Self(all.collect())
    }

    /// The index and the route of a topic.
    pub(super) fn of(&self, topic: &str) -> (usize, &Arc<Route>) {
        let last = self.0.len() - 1;
        // What was accepted for an inbox is meant for it alone.
        let fits = |pattern: &str| {
            if topic.starts_with(TOPIC_PREFIX) { pattern == topic } else { topic_fits(pattern, topic) }
        };
        let at = self.0.iter().position(|route| fits(&route.pattern)).unwrap_or(last);
        (at, &self.0[at])
    }

    pub(super) fn at(&self, index: usize) -> &Route {
        &self.0[index]
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Takes the events that no route takes, but for those that an inbox of another process waits for.
struct Rest(Arc<dyn AnySink>);

impl Sink for Rest {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let accepted_for = events.first().and_then(|event| event.topic().strip_prefix(TOPIC_PREFIX));
        match accepted_for {
            None => self.0.deliver(events).await,
            Some(consumer) => Err(format!(
                "messages were accepted for the inbox {consumer}, which this process does not have: every process that \
                 relays events of this database must run it"
            )
            .into()),
        }
    }

    fn concurrency(&self) -> usize {
        self.0.concurrency()
    }

    fn batch_events(&self) -> usize {
        self.0.batch_events()
    }

    fn retry(&self) -> RetryPolicy {
        self.0.retry()
    }
}

/// Takes the events that no other sink takes: they go aside, for an operator.
struct NoSink;

impl Sink for NoSink {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let rejected = |event: &OutgoingEvent| Delivery::Reject {
            error: format!(
                "no sink takes the topic {}: add a route for it or a sink for all others, then retry this event",
                event.topic()
            ),
        };
        Ok(events.iter().map(rejected).collect())
    }
}

/// Whether a topic fits a pattern in which `*` stands for anything, also for nothing: how routes name topics.
#[must_use]
pub fn topic_fits(pattern: &str, topic: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = topic.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, topic, expected) in [
            ("mail", "mail", true),
            ("mail", "mail.sent", false),
            ("mail.*", "mail.sent", true),
            ("mail.*", "mail", false),
            ("*", "", true),
            ("*.sent", "mail.sent", true),
            ("*.sent", "mail.sent.again", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(topic_fits(pattern, topic), expected, "{pattern} {topic}");
        }
    }

    #[test]
    fn the_first_route_that_fits_is_taken() {
        let sink = || Arc::new(NoSink) as Arc<dyn AnySink>;
        let routes = vec![("mail.*".to_owned(), sink()), ("*.urgent".to_owned(), sink())];
        let routes = Routes::new(routes, Some(sink()), &Monitor::default());
        assert_eq!(routes.of("mail.urgent").0, 0);
        assert_eq!(routes.of("order.urgent").0, 1);
        assert_eq!(routes.of("order").0, 2);
    }

    #[test]
    fn what_was_accepted_for_an_inbox_goes_there_or_nowhere() {
        let sink = || Arc::new(NoSink) as Arc<dyn AnySink>;
        let routes = vec![("*".to_owned(), sink()), ("oncebox.accepted.stock".to_owned(), sink())];
        let routes = Routes::new(routes, None, &Monitor::default());
        assert_eq!(routes.of("oncebox.accepted.stock").0, 1);
        assert_eq!(routes.of("oncebox.accepted.stock.2").0, 2);
        assert_eq!(routes.of("oncebox.news").0, 0);
    }
}
