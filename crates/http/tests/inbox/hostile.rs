//! Clients that are slow, that lie, or that speak something else.

use std::time::Duration;

use oncebox_http::{HttpInbox, Limits, ServerLimits};
use tokio::io::AsyncWriteExt;

use crate::client::{Raw, post};
use crate::fixture::{Database, PATH, Service, http};

const HEAD: &str = "POST /in/orders HTTP/1.1\r\nHost: test\r\nIdempotency-Key: a\r\n";

async fn start(db: &Database, http: HttpInbox, limits: ServerLimits) -> Service {
    Service::start_at("127.0.0.1:0".parse().unwrap(), http, db.inbox(), limits).await
}

/// The service still does its work, and nothing of the hostile client is in the database.
async fn still_works(db: &Database, service: &Service) {
    assert_eq!(post(PATH, "{}").id("good").to(service.address).await.status, 204);
    assert_eq!(db.effects().await, ["good"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_never_end_are_cut() {
    let db = Database::new().await;
    let limits = ServerLimits { head_within: Duration::from_millis(200), ..ServerLimits::default() };
    let service = start(&db, http(), limits).await;
    let mut slow = Raw::open(service.address).await;
    slow.say(HEAD).await;
    let (mut reader, mut writer) = slow.0.into_split();
    // A few bytes now and then: it is the whole that must come in time.
    let drip = tokio::spawn(async move {
        while writer.write_all(b"x-a: b\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut said = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut said);
    drop(tokio::time::timeout(crate::client::SOON, read).await.expect("the connection is cut"));
    drip.await.unwrap();
    // And one that says nothing at all.
    assert_eq!(Raw::open(service.address).await.rest().await, "");
    still_works(&db, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_without_end_are_431() {
    let db = Database::new().await;
    let service = start(&db, http(), ServerLimits::default()).await;
    let mut many = Raw::open(service.address).await;
    many.say(format!("{HEAD}{}\r\n", "x-a: b\r\n".repeat(200))).await;
    let said = many.rest().await;
    assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
    // This one is cut off before it has said everything, and may miss the answer.
    let mut long = Raw::open(service.address).await;
    long.0.write_all(format!("{HEAD}x-a: {}", "b".repeat(200_000)).as_bytes()).await.ok();
    let said = long.rest().await;
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 431 "), "{said}");
    still_works(&db, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_slower_than_the_limit_is_408_and_cut() {
    let db = Database::new().await;
    let limits = Limits { body_within: Duration::from_millis(100), ..Limits::default() };
    let service = start(&db, http().limits(limits), ServerLimits::default()).await;
    for head in ["Content-Length: 1000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"] {
        let mut slow = Raw::open(service.address).await;
        slow.say(format!("{HEAD}{head}")).await;
        let said = slow.rest().await;
        assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("application/problem+json"), "{said}");
    }
    still_works(&db, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_larger_than_the_limit_is_413_whatever_was_announced() {
    let db = Database::new().await;
    let limits = Limits { body_bytes: 1_000, ..Limits::default() };
    let service = start(&db, http().limits(limits), ServerLimits::default()).await;
    // Announced, and nothing of it sent.
    let mut honest = Raw::open(service.address).await;
    honest.say(format!("{HEAD}Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n")).await;
    let said = honest.rest().await;
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    // In pieces, without an end.
    let mut endless = Raw::open(service.address).await;
    endless.say(format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n")).await;
    for _ in 0..11 {
        endless.0.write_all(format!("64\r\n{}\r\n", "x".repeat(100)).as_bytes()).await.ok();
    }
    let said = endless.rest().await;
    assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    still_works(&db, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_longer_than_announced_is_not_part_of_the_message() {
    let db = Database::new().await;
    let service = start(&db, http(), ServerLimits::default()).await;
    let mut liar = Raw::open(service.address).await;
    liar.say(format!("{HEAD}Content-Length: 2\r\n\r\n{{}}reject and more")).await;
    let said = liar.rest().await;
    assert!(said.starts_with("HTTP/1.1 204 ") && said.contains("HTTP/1.1 400 "), "{said}");
    assert_eq!(db.effects().await, ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_too_early_is_no_message() {
    let db = Database::new().await;
    let service = start(&db, http(), ServerLimits::default()).await;
    for head in [
        "Content-Length: 1000\r\n\r\n{",
        "Transfer-Encoding: chunked\r\n\r\nff\r\n{",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let mut client = Raw::open(service.address).await;
        client.say(format!("{HEAD}{head}")).await;
        client.0.shutdown().await.unwrap();
        let said = client.rest().await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    }
    still_works(&db, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_400_and_cut() {
    let db = Database::new().await;
    let service = start(&db, http(), ServerLimits::default()).await;
    let cases: [&[u8]; 7] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03garbage",
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /in/orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /in/orders HTTP/1.1\r\nHost: a\r\nIdempotency-Key: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /in/orders HTTP/1.1\r\nIdempotency-Key : a\r\nContent-Length: 0\r\n\r\n",
        b"POST /in/orders HTTP/9.9\r\nIdempotency-Key: a\r\n\r\n",
    ];
    for garbage in cases {
        let mut client = Raw::open(service.address).await;
        client.say(garbage).await;
        client.0.shutdown().await.unwrap();
        let said = client.rest().await;
        let shown = String::from_utf8_lossy(garbage);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{shown:?}: {said}");
    }
    still_works(&db, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_bounded() {
    let db = Database::new().await;
    let limits = ServerLimits { connections: 2, ..ServerLimits::default() };
    let service = start(&db, http(), limits).await;
    let address = service.address;
    let idle = [Raw::open(address).await, Raw::open(address).await];
    let mut waiting = tokio::spawn(async move { post(PATH, "{}").id("good").to(address).await });
    let early = tokio::time::timeout(Duration::from_millis(100), &mut waiting).await;
    assert!(early.is_err(), "there is no place for a third: {early:?}");
    drop(idle);
    assert_eq!(waiting.await.unwrap().status, 204);
    still_works(&db, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_goes_away_before_the_answer_has_still_sent_its_message() {
    let db = Database::new().await;
    let service = start(&db, http(), ServerLimits::default()).await;
    let mut client = Raw::open(service.address).await;
    client.say(format!("{HEAD}Content-Length: 4\r\n\r\nwait")).await;
    service.gate.reached_by(1).await;
    drop(client);
    service.gate.open(1);
    let again = post(PATH, "wait").id("a").to(service.address).await;
    assert!(again.status == 204 && again.is_replayed(), "{again:?}");
    assert_eq!(db.effects().await, ["a"]);
}
