//! Which sink takes which topic.

use std::sync::Arc;

use super::fan_out;
use super::lines::Lines;
use crate::error::BoxError;
use crate::inbox::RetryPolicy;
use crate::monitor::{LoopHandle, Monitor};
use crate::outbox::local::TOPIC_PREFIX;
use crate::outbox::sink::{AnySink, Delivery, OutgoingEvent, Sink, Standing};

/// A sink, the topics it takes, and how it is.
pub(super) struct Route {
    /// The topics, as they were given.
    pub(super) pattern: String,
    pub(super) sink: Arc<dyn AnySink>,
    /// How many of its batches may be under way. Asked once: the work is cut by it, and a key must stay where it is.
    pub(super) at_once: usize,
    pub(super) health: LoopHandle,
    pub(super) lines: Lines,
}

impl Route {
    /// Says how its receiver is. True if something is wrong.
    pub(super) fn shows_trouble(&self) -> bool {
        let standing = self.sink.standing();
        let Some(reason) = standing.trouble() else { return false };
        self.health.busy();
        self.health.failed(&**reason);
        true
    }
}

impl Route {
    /// How many units a topic has at most. One place is left to others: it may be that this one only waits.
    pub(super) fn units_of_a_topic(&self) -> usize {
        (self.at_once - 1).max(1)
    }

    /// Whether a unit whose receiver was waited for in vain the last time may wait again, when so many others do. They have half of
    /// the places together, and a topic has one.
    pub(super) fn takes_stalled(&self, waiting: usize, of_topic: bool) -> bool {
        !of_topic && waiting < (self.at_once / 2).max(1)
    }
}

/// All routes. The first are those of the relay, in their order; then the sinks that get copies, and what makes the copies if
/// there are any; then what becomes of the copies of a sink that is gone. The last one takes everything else.
pub(super) struct Routes {
    all: Vec<Arc<Route>>,
    /// How many of them are the relay's own.
    own: usize,
    takers: Takers,
}

/// Who gets an event: for topics that more than one sink gets.
#[derive(Debug, Clone, Default)]
pub(super) struct Takers {
    /// The names of the sinks that get copies, with the topics of each.
    pub(super) copies: Vec<(String, String)>,
    /// The topics of the relay's own routes; all of them if it has a sink for the rest.
    pub(super) own: Vec<String>,
}

/// What the copies are called that go where the event would have gone without the others.
pub(super) const OWN: &str = "main";

impl Takers {
    /// The names of those who get the events of a topic; one of them, or none, if it is not copied.
    pub(super) fn of(&self, topic: &str) -> Vec<&str> {
        let copies = self.copies.iter().filter(|(_, pattern)| topic_fits(pattern, topic));
        let own = self.own.iter().any(|pattern| topic_fits(pattern, topic)).then_some(OWN);
        let mut names: Vec<&str> = copies.map(|(name, _)| name.as_str()).collect();
        names.dedup();
        own.into_iter().chain(names).collect()
    }

    fn are_copied(&self, topic: &str) -> bool {
        !topic.starts_with(RESERVED) && self.copies.iter().any(|(_, pattern)| topic_fits(pattern, topic))
    }
}

/// What the topics begin with that the relay makes for itself.
const RESERVED: &str = "oncebox.";

/// The sinks of a relay, with the topics they take.
#[derive(Default)]
pub(super) struct Given {
    pub(super) routes: Vec<(String, Arc<dyn AnySink>)>,
    /// With their names.
    pub(super) copies: Vec<(String, String, Arc<dyn AnySink>)>,
    pub(super) rest: Option<Arc<dyn AnySink>>,
}

impl Given {
    pub(super) fn takers(&self) -> Takers {
        let everything = self.rest.iter().map(|_| "*".to_owned());
        Takers {
            copies: self.copies.iter().map(|(name, topics, _)| (name.clone(), topics.clone())).collect(),
            own: self.routes.iter().map(|(topics, _)| topics.clone()).chain(everything).collect(),
        }
    }
}

impl Routes {
    /// `fan_out` makes the copies.
    pub(super) fn new(given: Given, fan_out: Option<Arc<dyn AnySink>>, monitor: &Monitor) -> Self {
        let takers = given.takers();
        let own = given.routes.len();
        let copies =
            given.copies.into_iter().map(|(name, topics, sink)| (format!("{topics} ({name})"), sink));
        let making = fan_out.map(|fan_out| ("copies".to_owned(), fan_out));
        let rest = Rest(given.rest.unwrap_or_else(|| Arc::new(NoSink)));
        let rest = ("*".to_owned(), Arc::new(rest) as Arc<dyn AnySink>);
        let route = |(pattern, sink): (String, Arc<dyn AnySink>), monitor: &Monitor| {
            let health = monitor.register("relay", pattern.as_str());
            health.idle();
            Arc::new(Route { pattern, at_once: sink.concurrency(), sink, health, lines: Lines::default() })
        };
        // Nobody needs to see how it is: it always works.
        let gone = route(("copies for nobody".to_owned(), Arc::new(Gone)), &Monitor::default());
        let shown = given.routes.into_iter().chain(copies).chain(making).map(|given| route(given, monitor));
        let mut all: Vec<_> = shown.collect();
        all.extend([gone, route(rest, monitor)]);
        Self { all, own, takers }
    }

