//! Topic ids of librdkafka's own mock of a cluster, which can be told to behave like an old broker.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use oncebox_kafka_ffi::topic_ids;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

const WAIT: Duration = Duration::from_secs(10);

fn client(brokers: &str) -> BaseConsumer {
    ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap()
}

#[test]
fn each_topic_has_an_id_of_its_own() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("one", 1, 1).unwrap();
    cluster.create_topic("two", 1, 1).unwrap();
    let client = client(&cluster.bootstrap_servers());
    let ids = topic_ids(client.client(), &["one", "two"], WAIT).unwrap();
    let id = |topic: &str| ids[topic].clone().unwrap().unwrap();
    assert_ne!(id("one"), id("two"));
    assert_eq!(topic_ids(client.client(), &["two", "one"], WAIT).unwrap(), ids, "they stay");
}

/// Metadata before its version 10 has no topic ids: librdkafka then says that all its bits are zero.
#[test]
fn an_old_broker_has_no_ids() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    cluster.apiversion(RDKafkaApiKey::Metadata, Some(0), Some(9)).unwrap();
    let client = client(&cluster.bootstrap_servers());
    let ids = topic_ids(client.client(), &["t"], WAIT).unwrap();
    assert_eq!(ids["t"], Ok(None));
}

#[test]
fn a_topic_that_is_refused_says_so() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", 1, 1).unwrap();
    cluster.topic_error("t", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    let client = client(&cluster.bootstrap_servers());
    let refused = topic_ids(client.client(), &["t"], WAIT).unwrap()["t"].clone().unwrap_err();
    assert_eq!(refused.rdkafka_error_code(), Some(RDKafkaErrorCode::TopicAuthorizationFailed));
}

#[test]
fn no_answer_is_an_error_within_the_time_given() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(&listener.local_addr().unwrap().to_string());
    let asked = Instant::now();
    let error = topic_ids(client.client(), &["t"], Duration::from_millis(300)).unwrap_err();
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(error.rdkafka_error_code().is_some(), "{error}");
}

#[test]
fn what_is_no_name_is_refused_and_nothing_is_asked_for_nothing() {
    let client = client("127.0.0.1:1");
    assert!(topic_ids(client.client(), &[], WAIT).unwrap().is_empty());
    let error = topic_ids(client.client(), &["a\0b"], WAIT).unwrap_err();
    assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::InvalidArgument));
}
