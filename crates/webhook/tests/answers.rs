//! What becomes of an event, by the answer it gets.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod receiver;

use std::time::Duration;

use oncebox_core::error::Outcome;
use oncebox_core::outbox::{Deliver, OutgoingEvent};
use oncebox_webhook::Webhook;
use receiver::{AGES, Receiver, Reply, event};
use tokio::net::TcpListener;

/// Long enough to never be over by chance.
const LONG: Duration = Duration::from_secs(20);

async fn deliver(webhook: &Webhook, event: &OutgoingEvent) -> Result<(), Outcome> {
    let result = tokio::time::timeout(AGES, webhook.deliver(event)).await.expect("a delivery that hangs");
    result.map_err(|error| {
        let outcome = error.downcast_ref::<Outcome>().expect("an outcome").clone();
        assert!(outcome.to_string().contains(&event.id().to_string()), "{outcome}");
        outcome
    })
}

/// One event to a receiver that always does the same.
async fn outcome(reply: Reply, timeout: Duration) -> Result<(), Outcome> {
    let receiver = Receiver::start(move |_| reply.clone()).await;
    let webhook = Webhook::to(format!("{}/in?token=canary", receiver.url)).unwrap().timeout(timeout);
    let outcome = deliver(&webhook, &event(None, Some("{}"), &[])).await;
    assert_eq!(receiver.received().len(), 1, "the sink itself tries once");
    drop(webhook);
    receiver.all_connections_are_closed().await;
    if let Err(outcome) = &outcome {
        assert!(outcome.to_string().contains(&format!(" to {}: ", receiver.url)), "{outcome}");
    }
    outcome
}

fn retried(outcome: Result<(), Outcome>) -> String {
    match outcome {
        Err(Outcome::Retry { reason }) => reason,
        other => panic!("not a plain retry: {other:?}"),
    }
}

