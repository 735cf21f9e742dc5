//! What an inbox reads from: topics of several clusters, a queue, requests.

use std::num::NonZeroU32;
use std::time::Duration;

use oncebox_core::inbox::{OnFailure, Selector};

use super::{SMALL, kafka, parse, topics};
use crate::*;

#[test]
fn several_clusters_are_told_apart_by_name() {
    let text = SMALL.replace(
        "[[inbox]]",
        "[kafka.west]\nbrokers = \"w\"\n[kafka.west.properties]\n\"client.id\" = \"x\"\n[outbox]\nrelay = true\nkafka = \"west\"\n\
         [[inbox]]\nconsumer = \"other\"\ngroup = \"stock\"\nkafka = \"west\"\ntopics = [\"t\", \"^u[.].*\"]\nid = \"key\"\n\
         handler = { each = [\"SELECT :id\"] }\nproperties = { \"sasl.password\" = \"hunter2\" }\n[[inbox]]",
    );
    let config = parse(&text);
    let names: Vec<_> = config.kafka.iter().map(|(name, cluster)| (name, cluster.brokers.as_str())).collect();
    assert_eq!(names, [(None, "a:9092,b:9092"), (Some("west"), "w")]);
    assert_eq!(config.outbox.cluster.as_deref(), Some("west"));
    let [other, stock] = &config.inboxes[..] else { panic!("{:?}", config.inboxes) };
    // The same group name, in another cluster.
    assert_eq!((kafka(other).cluster.as_deref(), kafka(other).group.as_str()), (Some("west"), "stock"));
    assert_eq!((kafka(stock).cluster.as_deref(), kafka(stock).group.as_str()), (None, "stock"));
    assert_eq!(topics(other), ["t", "^u[.].*"]);
    assert_eq!(kafka(other).properties["sasl.password"], "hunter2");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn a_queue_of_rabbitmq_is_read_instead_of_topics() {
    let queue = SMALL.replace("topics = [\"t\"]", "queue = \"stock.updates\"").replace(
        "[kafka]\nbrokers = \"a:9092, b:9092\"",
        "[rabbitmq]\nurl = \"amqp://guest:s3cret@a:5672/%2f,amqp://guest:s3cret@b\"",
    );
    let config = parse(&queue);
    let expected = RabbitmqInbox { queue: "stock.updates".to_owned(), prefetch: 500, key: None };
    assert_eq!(config.inboxes[0].source, SourceConfig::Rabbitmq(expected));
    assert!(config.kafka.is_empty());
    assert!(!format!("{config:?}").contains("s3cret"));
    let more = queue.replace("id = \"key\"", "id = \"key\"\nprefetch = 20\nkey = \"header:sku\"");
    let SourceConfig::Rabbitmq(inbox) = &parse(&more).inboxes[0].source else { unreachable!() };
    assert_eq!((inbox.prefetch, &inbox.key), (20, &Some(Selector::Header("sku".into()))));
}

const REQUESTS: &str = r#"
[store]
url = "sqlite://stock.db"
[http]
listen = "127.0.0.1:7878"
[[inbox]]
consumer = "orders"
id = "header:Idempotency-Key"
handler = { each = ["SELECT :id"] }
[inbox.http]
path = "/in/orders"
"#;

fn http(config: &Config) -> &HttpInbox {
    let SourceConfig::Http(http) = &config.inboxes[0].source else { unreachable!() };
    http
}

#[test]
fn requests_are_taken_instead_of_topics() {
    let config = parse(REQUESTS);
    let (inbox, requests) = (&config.inboxes[0], http(&config));
    assert_eq!((inbox.on_failure, inbox.retry.attempts), (OnFailure::GiveBack, 1), "the sender tries again");
    assert_eq!((requests.path.as_str(), requests.status, requests.body.as_str()), ("/in/orders", 204, ""));
    assert_eq!((requests.timeout, requests.max_body), (Duration::from_secs(10), 1024 * 1024));
    assert_eq!((&requests.key, requests.compare_body, &requests.verify), (&None, true, &None));

    let all = format!(
        "{REQUESTS}mode = \"apply\"\nstatus = 201\nbody = \"done\"\ntimeout = \"2s\"\nmax_body = \"64KiB\"\nkey = \"json:/sku\"\n\
         compare_body = false\n\
         verify = {{ scheme = \"hmac\", header = \"x-sig\", encoding = \"base64\", prefix = \"v1=\", secrets = [\"s3cret\"], \
         tolerance = \"1m\" }}\n"
    );
    let config = parse(&all);
    let requests = http(&config);
    assert_eq!((requests.status, requests.body.as_str(), requests.max_body), (201, "done", 64 * 1024));
    assert!(!requests.compare_body);
    let scheme = VerifyScheme::Hmac { header: "x-sig".into(), base64: true, prefix: "v1=".into() };
    let verify = requests.verify.as_ref().unwrap();
    assert_eq!((&verify.scheme, verify.tolerance), (&scheme, Some(Duration::from_secs(60))));
    assert!(!format!("{config:?}").contains("s3cret"));
}

#[test]
fn what_is_accepted_is_parked_if_it_fails_and_needs_no_sink_besides() {
    let text = format!(
        "{REQUESTS}mode = \"accept\"\nhandshake = {{ origins = [\"eventgrid.azure.net\"], rate = 120 }}\n\
         verify = {{ scheme = \"standard\", secrets = {{ acme = [\"s3cret\", \"new\"], zenith = [\"hush\"] }} }}\n\
         [outbox]\nrelay = true\n"
    );
    let config = parse(&text);
    let (inbox, requests) = (&config.inboxes[0], http(&config));
    assert_eq!((requests.mode, inbox.on_failure), (HttpMode::Accept, OnFailure::Park));
    assert_eq!(inbox.retry, parse(SMALL).inboxes[0].retry, "nobody else tries it again");
    let handshake = requests.handshake.as_ref().unwrap();
    assert_eq!(
        (handshake.origins.as_slice(), handshake.rate),
        (&["eventgrid.azure.net".to_owned()][..], NonZeroU32::new(120))
    );
    let SecretsConfig::Each { parameter, secrets } = &requests.verify.as_ref().unwrap().secrets else {
        unreachable!()
    };
    let of_each: Vec<_> = secrets.iter().map(|(tenant, secrets)| (tenant.as_str(), secrets.len())).collect();
    assert_eq!((parameter.as_str(), of_each), ("tenant", vec![("acme", 2), ("zenith", 1)]));
    assert!(!format!("{config:?}").contains("s3cret"));
}
