//! The client's log holds whole messages: that may not reach ours. Alone in its process, which has one log.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::sync::{Arc, Mutex};

use oncebox_core::outbox::Sink;
use oncebox_rabbitmq::Rabbitmq;
use support::events::{outgoing, stored};
use support::{unique, url};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_message_that_comes_back_is_in_the_log() {
    let log = Log::default();
    let everything = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
    everything.with_writer(log.clone()).init();
    tracing::info!("our own log works");
    // A queue that is not there, by the exchange that takes its name as the routing key.
    let sink = Rabbitmq::nodes(url()).unwrap().sink("").unwrap();
    let topic = unique("nowhere");
    let error =
        sink.deliver(&[outgoing(stored(&topic, 1, None, Some(b"canary".to_vec())))]).await.unwrap_err();
    assert!(error.to_string().contains("no queue takes the events"), "{error}");
    drop(sink);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("our own log works"));
    for line in text.lines() {
        assert!(!line.contains("lapin") || line.contains("DEBUG"), "{line}");
        assert!(!line.contains("canary") && !line.contains("99, 97, 110, 97, 114, 121"), "{line}");
    }
}
