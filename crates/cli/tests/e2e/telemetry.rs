//! One trace through everything: a record of Kafka, a transaction of the database, the record of its event.

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::support::collector::{Collector, Span};
use crate::support::config::Inbox;
use crate::support::database::Kind;
use crate::support::eventually;
use crate::support::on_each_server;
use crate::support::orders::orders;
use crate::support::queue::Queue;
use crate::support::topic::Odd;
use crate::support::world::World;

on_each_server!(sql: a_trace_goes_from_record_to_record);

const SENDER: &str = "00f067aa0ba902b7";

/// Each order has a trace of its own, and what it causes is read by a second inbox, which goes on with it.
async fn a_trace_goes_from_record_to_record(kind: Kind) {
    let collector = Collector::start().await;
    let out = World::new(kind, 3).await;
    let mut world = World::new(kind, 1).await;
    let emit = format!("oncebox_emit('{}', :key, :payload", out.topic.name);
    let emit = match kind {
        Kind::Postgres => format!("\"SELECT {emit}::json)\""),
        _ => format!("\"CALL {emit}, NULL, @id)\""),
    };
    world.inbox(|inbox| inbox.and(&emit));
    let noted =
        "\"INSERT INTO ledger (consumer, message_id, sku, qty, seq) VALUES ('reader', :id, '', 0, :offset)\"";
    let reader = Inbox::new("reader", &out.topic.name, vec![noted.to_owned()]);
    world.config.inboxes.push(reader.set("id", "\"cloudevents\""));
    world.outbox("relay", "true");
    world.config.more.push_str(&collector.section(""));

    let all = orders(0..24);
    let trace = |seq: usize| format!("{:032x}", 0xa000_0000_usize + seq);
    for (seq, order) in all.iter().enumerate() {
        let (key, payload) = (order.key(), order.payload());
        let traceparent = format!("00-{}-{SENDER}-01", trace(seq));
        let headers =
            [("event_id", Some(order.id.as_bytes())), ("traceparent", Some(traceparent.as_bytes()))];
        world.topic.send_odd(&Odd {
            key: Some(key.as_bytes()),
            payload: Some(payload.as_bytes()),
            headers: &headers,
            ..Odd::default()
        });
    }
    let daemon = world.start();
    let read = "SELECT COUNT(*) FROM ledger WHERE consumer = 'reader'";
    eventually("everything is read", async || world.db.number(read).await == 24).await;
    daemon.stop();

    let records = out.topic.read();
    assert_eq!(records.len(), all.len());
    let process = |topic: &str| format!("process {topic}");
    for (seq, order) in all.iter().enumerate() {
        let trace = trace(seq);
        let first = collector.span(&trace, &process(&world.topic.name)).await;
        assert_eq!((first.parent.as_str(), first.says("oncebox.outcome")), (SENDER, Some("applied")));
        assert_eq!((first.says("messaging.system"), first.service.as_str()), (Some("kafka"), "oncebox"));
        assert_eq!(first.says("oncebox.offset").map(str::to_owned), Some(seq.to_string()));
        let received = collector.span(&trace, &format!("receive {}", world.topic.name)).await;
        assert_eq!((received.parent.as_str(), first.kind), (SENDER, SpanKind::Consumer));
        assert!(received.nanoseconds.1 <= first.nanoseconds.1, "{received:?} {first:?}");

        let send = collector.span(&trace, &format!("send {}", out.topic.name)).await;
        assert_eq!((&send.parent, send.says("messaging.system")), (&first.id, Some("kafka")));
        let caused = |record: &&crate::support::records::Record| {
            record.header("oncebox-causation-id") == Some(order.id.as_str())
        };
        let record = records.iter().find(caused).unwrap_or_else(|| panic!("no event of {}", order.id));
        assert_eq!(record.header("traceparent"), Some(send.traceparent().as_str()));
        assert_eq!(record.headers.iter().filter(|(name, _)| name == "traceparent").count(), 1);

        let second = collector.span(&trace, &process(&out.topic.name)).await;
        assert_eq!(second.parent, send.id, "whoever reads the event goes on from there");
        steps_of(&collector, &first);
        steps_of(&collector, &second);
    }
}

