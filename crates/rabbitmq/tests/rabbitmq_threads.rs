//! The client has a thread for each connection: none may stay behind. Alone in its process, so that they can be counted.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use oncebox_core::outbox::Sink;
use oncebox_rabbitmq::Rabbitmq;
use support::broker::Broker;
use support::events::{all_delivered, numbered};
use support::inbox::Scene;
use support::proxy::Proxy;
use support::{eventually, unique, url};
use tokio::time::timeout;

fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let name =
        |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(name).filter(|name| name.starts_with("lapin")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_let_go_of_leaves_no_thread_behind() {
    let (scene, broker, name) = (Scene::new().await, Broker::connect(&url()).await, unique("threads"));
    broker.exchange_with_queue(&name).await;
    broker.close().await;
    eventually("the first is gone", async || threads() == 0).await;
    let proxy = Proxy::to(&url()).await;

    // A sink that is dropped in the middle of a batch which the broker never hears of, and one that is done.
    let sink = Rabbitmq::nodes(proxy.url()).unwrap().sink(&name).unwrap();
    all_delivered(&sink.deliver(&numbered("t", 0..10)).await.unwrap(), 10);
    assert!(threads() > 0, "the connection is kept");
    proxy.mute();
    let delivering = timeout(Duration::from_millis(200), sink.deliver(&numbered("t", 10..20))).await;
    assert!(delivering.is_err(), "nothing is confirmed");
    eventually("the dropped one is gone", async || threads() == 0).await;

    // A handshake that never ends.
    let impatient = Rabbitmq::nodes(proxy.url()).unwrap().connect_timeout(Duration::from_millis(200));
    let error = impatient.sink(&name).unwrap().deliver(&numbered("t", 10..20)).await.unwrap_err();
    assert!(error.to_string().contains("no answer within 200ms"), "{error}");
    eventually("the one without an answer is gone", async || threads() == 0).await;
    proxy.cut();

    // A source whose connection breaks, and one that stops.
    let running = scene.start(Rabbitmq::nodes(proxy.url()).unwrap().source(&name));
    scene.looked_at(1).await;
    proxy.cut();
    scene.looked_at(1).await;
    running.stop().await;
    all_delivered(&sink.deliver(&numbered("t", 20..30)).await.unwrap(), 10);
    drop(sink);
    eventually("all are gone", async || threads() == 0).await;
}
