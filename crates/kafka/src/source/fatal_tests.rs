//! What a fatal error of librdkafka does to the source, against its mock of a cluster. Here, because nobody else can get at the client
//! of a running reader.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::sync::{Mutex, PoisonError};

use oncebox_kafka_ffi::raise_fatal_error;
use rdkafka::client::Client;
use rdkafka::types::RDKafkaRespErr;

use super::callbacks::Callbacks;
use crate::settings::Kafka;
use support::memory::Memory;
use support::mock::cluster;
use support::produce::Sender;
use support::{Running, eventually};

/// The consumer whose reader is to run into a fatal error next.
static WANTED: Mutex<Option<&str>> = Mutex::new(None);

/// Called by every reader of these tests, in its loop.
pub(super) fn raise_if_wanted(consumer: &str, client: &Client<Callbacks>) {
    let mut wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner);
    if *wanted == Some(consumer) {
        let code = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT;
        assert!(raise_fatal_error(client, code, "canary"), "a client that is new");
        *wanted = None;
    }
}

/// How many threads read for this consumer.
fn threads_of(consumer: &str) -> usize {
    // As much of a name as the kernel keeps.
    let name: String = format!("kafka-{consumer}").chars().take(15).collect();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|comm| comm.trim_end() == name).count()
}

/// A fatal error ends the client for good: the source ends, says why, and begins anew with another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_source_comes_back_after_a_fatal_error() {
    let (_cluster, brokers) = cluster(2);
    let sender = Sender::to(&brokers);
    let send = || {
        sender.send_numbered("t", 0, 10);
        sender.send_numbered("t", 1, 10);
        sender.flush();
    };
    send();
    let memory = Memory::default();
    // The mock lets nobody into a group before the session of who left it is over.
    let kafka = Kafka::brokers(&brokers)
        .property("session.timeout.ms", "3000")
        .property("heartbeat.interval.ms", "100");
    let running = Running::start("comes-back", &memory, kafka.source(["t"]));
    eventually("the first records", || memory.count() == 20).await;
    for round in 1..=2 {
        *WANTED.lock().unwrap_or_else(PoisonError::into_inner) = Some("comes-back");
        let is_told = |problem: &String| {
            problem.starts_with("source:comes-back") && problem.contains("UnsupportedForMessageFormat")
        };
        eventually("the reason", || running.problems().iter().any(is_told)).await;
        send();
        eventually("the next records", || memory.count() == 20 + 20 * round).await;
    }
    running.stop().await;
    eventually("no thread of a client that failed is left", || threads_of("comes-back") == 0).await;
    for partition in 0..2 {
        assert_eq!(memory.offsets("t", partition), (0..30).collect::<Vec<_>>(), "each of them once");
    }
}
