//! What is accepted, with which defaults, and that secrets stay secret.

mod damaged;
mod events;
mod inbox;
mod keys;
mod secrets;
mod sources;
mod store;
mod template;

use oncebox_sql::Handler;

use crate::*;

const SMALL: &str = r#"
[store]
url = "sqlite://stock.db"
[kafka]
brokers = "a:9092, b:9092"
[[inbox]]
consumer = "stock"
topics = ["t"]
id = "key"
handler = { each = ["SELECT :id"] }
"#;

const RELAYING: &str = r#"
[store]
url = "sqlite://stock.db"
[outbox]
relay = true
[kafka]
brokers = "k"
"#;

fn parse_with(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Problems> {
    Config::parse(text, &Surroundings { env, ..Surroundings::default() })
}

fn parse(text: &str) -> Config {
    parse_with(text, &|_| None).unwrap()
}

fn sql(inbox: &InboxConfig) -> &Handler {
    let HandlerConfig::Sql(handler) = &inbox.handler else { unreachable!() };
    handler
}

fn kafka(inbox: &InboxConfig) -> &KafkaInbox {
    inbox.source.kafka().unwrap()
}

fn topics(inbox: &InboxConfig) -> &[String] {
    &kafka(inbox).topics
}
