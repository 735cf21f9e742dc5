//! What a receiver gets.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod receiver;

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use oncebox_core::outbox::Deliver;
use oncebox_webhook::{Error, Webhook};
use receiver::{Receiver, Reply, event};
use sha2::{Digest, Sha256};

/// HMAC as RFC 2104 writes it, not as the sink computes it. For keys of up to 64 bytes.
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad =
        |with: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or_default() ^ with).collect() };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

fn signature(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> String {
    let signed = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat();
    format!("v1,{}", BASE64_STANDARD.encode(hmac_sha256(key, &signed)))
}

#[tokio::test]
async fn an_event_arrives_with_all_that_is_known_of_it() {
    let receiver = Receiver::start(|_| Reply::status("200 OK")).await;
    let webhook = Webhook::to(format!("{}/in?from=shop", receiver.url)).unwrap();
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [
        ("content-type", "application/json"),
        ("traceparent", traceparent),
        ("x-color", "blue"),
        ("x-color", "red"),
    ];
    let event = event(Some("A 1"), Some(r#"{"qty": 2}"#), &headers);
    webhook.deliver(&event).await.unwrap();

    let received = &receiver.received()[0];
    let id = event.id().to_string();
    assert_eq!(received.line, "POST /in?from=shop HTTP/1.1");
    assert_eq!(received.body, br#"{"qty": 2}"#);
    let expected = [
        ("host", receiver.url.trim_start_matches("http://")),
        ("content-type", "application/json"),
        ("content-length", "10"),
        ("idempotency-key", &id),
        ("ce-id", &id),
        ("ce-source", "shop"),
        ("ce-type", "orders"),
        ("ce-time", "2023-11-14T22:13:20.000Z"),
        ("ce-specversion", "1.0"),
        ("oncebox-id", &id),
        ("oncebox-topic", "orders"),
        ("oncebox-key", "A 1"),
        ("oncebox-causation-id", "m-1"),
        ("traceparent", traceparent),
        ("x-color", "red"),
    ];
    for (name, value) in expected {
        assert_eq!(received.header(name), Some(value), "{name}");
    }
    assert!(received.header("user-agent").unwrap().starts_with("oncebox/"));
    // These and no others.
    assert_eq!(received.headers.len(), expected.len() + 1, "{:?}", received.headers);
}

#[tokio::test]
async fn the_signature_is_that_of_the_standard() {
    // First of all, this test's own arithmetic against the vector of the reference libraries.
    let key = BASE64_STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    assert_eq!(
        signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#),
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    );

    let receiver = Receiver::start(|_| Reply::status("204 No Content")).await;
    let webhook = Webhook::to(&receiver.url)
        .unwrap()
        .secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        .unwrap()
        .secret("the next secret, in plain text")
        .unwrap();
    for payload in [Some("a payload with ünïcode"), None] {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let event = event(None, payload, &[("webhook-signature", "v1,forged"), ("webhook-id", "forged")]);
        webhook.deliver(&event).await.unwrap();

        let received = receiver.received().pop().unwrap();
        let timestamp = received.header("webhook-timestamp").unwrap();
        let sent: u64 = timestamp.parse().unwrap();
        assert!((before..=before + 30).contains(&sent), "{sent}");
        let id = received.header("webhook-id").unwrap();
        assert_eq!(id, event.id().to_string());
        let both = format!(
            "{} {}",
            signature(&key, id, timestamp, &received.body),
            signature(b"the next secret, in plain text", id, timestamp, &received.body)
        );
        assert_eq!(received.header("webhook-signature"), Some(both.as_str()));
    }
}

#[tokio::test]
async fn a_tombstone_is_told_from_an_empty_payload() {
    let receiver = Receiver::start(|_| Reply::status("200 OK")).await;
    let webhook = Webhook::to(&receiver.url).unwrap();
    webhook.deliver(&event(None, Some(""), &[])).await.unwrap();
    webhook.deliver(&event(None, None, &[("content-type", "application/json")])).await.unwrap();

    let received = receiver.received();
    assert_eq!(received[0].header("content-type"), Some("application/octet-stream"));
    assert_eq!(received[1].header("content-type"), None);
    assert!(received.iter().all(|r| r.body.is_empty() && r.header("oncebox-key").is_none()));
    assert!(received.iter().all(|r| r.header("content-length") == Some("0")));
}

#[tokio::test]
async fn an_event_cannot_speak_for_its_sender() {
    let receiver = Receiver::start(|_| Reply::status("200 OK")).await;
    let webhook = Webhook::to(&receiver.url).unwrap().header("X-Tenant", "ours").unwrap();
    let names = [
        "Authorization",
        "Cookie",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Upgrade",
        "Expect",
        "X-Forwarded-For",
        "Proxy-Authorization",
        "Sec-Fetch-Site",
        "Idempotency-Key",
        "Ce-Id",
        "Webhook-Signature",
        "Oncebox-Topic",
        "Oncebox-Key",
        "Oncebox-Id",
        "ce_id",
        "X-Tenant",
        "User-Agent",
    ];
    let mut headers: Vec<(&str, &str)> = names.iter().map(|name| (*name, "forged")).collect();
    // What HTTP cannot carry.
    headers.extend([("not a name", "forged"), ("x-lines", "forged\r\nx-more: forged"), ("x-ünï", "forged")]);
    headers.extend([("x-unicode", "forged ü"), ("x-kept", "kept"), ("", "forged")]);
    webhook.deliver(&event(Some("ключ"), Some("{}"), &headers)).await.unwrap();

    let received = receiver.received().pop().unwrap();
    assert!(!format!("{received:?}").contains("forged"), "{received:?}");
    assert_eq!(received.header("x-tenant"), Some("ours"));
    assert_eq!(received.header("x-kept"), Some("kept"));
    assert_eq!(received.header("oncebox-key"), None);
    assert_eq!(received.body, b"{}");
}

#[tokio::test]
async fn cloudevents_attributes_are_percent_encoded() {
    let receiver = Receiver::start(|_| Reply::status("200 OK")).await;
    let webhook = Webhook::to(&receiver.url).unwrap();
    let headers = [("ce_type", "shop.geändert 100%"), ("ce_subject", "a\r\n\"b\"")];
    webhook.deliver(&event(None, Some("{}"), &headers)).await.unwrap();

    let received = receiver.received().pop().unwrap();
    assert_eq!(received.header("ce-type"), Some("shop.ge%C3%A4ndert%20100%25"));
    assert_eq!(received.header("ce-subject"), Some("a%0D%0A%22b%22"));
}

#[tokio::test]
async fn too_many_headers_are_refused_before_anything_is_sent() {
    let receiver = Receiver::start(|_| Reply::status("200 OK")).await;
    let webhook = Webhook::to(&receiver.url).unwrap();
    let names: Vec<String> = (0..40_000).map(|n| format!("x-{n}")).collect();
    let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let event = event(None, Some("{}"), &headers);
    let error = webhook.deliver(&event).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!("event {} has more than 1000 headers, too many for HTTP; write it with fewer", event.id())
    );
    assert_eq!(receiver.received().len(), 0);
}

#[tokio::test]
async fn connections_are_used_again() {
    let receiver = Receiver::start(|_| Reply::with("200 OK", "", "thanks")).await;
    let webhook = Webhook::to(&receiver.url).unwrap();
    for _ in 0..50 {
        webhook.deliver(&event(None, Some("{}"), &[])).await.unwrap();
    }
    assert_eq!(receiver.most_open(), 1);
    assert!(receiver.received().iter().all(|request| request.connection == 0));
}

#[tokio::test]
async fn a_connection_that_the_receiver_closed_is_replaced() {
    let thanks = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(|_| Reply::Close(thanks.to_owned())).await;
    let webhook = Webhook::to(&receiver.url).unwrap();
    for _ in 0..20 {
        let event = event(None, Some("{}"), &[]);
        // The request may cross with the end of the connection; then the next try opens a new one.
        if let Err(error) = webhook.deliver(&event).await {
            assert!(error.to_string().contains("the connection broke"), "{error}");
            webhook.deliver(&event).await.unwrap();
        }
        receiver.all_connections_are_closed().await;
    }
    let received = receiver.received();
    assert_eq!(received.len(), 20);
    assert!(received.is_sorted_by_key(|request| request.connection));
}

#[tokio::test]
async fn a_connection_with_an_answer_half_read_is_not_used_again() {
    let promised = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\na";
    for reply in [Reply::Stuck(promised.to_owned()), Reply::with("200 OK", "", &"a".repeat(1_000_000))] {
        let receiver = Receiver::start(move |_| reply.clone()).await;
        let webhook = Webhook::to(&receiver.url).unwrap();
        for at in 0..2 {
            webhook.deliver(&event(None, Some("{}"), &[])).await.unwrap();
            assert_eq!(receiver.received().last().unwrap().connection, at);
        }
        receiver.all_connections_are_closed().await;
    }
}

#[test]
fn headers_of_the_sink_itself_cannot_be_configured() {
    let webhook = Webhook::to("http://127.0.0.1").unwrap();
    for name in
        ["Content-Length", "connection", "webhook-id", "ce-type", "Idempotency-Key", "content-type", "a b"]
    {
        let error = webhook.clone().header(name, "canary").unwrap_err();
        assert!(matches!(error, Error::Header { .. }), "{error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
    let error = webhook.header("authorization", "canary\r\nx: y").unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
}
