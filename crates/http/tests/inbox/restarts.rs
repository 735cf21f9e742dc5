//! Services that end in the middle: their clients send again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncebox_http::ServerLimits;
use oncebox_testkit::eventually;
use tokio::time::Instant;

use crate::client::{SOON, post};
use crate::fixture::{Database, PATH, Service, http};

/// Connections are cut without an answer, whatever was under way. Clients send until they have one.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_sends_until_there_is_an_answer_has_one_effect() {
    const MESSAGES: usize = 300;
    let db = Database::new().await;
    // No time to drain: answers that were not sent are lost.
    let limits = ServerLimits { drain_within: Duration::ZERO, ..ServerLimits::default() };
    let start = |address| Service::start_at(address, http(), db.inbox(), limits.clone());
    let mut service = start("127.0.0.1:0".parse().unwrap()).await;
    let (address, next, done) =
        (service.address, Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (next, done) = (Arc::clone(&next), Arc::clone(&done));
            tokio::spawn(async move {
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= MESSAGES {
                        return;
                    }
                    let call = post(PATH, "{}").id(format!("m-{id}"));
                    let deadline = Instant::now() + SOON;
                    while !call.clone().try_to(address).await.is_ok_and(|answer| answer.status == 204) {
                        assert!(Instant::now() < deadline, "never answered: {id}");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for part in 1..4 {
        eventually("some are done", || done.load(Ordering::Relaxed) >= part * MESSAGES / 4).await;
        service.stop().await;
        service = start(address).await;
    }
    for client in clients {
        client.await.unwrap();
    }
    let mut effects = db.effects().await;
    effects.sort_unstable();
    let mut expected: Vec<String> = (0..MESSAGES).map(|id| format!("m-{id}")).collect();
    expected.sort_unstable();
    assert_eq!(effects, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_stops_answers_what_is_under_way() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let address = service.address;
    let running = tokio::spawn(async move { post(PATH, "wait").id("a").to(address).await });
    service.gate.reached_by(1).await;
    let gate = service.gate.clone();
    let stopping = tokio::spawn(service.stop());
    gate.open(1);
    assert_eq!(running.await.unwrap().status, 204);
    stopping.await.unwrap();
    assert!(post(PATH, "{}").id("b").try_to(address).await.is_err(), "nobody listens any more");
}
