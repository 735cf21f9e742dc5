//! Copies at the same time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use oncebox_http::{Limits, Reply};

use crate::client::{Connection, post};
use crate::fixture::{Database, PATH, Service, http};

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_whose_first_is_still_running_waits_for_it() {
    let db = Database::new().await;
    let service = Service::start(http(), db.inbox()).await;
    let address = service.address;
    let first = tokio::spawn(async move { post(PATH, "wait").id("a").to(address).await });
    service.gate.reached_by(1).await;
    let copy = tokio::spawn(async move { post(PATH, "wait").id("a").to(address).await });
    service.gate.open(1);
    let (first, copy) = (first.await.unwrap(), copy.await.unwrap());
    assert_eq!((first.status, copy.status), (StatusCode::NO_CONTENT, StatusCode::NO_CONTENT));
    assert!(!first.is_replayed() && copy.is_replayed());
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_while_it_is_409() {
    let db = Database::new().await;
    let limits = Limits {
        copy_within: Duration::from_millis(50),
        retry_after: Duration::from_secs(2),
        ..Limits::default()
    };
    let service = Service::start(http().limits(limits), db.inbox()).await;
    let address = service.address;
    let first = tokio::spawn(async move { post(PATH, "wait").id("a").to(address).await });
    service.gate.reached_by(1).await;
    let copy = post(PATH, "wait").id("a").to(address).await;
    assert!(copy.problem(409).contains("still under way"), "{copy:?}");
    assert_eq!(copy.header("retry-after"), Some("2"));
    service.gate.open(1);
    assert_eq!(first.await.unwrap().status, 204);
    assert!(post(PATH, "wait").id("a").until_done(address).await.is_replayed());
    assert_eq!(db.effects().await, ["a"]);
}

/// 640 messages, each sent three times, by 64 clients in an order that mixes them.
#[tokio::test(flavor = "multi_thread")]
async fn of_64_clients_that_send_everything_three_times_each_message_has_one_effect() {
    const CLIENTS: usize = 64;
    const MESSAGES: usize = 640;
    let db = Database::new().await;
    let reply = Reply::new(StatusCode::OK).unwrap().body("text/plain", "thank you").unwrap();
    let service = Service::start(http().reply(reply), db.inbox().lanes(4)).await;
    let next = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (next, address) = (Arc::clone(&next), service.address);
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await.unwrap();
                let mut answers = Vec::new();
                loop {
                    // The copies of a message are neighbours, so that they run at the same time.
                    let id = next.fetch_add(1, Ordering::Relaxed) / 3;
                    if id >= MESSAGES {
                        return answers;
                    }
                    let answer = connection.send(post(PATH, "{}").id(format!("m-{id}"))).await.unwrap();
                    answers.push((id, answer));
                }
            })
        })
        .collect();
    let mut applied: HashMap<usize, (usize, usize)> = HashMap::new();
    for client in clients {
        for (id, answer) in client.await.unwrap() {
            assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "thank you"));
            let (first, copies) = applied.entry(id).or_default();
            *if answer.is_replayed() { copies } else { first } += 1;
        }
    }
    assert_eq!(applied.len(), MESSAGES);
    assert!(applied.values().all(|counts| *counts == (1, 2)), "{applied:?}");
    let mut effects = db.effects().await;
    effects.sort_unstable();
    let mut expected: Vec<String> = (0..MESSAGES).map(|id| format!("m-{id}")).collect();
    expected.sort_unstable();
    assert_eq!(effects, expected);
}
