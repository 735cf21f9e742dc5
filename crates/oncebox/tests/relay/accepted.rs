//! Messages that were accepted for an inbox, and a relay that does not have it.

use oncebox::message::Record;
use oncebox::sqlite::SqliteStore;
use oncebox::{Inbox, LocalQueue, Message, Monitor, Selector};
use sqlx::SqliteConnection;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, Notes, Running, eventually, sink};

fn accepted(fixture: &Fixture) -> LocalQueue<SqliteStore> {
    LocalQueue::new(fixture.store.clone(), "orders".parse().unwrap(), "orders taken in")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_the_inbox_holds_what_was_accepted_for_it_and_says_so() {
    let fixture = Fixture::new().await;
    let mut record = Record::at("orders", 0, 0);
    record.key = Some("4711".into());
    accepted(&fixture).put(vec![record]).await.unwrap();
    let (others, monitor) = (Notes::default(), Monitor::default());
    let relay = fixture.relay().sink(sink(&others, |_| Ok(()))).monitor(monitor.clone());
    let relay = Running::start(relay);
    fixture.emit("stock", &["a"], 0..1).await;
    let says_so = || {
        let mut errors = monitor.report().into_iter().filter_map(|report| report.error);
        errors.any(|error| error.contains("accepted for the inbox orders") && error.contains("must run it"))
    };
    eventually("it says so", says_so).await;
    eventually("other events go out", || others.payloads() == ["a:0"]).await;
    relay.stop().await;
    assert_eq!(others.all().len(), 1, "nobody else gets it");

    let (queue, stop) = (accepted(&fixture), CancellationToken::new());
    let inbox = Inbox::new("orders", fixture.store.clone()).unwrap().id(Selector::Key);
    let worker = inbox.each(async |_: &mut SqliteConnection, _: &Message| Ok(()));
    let relay = Running::start(fixture.relay().route(queue.topic(), queue.sink()));
    let worker = tokio::spawn(worker.serve(queue, stop.clone()));
    fixture.drained().await;
    stop.cancel();
    worker.await.unwrap();
    relay.stop().await;
    let receipts: Vec<String> = sqlx::query_scalar("SELECT message_id FROM oncebox_inbox")
        .fetch_all(&mut fixture.connect().await)
        .await
        .unwrap();
    assert_eq!(receipts, ["4711"], "it was held, and not given up");
}