fn rejected(outcome: Result<(), Outcome>) -> String {
    match outcome {
        Err(Outcome::Reject { reason }) => reason,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn no_answer_in_time_is_tried_again() {
    for start in ["", "HTTP/1.1 200 OK\r\nx-slow: "] {
        let reason = retried(outcome(Reply::Stuck(start.to_owned()), Duration::from_millis(300)).await);
        assert!(reason.contains("no answer within 300ms"), "{reason}");
    }
}

#[tokio::test]
async fn a_receiver_in_trouble_gets_the_event_again() {
    for status in ["408 Request Timeout", "425 Too Early", "429 Too Many Requests", "500 Oops", "503 Busy"] {
        let reason = retried(outcome(Reply::with(status, "", "later, please"), LONG).await);
        assert!(reason.contains(&status[..3]) && reason.ends_with("\nit said: later, please"), "{reason}");
    }
}

#[tokio::test]
async fn a_receiver_may_say_when() {
    for (status, header, expected) in [
        ("429 Too Many Requests", "retry-after: 7\r\n", 7),
        ("503 Service Unavailable", "Retry-After: 86400\r\n", 3600),
        ("503 Service Unavailable", "retry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\n", 3600),
    ] {
        match outcome(Reply::with(status, header, ""), LONG).await {
            Err(Outcome::RetryAfter { delay, .. }) => assert_eq!(delay, Duration::from_secs(expected)),
            other => panic!("{status}: {other:?}"),
        }
    }
    retried(outcome(Reply::with("429 Too Many Requests", "retry-after: 0\r\n", ""), LONG).await);
}

#[tokio::test]
async fn a_refusal_is_final_and_quotes_the_answer() {
    let long = format!("no such field\r\n\0\u{1b}[2J{}", "ä".repeat(5000));
    let reason = rejected(outcome(Reply::with("400 Bad Request", "", &long), LONG).await);
    let (what, quoted) = reason.split_once('\n').unwrap();
    assert!(what.contains("refuses it, 400 Bad Request; fix the receiver"), "{reason}");
    assert!(
        quoted.starts_with("it said: no such field\\r\\n\\u{0}\\u{1b}[2Jä") && quoted.ends_with("ä…"),
        "{reason}"
    );
    assert!(reason.chars().count() < 450 && !quoted.contains(char::is_control), "{reason}");
    for status in ["410 Gone", "413 Too Large", "415 Unsupported", "422 Unprocessable"] {
        let reason = rejected(outcome(Reply::status(status), LONG).await);
        assert!(reason.contains(&format!("refuses it, {}", &status[..3])), "{reason}");
    }
}

#[tokio::test]
async fn what_does_not_speak_of_this_very_event_is_tried_again() {
    for status in ["304 Not Modified", "401 Unauthorized", "403 Forbidden", "404 Not Found", "409 Conflict"] {
        let reason = retried(outcome(Reply::status(status), LONG).await);
        assert!(reason.contains(&format!("does not take it, {status}; see to its address")), "{reason}");
    }
}

#[tokio::test]
async fn the_settings_say_what_speaks_of_this_very_event() {
    let receiver = Receiver::start(|request| match request.header("oncebox-key") {
        Some("conflict") => Reply::status("409 Conflict"),
        _ => Reply::status("400 Bad Request"),
    })
    .await;
    let webhook = Webhook::to(&receiver.url).unwrap().park_on([409]).unwrap();
    rejected(deliver(&webhook, &event(Some("conflict"), Some("{}"), &[])).await);
    retried(deliver(&webhook, &event(None, Some("{}"), &[])).await);
    for status in [0, 200, 299, 600, 65535] {
        let error = Webhook::to(&receiver.url).unwrap().park_on([400, status]).unwrap_err().to_string();
        assert!(error.contains(&format!("the status {status}: write statuses from 300 to 599")), "{error}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Receiver::start(|_| Reply::status("200 OK")).await;
    let authority = target.url.trim_start_matches("http://").to_owned();
    for status in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Moved"]
    {
        let headers = format!("location: http://me:canary@{authority}/there?token=canary\r\n");
        let reason = retried(outcome(Reply::with(status, &headers, ""), LONG).await);
        assert!(reason.contains(&format!("a redirect to http://{authority}; ")), "{reason}");
        assert!(!reason.contains("canary"), "{reason}");
    }
    assert_eq!(target.received().len(), 0);
}

#[tokio::test]
async fn a_connection_that_breaks_is_tried_again() {
    for start in ["", "HTTP/1.1 200 O", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n", "not HTTP at all\r\n\r\n"]
    {
        let reason = retried(outcome(Reply::Close(start.to_owned()), LONG).await);
        assert!(reason.contains("the connection broke before the answer"), "{reason}");
    }
}

#[tokio::test]
async fn a_receiver_that_is_away_gets_the_event_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for scheme in ["http", "https"] {
        let webhook = Webhook::to(format!("{scheme}://{address}")).unwrap();
        let reason = retried(deliver(&webhook, &event(None, Some("{}"), &[])).await);
        assert!(reason.contains("no connection") && reason.contains("refused"), "{reason}");
    }
    let webhook = Webhook::to("http://no-such-host.invalid/").unwrap();
    let reason = retried(deliver(&webhook, &event(None, Some("{}"), &[])).await);
    assert!(reason.contains("no connection"), "{reason}");
}

#[tokio::test]
async fn the_status_counts_even_if_the_answer_breaks_off_or_never_ends() {
    let chunk = format!("1000\r\n{}\r\n", "a".repeat(4096));
    for (status, delivered) in [("200 OK", true), ("400 Bad Request", false)] {
        let chunked = format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n");
        let promised = format!("HTTP/1.1 {status}\r\ncontent-length: 1000000000000\r\n\r\na");
        let replies = [
            Reply::Endless(chunked, chunk.clone()),
            Reply::Endless(promised.clone(), "a".repeat(1000)),
            Reply::Stuck(promised.clone()),
            Reply::Close(promised),
            Reply::with(status, "", &"a".repeat(10_000_000)),
        ];
        for reply in replies {
            let outcome = outcome(reply, LONG).await;
            if delivered {
                outcome.unwrap();
            } else {
                let reason = rejected(outcome);
                assert!(reason.contains(" 400 Bad Request; ") && reason.contains("\nit said: a"), "{reason}");
                assert!(reason.len() < 500, "{reason}");
            }
        }
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_collected() {
    let start = "HTTP/1.1 200 OK\r\nx-long: ".to_owned();
    let reason = retried(outcome(Reply::Endless(start, "a".repeat(1000)), LONG).await);
    assert!(reason.contains("the connection broke before the answer"), "{reason}");
}