    /// The index and the route of a topic.
    pub(super) fn of(&self, topic: &str) -> (usize, &Arc<Route>) {
        let at = self.index_of(topic);
        (at, &self.all[at])
    }

    fn index_of(&self, topic: &str) -> usize {
        let copies = self.takers.copies.len();
        let (making, gone) = (self.own + copies, self.all.len() - 2);
        match fan_out::copy(topic) {
            Some((OWN, topic)) => self.own_index(topic),
            Some((name, topic)) => {
                let is_it = |(of, pattern): &(String, String)| of == name && topic_fits(pattern, topic);
                self.takers.copies.iter().position(is_it).map_or(gone, |at| self.own + at)
            }
            None if self.takers.are_copied(topic) => making,
            None => self.own_index(topic),
        }
    }

    fn own_index(&self, topic: &str) -> usize {
        // What was accepted for an inbox is meant for it alone.
        let fits = |pattern: &str| {
            if topic.starts_with(TOPIC_PREFIX) { pattern == topic } else { topic_fits(pattern, topic) }
        };
        let rest = self.all.len() - 1;
        self.all[..self.own].iter().position(|route| fits(&route.pattern)).unwrap_or(rest)
    }

    pub(super) fn at(&self, index: usize) -> &Route {
        &self.all[index]
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}

/// Takes the copies for a sink that this relay does not have: they go aside, for an operator.
struct Gone;

impl Sink for Gone {
    async fn deliver(&self, events: &[OutgoingEvent]) -> Result<Vec<Delivery>, BoxError> {
        let error =
            "the sink that this copy is for is not there any more: bring it back and retry, or drop the copy";
        Ok(vec![Delivery::Reject { error: error.to_owned() }; events.len()])
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

    fn is_paused(&self) -> bool {
        self.0.is_paused()
    }

    fn parks_keys(&self) -> bool {
        self.0.parks_keys()
    }

    fn standing(&self) -> Standing {
        self.0.standing()
    }

    fn system(&self) -> Option<&'static str> {
        self.0.system()
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

    fn routes(own: &[&str], copies: &[(&str, &str)], rest: bool) -> Routes {
        let sink = || Arc::new(NoSink) as Arc<dyn AnySink>;
        let given = Given {
            routes: own.iter().map(|topics| ((*topics).to_owned(), sink())).collect(),
            copies: copies
                .iter()
                .map(|(name, topics)| ((*name).to_owned(), (*topics).to_owned(), sink()))
                .collect(),
            rest: rest.then(sink),
        };
        let fan_out = (!copies.is_empty()).then(sink);
        Routes::new(given, fan_out, &Monitor::default())
    }

    #[test]
    fn the_first_route_that_fits_is_taken() {
        let routes = routes(&["mail.*", "*.urgent"], &[], true);
        assert_eq!(routes.of("mail.urgent").0, 0);
        assert_eq!(routes.of("order.urgent").0, 1);
        assert_eq!(routes.of("order").1.pattern, "*");
        assert_eq!(routes.of("oncebox.to.crm.order").1.pattern, "copies for nobody");
    }

    #[test]
    fn a_topic_leaves_a_place_to_others_and_those_that_stall_leave_half() {
        let routes = routes(&[], &[], true);
        let all = routes.of("mail").1;
        assert_eq!((all.at_once, all.units_of_a_topic()), (4, 3));
        assert!(all.takes_stalled(1, false));
        assert!(!all.takes_stalled(2, false) && !all.takes_stalled(1, true));
    }

    #[test]
    fn what_was_accepted_for_an_inbox_goes_there_or_nowhere() {
        let routes = routes(&["*", "oncebox.accepted.stock"], &[("crm", "*")], false);
        assert_eq!(routes.of("oncebox.accepted.stock").0, 1);
        assert_eq!(routes.of("oncebox.accepted.stock.2").0, routes.len() - 1);
    }

    #[test]
    fn an_event_for_several_sinks_becomes_copies_and_each_goes_to_its_own() {
        let several = routes(&["mail.*"], &[("crm", "mail.*"), ("log", "*"), ("log", "x")], true);
        let at = |topic: &str| several.of(topic).1.pattern.as_str();
        assert_eq!(at("mail.sent"), "copies");
        assert_eq!(several.takers.of("mail.sent"), ["main", "crm", "log"]);
        assert_eq!(several.takers.of("x"), ["main", "log"], "once for each sink");
        assert_eq!(at("oncebox.to.crm.mail.sent"), "mail.* (crm)");
        assert_eq!(at("oncebox.to.main.mail.sent"), "mail.*");
        assert_eq!(at("oncebox.to.main.x"), "*");
        assert_eq!(at("oncebox.to.log.x"), "* (log)");
        assert_eq!(at("oncebox.to.gone.x"), "copies for nobody");
        let nobody_else = routes(&[], &[("crm", "mail.*")], false);
        assert_eq!(nobody_else.takers.of("mail.sent"), ["crm"]);
        assert_eq!(nobody_else.of("order").1.pattern, "*");
    }
}
