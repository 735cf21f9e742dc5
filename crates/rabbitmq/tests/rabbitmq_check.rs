//! What can be found out about queues of a real broker.

#![allow(clippy::unwrap_used)]

mod support;

use lapin::types::AMQPValue;
use oncebox_core::store::FindingLevel;
use oncebox_rabbitmq::{Error, Rabbitmq, Wanted};
use support::broker::{Broker, text};
use support::{unique, url};

const WANTED: Wanted = Wanted { crash_limit: 3, in_order: true };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_a_queue_was_made_is_found_out() {
    let (broker, rabbitmq) = (Broker::connect(&url()).await, Rabbitmq::nodes(url()).unwrap());
    let quorum = unique("quorum");
    let arguments = [
        ("x-dead-letter-exchange", text("it's dead")),
        ("x-dead-letter-routing-key", text("k")),
        ("x-delivery-limit", AMQPValue::LongInt(7)),
        ("x-max-length", AMQPValue::LongLongInt(1_000)),
        ("x-single-active-consumer", AMQPValue::Boolean(true)),
    ];
    broker.quorum_queue(&quorum, &arguments).await;
    broker.put(&quorum, b"{}", lapin::BasicProperties::default()).await;
    let state = rabbitmq.queue_state(&quorum).await.unwrap();
    assert_eq!((state.waiting, state.consumers), (1, 0));
    let found = state.arguments.unwrap();
    assert_eq!((found.queue_type.as_str(), found.durable), ("quorum", true));
    assert_eq!(found.dead_letter_exchange.as_deref(), Some("it's dead"));
    assert_eq!((found.delivery_limit, found.single_active_consumer), (Some(7), true));

    let classic = unique("but current is none");
    broker.queue(&classic, &[("x-message-ttl", AMQPValue::LongInt(60_000))]).await;
    let found = rabbitmq.queue_state(&classic).await.unwrap().arguments.unwrap();
    assert_eq!((found.queue_type.as_str(), found.durable), ("classic", true));
    assert_eq!((found.dead_letter_exchange, found.delivery_limit), (None, None));
    assert!(!found.single_active_consumer);

    let transient = unique("transient");
    broker.transient_queue(&transient).await;
    let found = rabbitmq.queue_state(&transient).await.unwrap().arguments.unwrap();
    assert!(!found.durable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_not_there_is_not_made() {
    let (broker, rabbitmq, queue) =
        (Broker::connect(&url()).await, Rabbitmq::nodes(url()).unwrap(), unique("missing"));
    let error = rabbitmq.queue_state(&queue).await.unwrap_err();
    assert!(matches!(error, Error::NoQueue(_)), "{error}");
    let findings = rabbitmq.check_queue(&queue, WANTED).await;
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].level, FindingLevel::Error);
    assert!(findings[0].detail.contains("does not exist"), "{findings:?}");
    assert!(!broker.has_queue(&queue).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanges_that_are_missing_are_named() {
    let (broker, there, missing) = (Broker::connect(&url()).await, unique("there"), unique("missing"));
    broker.exchange(&there).await;
    let sink = Rabbitmq::nodes(url()).unwrap().sink(&there).unwrap();
    let sink = sink.route("a", &missing, "{topic}").unwrap().route("b", "", "queue").unwrap();
    let findings = sink.check().await;
    let is_bad = |subject: &str| {
        let of_subject = findings.iter().find(|finding| finding.subject.contains(subject)).unwrap();
        of_subject.level == FindingLevel::Error
    };
    assert_eq!(
        (findings.len(), is_bad(&there), is_bad(&missing), is_bad("default")),
        (3, false, true, false)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_several_consumers_share_is_warned_about() {
    let (broker, rabbitmq, queue) =
        (Broker::connect(&url()).await, Rabbitmq::nodes(url()).unwrap(), unique("shared"));
    broker.quorum_queue(&queue, &[("x-dead-letter-exchange", text("dead"))]).await;
    let warnings = async || {
        let findings = rabbitmq.check_queue(&queue, WANTED).await;
        let warnings = findings.into_iter().filter(|finding| finding.level != FindingLevel::Ok);
        warnings.map(|finding| finding.detail).collect::<Vec<_>>()
    };
    assert_eq!(warnings().await, Vec::<String>::new());
    let _consumers = (broker.consume(&queue).await, broker.consume(&queue).await);
    let found = warnings().await;
    assert!(found.len() == 1 && found[0].contains("2 consumers share it"), "{found:?}");
}