/// From Kafka through the database to a queue of RabbitMQ, and out of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_on_through_a_queue() {
    let collector = Collector::start().await;
    let mut world = World::new(Kind::Postgres, 1).await;
    let queue = Queue::declare(&format!("{}_queue", world.consumer), "classic").await;
    world.inbox(|inbox| inbox.and("\"SELECT oncebox_emit('queued', :key, :payload::json)\""));
    let noted =
        "\"INSERT INTO ledger (consumer, message_id, sku, qty, seq) VALUES ('reader', :id, '', 0, 0)\"";
    let reader = Inbox::new("reader", "", vec![noted.to_owned()]).reading_queue(&queue.name);
    world.config.inboxes.push(reader.set("id", "\"header:oncebox-id\""));
    world.outbox("relay", "true");
    world.config.more = format!(
        "[[outbox.route]]\ntopics = [\"queued\"]\nexchange = \"\"\nrouting_key = {:?}\n[rabbitmq]\nurl = {:?}\n{}",
        queue.name,
        queue.url,
        collector.section("")
    );
    let order = orders(0..1).remove(0);
    let trace = format!("{:032x}", 0xc000_0000_usize);
    let traceparent = format!("00-{trace}-{SENDER}-01");
    let (key, payload) = (order.key(), order.payload());
    let headers = [("event_id", Some(order.id.as_bytes())), ("traceparent", Some(traceparent.as_bytes()))];
    world.topic.send_odd(&Odd {
        key: Some(key.as_bytes()),
        payload: Some(payload.as_bytes()),
        headers: &headers,
        ..Odd::default()
    });
    let daemon = world.start();
    let first = collector.span(&trace, &format!("process {}", world.topic.name)).await;
    let send = collector.span(&trace, "send queued").await;
    let second = collector.span(&trace, &format!("process {}", queue.name)).await;
    daemon.stop();
    for (span, parent, system) in
        [(&first, SENDER, "kafka"), (&send, &first.id, "rabbitmq"), (&second, &send.id, "rabbitmq")]
    {
        assert_eq!((span.parent.as_str(), span.says("messaging.system")), (parent, Some(system)));
    }
    steps_of(&collector, &second);
    queue.delete().await;
}

/// PostgreSQL quotes what it refuses, and the spans do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_value_is_in_no_span() {
    let collector = Collector::start().await;
    let mut world = World::new(Kind::Postgres, 1).await;
    world.inbox(|inbox| inbox.set("retry", "{ attempts = 1 }"));
    world.config.more.push_str(&collector.section(""));
    let trace = format!("{:032x}", 0xb000_0000_usize);
    let traceparent = format!("00-{trace}-{SENDER}-01");
    let headers = [("event_id", Some(b"order-1".as_slice())), ("traceparent", Some(traceparent.as_bytes()))];
    let payload = br#"{"sku":"sku-0","qty":"canary-4711","seq":1}"#;
    world.topic.send_odd(&Odd { payload: Some(payload), headers: &headers, ..Odd::default() });
    let daemon = world.start();
    let parked = |span: &Span| span.says("oncebox.outcome") == Some("parked");
    eventually("it is parked", async || collector.of_trace(&trace).iter().any(parked)).await;
    daemon.stop();
    let spans = collector.of_trace(&trace);
    let failed = spans.iter().find(|span| span.name == "handler").and_then(|span| span.error.as_deref());
    assert!(failed.is_some_and(|error| error.contains("22P02")), "{spans:#?}");
    let parked = spans.iter().find(|span| parked(span)).and_then(|span| span.error.as_deref());
    assert_eq!(parked, Some("kept as a dead letter"));
    let shown = format!("{:?}", collector.spans());
    assert!(!shown.contains("canary"), "{shown}");
    let letters = "SELECT COUNT(*) FROM oncebox_dead WHERE headers::text LIKE '%' || '";
    let kept = format!("{letters}{traceparent}' || '%'");
    assert_eq!(world.db.number(&kept).await, 1, "the letter keeps what arrived");
}

/// The steps of a message are in its own trace, or in that of its batch.
fn steps_of(collector: &Collector, process: &Span) {
    let (trace, whole) = match process.links.as_slice() {
        [] => (&process.trace, &process.id),
        [(trace, batch)] => (trace, batch),
        more => panic!("{more:?}"),
    };
    let steps: Vec<String> = collector
        .of_trace(trace)
        .into_iter()
        .filter(|span| span.parent == *whole && !span.name.contains(' '))
        .map(|span| span.name)
        .collect();
    assert_eq!(steps, ["claim", "handler", "commit"]);
}
