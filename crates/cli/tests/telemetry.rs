//! Traces without any service: requests into a SQLite file, events out of it by webhook, and a collector that reads the spans.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "support/collector.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod collector;
#[path = "support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;
#[path = "support/daemon.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod daemon;
#[path = "support/endpoint.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod endpoint;
#[path = "support/folder.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod folder;
#[path = "support/waiting.rs"]
mod waiting;

use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use collector::{Collector, Span};
use daemon::Daemon;
use endpoint::{Endpoint, Reply};
use folder::Folder;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tokio::task::JoinSet;
use waiting::eventually;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SENDER: &str = "00f067aa0ba902b7";

/// The header of a message that is traced.
fn sampled() -> String {
    format!("00-{TRACE}-{SENDER}-01")
}

/// An inbox that takes orders by HTTP and tells a webhook of each.
struct World {
    folder: Folder,
    daemon: Daemon,
    webhook: Endpoint,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl World {
    /// With this section for telemetry, and these keys of the inbox.
    async fn new(telemetry: &str, http: &str) -> Self {
        let webhook = Endpoint::start(|_, _| Reply::Status(200)).await;
        let text = format!(
            r#"[store]
url = "sqlite://test.sqlite"
[http]
listen = "127.0.0.1:0"
[[inbox]]
consumer = "orders"
id = "header:Idempotency-Key"
http = {{ path = "/in/orders", {http} }}
[inbox.handler]
each = [
  {{ sql = "UPDATE stock SET on_hand = on_hand - (:payload->>'qty') WHERE sku = :payload->>'sku'", rows = 1 }},
  """INSERT INTO oncebox_outbox (topic, key, headers, causation_id)
     VALUES ('stock.changed', :payload->>'sku', json_object('traceparent', :headers->>'traceparent'), :id)""",
]
[outbox]
relay = true
[[webhook]]
topics = ["stock.*"]
url = "{}"
{telemetry}
"#,
            webhook.url()
        );
        let folder = Folder::new(&text).await;
        let tables = "CREATE TABLE stock (sku TEXT PRIMARY KEY, on_hand INTEGER NOT NULL);
            INSERT INTO stock VALUES ('bolt', 1000000)";
        folder.execute(tables).await;
        let daemon = folder.run();
        daemon.ready().await;
        Self { folder, daemon, webhook, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// The status of the answer.
    async fn post(&self, id: &str, traceparent: Option<&str>, body: &str) -> u16 {
        let address = self.daemon.address().unwrap();
        let mut request = Request::post(format!("http://{address}/in/orders"))
            .header("content-type", "application/json")
            .header("idempotency-key", id);
        if let Some(traceparent) = traceparent {
            request = request.header("traceparent", traceparent);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        self.client.request(request).await.unwrap().status().as_u16()
    }

    /// The `traceparent` of the only event that the webhook has got, once there is one.
    async fn sent(&self) -> String {
        eventually("an event arrives", async || !self.webhook.requests().is_empty()).await;
        let [request] = self.webhook.requests().try_into().unwrap();
        request.header("traceparent").to_owned()
    }
}

const ORDER: &str = r#"{"sku":"bolt","qty":2}"#;

/// These follow from each other without a gap that would go backwards.
fn in_order(spans: &[&Span]) {
    for pair in spans.windows(2) {
        assert!(pair[0].nanoseconds.0 <= pair[1].nanoseconds.0, "{pair:#?}");
    }
    for span in spans {
        assert!(span.nanoseconds.0 > 1_600_000_000_000_000_000 && span.nanoseconds.0 <= span.nanoseconds.1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_request_to_the_webhook() {
    let collector = Collector::start().await;
    let world = World::new(&collector.section("service_name = \"shop\""), "").await;
    assert_eq!(world.post("order-1", Some(&sampled()), ORDER).await, 204);
    let sent = world.sent().await;

    let receive = collector.span(TRACE, "receive /in/orders").await;
    let process = collector.span(TRACE, "process /in/orders").await;
    assert_eq!((receive.parent.as_str(), process.parent.as_str()), (SENDER, SENDER));
    assert_eq!((process.kind, process.service.as_str()), (SpanKind::Consumer, "shop"));
    for (attribute, value) in [
        ("messaging.system", "http"),
        ("messaging.destination.name", "/in/orders"),
        ("messaging.operation.type", "process"),
        ("oncebox.consumer", "orders"),
        ("oncebox.outcome", "applied"),
    ] {
        assert_eq!(process.says(attribute), Some(value), "{process:#?}");
    }
    let [claim, handler, commit] = [
        collector.span(TRACE, "claim").await,
        collector.span(TRACE, "handler").await,
        collector.span(TRACE, "commit").await,
    ];
    for step in [&claim, &handler, &commit] {
        assert_eq!((&step.parent, step.kind), (&process.id, SpanKind::Internal));
    }
    let send = collector.span(TRACE, "send stock.changed").await;
    assert_eq!((&send.parent, send.kind), (&process.id, SpanKind::Producer));
    assert_eq!(send.says("messaging.system"), Some("http"));
    assert_eq!(sent, send.traceparent(), "whoever gets the event goes on from there");
    in_order(&[&receive, &claim, &handler, &commit, &send]);

    assert_eq!(collector.of_trace(TRACE).len(), 6, "{:#?}", collector.spans());
    let shown = format!("{:?}", collector.spans());
    for secret in ["bolt", "order-1"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(collector.spans().iter().all(|span| span.error.is_none()), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_shown_as_a_duplicate() {
    let collector = Collector::start().await;
    let world = World::new(&collector.section("message_ids = true"), "").await;
    assert_eq!(world.post("order-1", None, ORDER).await, 204);
    assert_eq!(world.post("order-1", Some(&sampled()), ORDER).await, 204);
    let process = collector.span(TRACE, "process /in/orders").await;
    assert_eq!(process.says("oncebox.outcome"), Some("duplicate"));
    assert_eq!(process.says("messaging.message.id"), Some("order-1"), "because it was asked for");
    assert_eq!(process.error, None);
    collector.span(TRACE, "commit").await;
    let names: Vec<String> = collector.spans().into_iter().map(|span| span.name).collect();
    assert!(!names.contains(&"handler".to_owned()), "{names:?}");
    assert_eq!(names.len(), 4, "the first one was not traced: {names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_is_an_error_without_the_values_of_its_message() {
    let collector = Collector::start().await;
    let world = World::new(&collector.section(""), "").await;
    let refused = world.post("order-1", Some(&sampled()), r#"{"sku":"canary-1","qty":1}"#).await;
    assert_eq!(refused, 422);
    let process = collector.span(TRACE, "process /in/orders").await;
    let handler = collector.span(TRACE, "handler").await;
    for span in [&process, &handler] {
        assert_eq!(span.says("error.type"), Some("failed"), "{span:#?}");
        assert!(span.error.as_ref().unwrap().contains("rows"), "{span:#?}");
    }
    assert_eq!(process.says("oncebox.outcome"), Some("undone"));

    let other = TRACE.replacen("4bf9", "5000", 1);
    let traced = format!("00-{other}-{SENDER}-01");
    let failed = world.post("order-2", Some(&traced), r#"{"sku":"bolt","note":"canary-2"}"#).await;
    assert!(failed >= 400, "{failed}");
    let failing = |span: &Span| span.name == "handler" && span.error.is_some();
    eventually("it fails", async || collector.of_trace(&other).iter().any(failing)).await;
    let shown = format!("{:?}", collector.spans());
    assert!(!shown.contains("canary"), "{shown}");
}

/// As many at once as it takes until some of them share a transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_linked_with_its_messages_and_they_with_it() {
    let collector = Collector::start().await;
    let world = Arc::new(World::new(&collector.section(""), "").await);
    let batches = || -> Vec<Span> {
        collector.spans().into_iter().filter(|span| span.name == "batch /in/orders").collect()
    };
    let mut turn = 0_u64;
    eventually("two messages share a transaction", async || {
        turn += 1;
        let mut posts = JoinSet::new();
        for nth in 0..16 {
            let (world, id) = (Arc::clone(&world), format!("{turn}-{nth}"));
            let traceparent = format!("00-{turn:016x}{nth:016x}-{SENDER}-01");
            posts.spawn(async move { world.post(&id, Some(&traceparent), ORDER).await });
        }
        assert_eq!(posts.join_all().await, [204; 16]);
        !batches().is_empty()
    })
    .await;
    let batch = batches().remove(0);
    assert_eq!((batch.parent.as_str(), batch.kind), ("", SpanKind::Consumer), "a trace of its own");
    let count: usize = batch.says("messaging.batch.message_count").unwrap().parse().unwrap();
    assert!(count >= 2 && batch.links.len() == count, "{batch:#?}");
    for step in ["claim", "handler", "commit"] {
        assert_eq!(collector.span(&batch.trace, step).await.parent, batch.id);
    }
    for (trace, sender) in &batch.links {
        assert_eq!(sender, SENDER);
        let process = collector.span(trace, "process /in/orders").await;
        assert_eq!(process.parent, SENDER);
        assert_eq!(process.links, [(batch.trace.clone(), batch.id.clone())]);
        assert_eq!(process.says("oncebox.outcome"), Some("applied"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_want_to_be_traced_is_not_and_without_a_wish_a_part_is() {
    let collector = Collector::start().await;
    let world = World::new(&collector.section("sample = 1"), "").await;
    let unwanted = format!("00-{TRACE}-{SENDER}-00");
    assert_eq!(world.post("order-1", Some(&unwanted), ORDER).await, 204);
    assert_eq!(world.sent().await, unwanted, "handed on as it is");
    assert_eq!(world.post("order-2", None, ORDER).await, 204);
    eventually("the second event arrives", async || world.webhook.requests().len() == 2).await;
    let sent = world.webhook.requests()[1].header("traceparent").to_owned();
    let trace = sent.split('-').nth(1).unwrap();
    let send = collector.span(trace, "send stock.changed").await;
    assert_eq!(sent, send.traceparent());
    let receive = collector.span(trace, "receive /in/orders").await;
    let process = collector.span(trace, "process /in/orders").await;
    assert_eq!((receive.parent.as_str(), &process.parent, &send.parent), ("", &receive.id, &process.id));
    assert!(collector.of_trace(TRACE).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_accepted_goes_on_in_the_trace_of_its_request() {
    let collector = Collector::start().await;
    let world = World::new(&collector.section(""), "mode = \"accept\"").await;
    assert_eq!(world.post("order-1", Some(&sampled()), ORDER).await, 202);
    let sent = world.sent().await;
    let process = collector.span(TRACE, "process /in/orders").await;
    let send = collector.span(TRACE, "send stock.changed").await;
    assert_eq!((process.parent.as_str(), &send.parent), (SENDER, &process.id));
    assert_eq!(sent, send.traceparent());
    assert_eq!(
        collector.of_trace(TRACE).len(),
        6,
        "the way to the inbox is no span: {:#?}",
        collector.spans()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_telemetry_nothing_is_changed() {
    let world = World::new("", "").await;
    assert_eq!(world.post("order-1", Some(&sampled()), ORDER).await, 204);
    assert_eq!(world.sent().await, sampled());
    let metrics = world.daemon.get("/metrics").await.unwrap().body;
    assert!(!metrics.contains("telemetry"), "{metrics}");
}

/// Nobody listens there.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_stops_nobody_and_what_it_misses_is_counted() {
    let world = World::new(&format!("[telemetry]\notlp = \"http://{}\"\n", nowhere()), "").await;
    for nth in 0..20 {
        assert_eq!(world.post(&format!("order-{nth}"), Some(&sampled()), ORDER).await, 204);
    }
    eventually("all events arrive", async || world.webhook.requests().len() == 20).await;
    let dropped = async || world.daemon.metric("oncebox_telemetry_dropped_total").await.unwrap_or_default();
    // `receive`, `process` and their steps; some may still be on their way.
    eventually("spans are given up", async || dropped().await >= 1.0).await;
    let (status, health) = world.daemon.health().await.unwrap();
    assert_eq!(status, 200, "{health}");
    let World { folder, daemon, .. } = world;
    let log = daemon.stop();
    assert_eq!(log.matches("spans cannot be sent").count(), 1, "{log}");
    let left: i64 = sqlx::query_scalar("SELECT on_hand FROM stock").fetch_one(&folder.pool).await.unwrap();
    assert_eq!(left, 1_000_000 - 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_says_whether_the_collector_is_there() {
    let collector = Collector::start().await;
    let store = "[store]\nurl = \"sqlite://test.sqlite\"\n";
    let folder = Folder::new(&format!("{store}{}", collector.section(""))).await;
    let said = folder.oncebox(&["check"]).exits(0).stdout;
    assert!(said.contains("ok      telemetry: http://127.0.0.1:") && said.contains("takes spans"), "{said}");
    assert!(collector.spans().is_empty(), "nothing is sent for it");
    folder.write(&format!("{store}[telemetry]\notlp = \"http://{}/canary\"\n", nowhere()));
    let said = folder.oncebox(&["check"]).exits(0).stdout;
    assert!(said.contains("warning telemetry: ") && said.contains("takes no spans"), "{said}");
    assert!(!said.contains("canary"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_spans_are_sent_before_the_process_ends() {
    let collector = Collector::start().await;
    let world = World::new(&collector.section(""), "").await;
    assert_eq!(world.post("order-1", Some(&sampled()), ORDER).await, 204);
    world.sent().await;
    world.daemon.stop();
    let names: Vec<String> = collector.of_trace(TRACE).into_iter().map(|span| span.name).collect();
    assert_eq!(names.len(), 6, "{names:?}");
}
