//! No secret leaves the process but in the request.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod receiver;

use std::time::Duration;

use oncebox_core::error::describe;
use oncebox_core::outbox::Deliver;
use oncebox_webhook::Webhook;
use receiver::{Receiver, Reply, event};

/// A webhook with a canary in every place where a secret may be.
fn webhook(url: &str) -> Webhook {
    let host = url.trim_start_matches("http://");
    Webhook::to(format!("http://canary-user:canary-password@{host}/in/canary-path/canary%2Fencoded?token=canary-query&x=canary-x#canary"))
        .unwrap()
        .secret("canary-signing-secret")
        .unwrap()
        .secret("whsec_Y2FuYXJ5LXNpZ25pbmctc2VjcmV0")
        .unwrap()
        .header("x-api-key", "canary-key")
        .unwrap()
        .header("x-token", "Bearer canary-token")
        .unwrap()
        .timeout(Duration::from_millis(500))
}

#[tokio::test]
async fn errors_and_debug_name_no_secret() {
    let echo = "canary-path canary/encoded canary%2Fencoded /in/canary-path/canary%2Fencoded canary-password canary-query canary-x canary-signing-secret canary-key canary-token \
                token=canary-query&x=canary-x Y2FuYXJ5LXVzZXI6Y2FuYXJ5LXBhc3N3b3Jk";
    let location = "location: /in/canary-path?token=canary-query\r\n";
    let replies = [
        Reply::with("400 Bad Request", "", echo),
        Reply::with("404 Not Found", "", "Cannot POST /in/canary-path/canary%2Fencoded"),
        Reply::with("500 Oops", "", echo),
        Reply::with("429 Too Many", "retry-after: 3\r\n", echo),
        Reply::with("302 Found", location, echo),
        Reply::Close(String::new()),
        Reply::Stuck(String::new()),
    ];
    for reply in replies {
        let expected = format!("{reply:?}");
        let receiver = Receiver::start(move |_| reply.clone()).await;
        let webhook = webhook(&receiver.url);
        let error = webhook.deliver(&event(None, Some("{}"), &[])).await.unwrap_err();
        let delivery = webhook.attempt(&event(None, Some("{}"), &[])).await;
        let text = format!(
            "{error} {error:?} {} {webhook:?} {:#?} {delivery:?} {:?}",
            describe(error.as_ref()),
            webhook.clone(),
            webhook.standing()
        );
        assert!(!text.contains("canary"), "{expected}: {text}");
        assert!(!text.contains("Y2FuYXJ5"), "{expected}: {text}");
        assert!(text.contains(&receiver.url), "{text}");

        let received = receiver.received().pop().unwrap();
        assert_eq!(
            received.line,
            "POST /in/canary-path/canary%2Fencoded?token=canary-query&x=canary-x HTTP/1.1"
        );
        assert_eq!(received.header("x-api-key"), Some("canary-key"));
        let basic = "Basic Y2FuYXJ5LXVzZXI6Y2FuYXJ5LXBhc3N3b3Jk";
        assert_eq!(received.header("authorization"), Some(basic));
    }
}

#[tokio::test]
async fn a_receiver_that_repeats_the_whole_request_tells_nothing() {
    let receiver = Receiver::start(|request| {
        let headers: Vec<String> = request
            .headers
            .iter()
            .filter(|(name, _)| name.starts_with("x-"))
            .map(|(n, v)| format!("{n}={v}"))
            .collect();
        Reply::with("422 Unprocessable", "", &format!("{} {}", headers.join(" "), request.line))
    })
    .await;
    let error = webhook(&receiver.url).deliver(&event(None, Some("{}"), &[])).await.unwrap_err().to_string();
    assert!(!error.contains("canary"), "{error}");
    assert!(error.contains("x-api-key=*** x-token=*** POST ***?*** HTTP/1.1"), "{error}");
}
