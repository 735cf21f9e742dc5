//! Topic ids of a real broker.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use oncebox_kafka_ffi::topic_ids;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;

const WAIT: Duration = Duration::from_secs(20);

fn client() -> AdminClient<DefaultClientContext> {
    let brokers = std::env::var("ONCEBOX_TEST_KAFKA")
        .expect("ONCEBOX_TEST_KAFKA must name a broker as host:port; `cargo xtask services` starts one");
    ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap()
}

async fn create(client: &AdminClient<DefaultClientContext>, topic: &str) {
    let options = AdminOptions::new().operation_timeout(Some(WAIT));
    // The name of a topic that was just deleted may be taken for a moment.
    for _ in 0..100 {
        let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
        if client.create_topics(&[new], &options).await.unwrap()[0].is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("topic {topic} cannot be created");
}

/// Waits until the broker knows it: it answers a creation before it does.
async fn id_of(client: &AdminClient<DefaultClientContext>, topic: &str) -> String {
    for _ in 0..100 {
        if let Some(Ok(Some(id))) = topic_ids(client.inner(), &[topic], WAIT).unwrap().remove(topic) {
            return id;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("topic {topic} has no id");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_is_created_anew_has_another_id() {
    let client = client();
    let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let (one, two) = (format!("ids-one-{nanos}"), format!("ids-two-{nanos}"));
    create(&client, &one).await;
    create(&client, &two).await;
    let (first, other) = (id_of(&client, &one).await, id_of(&client, &two).await);
    assert_eq!(first.len(), 22, "sixteen bytes in base64: {first}");
    assert_ne!(first, other);

    // One request for several topics, one of which is not there, and one of which is named twice.
    let ids = topic_ids(client.inner(), &[&one, &two, "no-such-topic", &two], WAIT).unwrap();
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[&one], Ok(Some(first.clone())));
    assert_eq!(ids[&two], Ok(Some(other)));
    let missing = ids["no-such-topic"].clone().unwrap_err();
    assert_eq!(missing.rdkafka_error_code(), Some(RDKafkaErrorCode::UnknownTopicOrPartition));

    client.delete_topics(&[&one], &AdminOptions::new()).await.unwrap()[0].as_ref().unwrap();
    create(&client, &one).await;
    let again = id_of(&client, &one).await;
    assert_ne!(again, first);
}
