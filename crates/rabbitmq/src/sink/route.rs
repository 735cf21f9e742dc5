//! Where the events of a topic go: an exchange, and a routing key that may hold the topic and the key of the event.

use std::borrow::Cow;
use std::collections::BTreeSet;

use lapin::types::ShortString;
use oncebox_core::outbox::{OutgoingEvent, topic_fits};

use crate::error::Error;

/// The longest name of an exchange and the longest routing key, in bytes: they have their length in one byte.
const MAX_NAME_BYTES: usize = 255;

/// An exchange and how its routing key is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) exchange: String,
    routing_key: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Topic,
    Key,
}

impl Route {
    pub(super) fn new(exchange: &str, routing_key: &str) -> Result<Self, Error> {
        if exchange.len() > MAX_NAME_BYTES {
            let problem =
                format!("{exchange:?} is longer than an exchange's name may be: {MAX_NAME_BYTES} bytes");
            return Err(Error::Setting(problem));
        }
        Ok(Self { exchange: exchange.to_owned(), routing_key: parts(routing_key)? })
    }

    /// Whether the routing key is the same for all events of a topic.
    pub(super) fn is_for_the_topic(&self) -> bool {
        !self.routing_key.contains(&Part::Key)
    }

    /// The routing key of an event, or why it can have none.
    pub(super) fn routing_key(&self, event: &OutgoingEvent) -> Result<ShortString, String> {
        let mut text = String::new();
        for part in &self.routing_key {
            text += &match part {
                Part::Text(text) => Cow::from(text.as_str()),
                Part::Topic => Cow::from(event.topic()),
                Part::Key => match event.key().map(std::str::from_utf8) {
                    None => Cow::from(""),
                    Some(Ok(key)) => Cow::from(key),
                    Some(Err(_)) => {
                        return Err("its key is not UTF-8 and cannot be in a routing key".to_owned());
                    }
                },
            };
        }
        let bytes = text.len();
        ShortString::try_new(text)
            .map_err(|_| format!("its routing key has {bytes} bytes, more than {MAX_NAME_BYTES}"))
    }
}

fn parts(template: &str) -> Result<Vec<Part>, Error> {
    let wrong = |problem: &str| {
        Err(Error::Setting(format!(
            "the routing key {template:?} {problem}; it may hold {{topic}} and {{key}}"
        )))
    };
    let (mut parts, mut rest) = (Vec::new(), template);
    while let Some((text, from)) = rest.split_once('{') {
        let Some((name, after)) = from.split_once('}') else { return wrong("has a { without }") };
        let part = match name {
            "topic" => Part::Topic,
            "key" => Part::Key,
            _ => return wrong(&format!("has an unknown {{{name}}}")),
        };
        if !text.is_empty() {
            parts.push(Part::Text(text.to_owned()));
        }
        parts.push(part);
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    Ok(parts)
}

/// All routes; the last one takes everything.
#[derive(Debug, Clone)]
pub(super) struct Routes {
    own: Vec<(String, Route)>,
    rest: Route,
}

impl Routes {
    pub(super) fn all_to(rest: Route) -> Self {
        Self { own: Vec::new(), rest }
    }

    pub(super) fn add(&mut self, pattern: String, route: Route) {
        self.own.push((pattern, route));
    }

    /// All exchanges, each once.
    pub(super) fn exchanges(&self) -> BTreeSet<&str> {
        let own = self.own.iter().map(|(_, route)| route.exchange.as_str());
        own.chain([self.rest.exchange.as_str()]).collect()
    }

    pub(super) fn of(&self, topic: &str) -> &Route {
        let own = self.own.iter().find(|(pattern, _)| topic_fits(pattern, topic));
        own.map_or(&self.rest, |(_, route)| route)
    }
}

#[cfg(test)]
mod tests {
    use super::super::batch::tests::event;
    use super::*;

    #[test]
    fn a_routing_key_is_filled_in() {
        let key = |template: &str| {
            let route = Route::new("x", template).expect(template);
            route.routing_key(&event(1, Some("k"))).expect(template).to_string()
        };
        assert_eq!(key("{topic}"), "t");
        assert_eq!(key("erp.{topic}.{key}!"), "erp.t.k!");
        assert_eq!(key(""), "");
        let without = Route::new("x", "{key}").expect("a route").routing_key(&event(1, None));
        assert_eq!(without.expect("a key").as_str(), "");
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        for (template, problem) in [("{topic", "without }"), ("{tenant}", "unknown {tenant}")] {
            let error = Route::new("x", template).expect_err(template).to_string();
            assert!(error.contains(problem), "{error}");
        }
        assert!(Route::new(&"x".repeat(256), "").is_err());
        let long = Route::new("x", &"x".repeat(256)).expect("a template").routing_key(&event(1, None));
        assert_eq!(long, Err("its routing key has 256 bytes, more than 255".to_owned()));
    }

    #[test]
    fn the_first_route_that_fits_is_taken() {
        let to = |exchange| Route::new(exchange, "{topic}").expect("a route");
        let mut routes = Routes::all_to(to("events"));
        routes.add("mail.*".to_owned(), to("mail"));
        routes.add("*.urgent".to_owned(), to("urgent"));
        let exchange = |topic| routes.of(topic).exchange.as_str();
        assert_eq!(
            [exchange("mail.urgent"), exchange("a.urgent"), exchange("a")],
            ["mail", "urgent", "events"]
        );
    }
}
