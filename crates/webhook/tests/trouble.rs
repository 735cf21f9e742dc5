//! A receiver in trouble: it is spared, its events wait without being blamed, and others go on.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod receiver;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use oncebox_core::backoff::Backoff;
use oncebox_core::inbox::RetryPolicy;
use oncebox_core::outbox::{ByEvent, Delivery, OutgoingEvent, Sink, Standing};
use oncebox_webhook::Webhook;
use receiver::{AGES, Received, Receiver, Reply, event};

const PAUSE: Duration = Duration::from_millis(200);

/// Pauses of up to a fifth of a second.
fn sink(receiver: &Receiver, webhook: impl Fn(Webhook) -> Webhook) -> ByEvent<Webhook> {
    let retry = RetryPolicy { attempts: u32::MAX, backoff: Backoff::new(PAUSE / 2, PAUSE) };
    webhook(Webhook::to(format!("{}/canary-path", receiver.url)).unwrap().retry(retry)).into_sink()
}

fn events(keys: std::ops::Range<u32>) -> Vec<OutgoingEvent> {
    keys.map(|key| event(Some(&key.to_string()), Some("{}"), &[])).collect()
}

/// Answers with this for a while: so many requests.
async fn ill_for(requests: usize, ill: Reply) -> (Receiver, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(requests));
    let counted = Arc::clone(&left);
    let receiver = Receiver::start(move |_: &Received| {
        let is_ill =
            counted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_ill { ill.clone() } else { Reply::status("200 OK") }
    })
    .await;
    (receiver, left)
}

/// Waits until a batch may try.
async fn pause_is_over(sink: &ByEvent<Webhook>) {
    let begin = Instant::now();
    while matches!(sink.standing(), Standing::Away { .. }) {
        assert!(begin.elapsed() < AGES, "it never ends");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn count(deliveries: &[Delivery], is: impl Fn(&Delivery) -> bool) -> usize {
    deliveries.iter().filter(|delivery| is(delivery)).count()
}

#[tokio::test]
async fn after_some_failures_one_request_at_a_time_tries_it() {
    let (receiver, _) =
        ill_for(usize::MAX, Reply::with("404 Not Found", "", "Cannot POST /canary-path")).await;
    let sink = sink(&receiver, |webhook| webhook.at_once(1));
    let deliveries = sink.deliver(&events(0..100)).await.unwrap();
    assert_eq!(receiver.received().len(), 5, "then it is left alone");
    assert_eq!(count(&deliveries, |d| matches!(d, Delivery::Retry { after: None, .. })), 4);
    assert_eq!(
        count(&deliveries, |d| matches!(d, Delivery::Wait { .. })),
        1,
        "the last is not blamed any more"
    );
    assert_eq!(count(&deliveries, |d| *d == Delivery::NotTried), 95);
    let reason: Arc<str> = format!("{} answers 404 Not Found", receiver.url).into();
    assert_eq!(sink.standing(), Standing::Away { reason: Arc::clone(&reason) });
    for probes in 1..4 {
        pause_is_over(&sink).await;
        assert_eq!(sink.standing(), Standing::Probe { reason: Arc::clone(&reason) });
        let deliveries = sink.deliver(&events(100..200)).await.unwrap();
        assert_eq!(receiver.received().len(), 5 + probes);
        let waits = |d: &Delivery| matches!(d, Delivery::Wait { after } if *after <= PAUSE * 2);
        assert_eq!((count(&deliveries, waits), count(&deliveries, |d| *d == Delivery::NotTried)), (1, 99));
    }
}

#[tokio::test]
async fn one_that_is_back_gets_everything() {
    let (receiver, ill) = ill_for(usize::MAX, Reply::status("503 Busy")).await;
    let sink = sink(&receiver, |webhook| webhook.at_once(4));
    sink.deliver(&events(0..20)).await.unwrap();
    assert!(matches!(sink.standing(), Standing::Away { .. }));
    ill.store(0, Ordering::SeqCst);
    pause_is_over(&sink).await;
    let deliveries = sink.deliver(&events(20..21)).await.unwrap();
    assert_eq!((deliveries, sink.standing()), (vec![Delivery::Delivered], Standing::Ready));
    let deliveries = sink.deliver(&events(21..121)).await.unwrap();
    assert_eq!(deliveries, vec![Delivery::Delivered; 100]);
}

#[tokio::test]
async fn retry_after_holds_the_whole_receiver() {
    for as_a_date in [false, true] {
        let wish = if as_a_date { http_date_in(Duration::from_secs(3)) } else { "1".to_owned() };
        let headers = format!("retry-after: {wish}\r\n");
        let (receiver, _) = ill_for(1, Reply::with("429 Too Many Requests", &headers, "")).await;
        let sink = sink(&receiver, |webhook| webhook.at_once(1));
        let begin = Instant::now();
        let deliveries = sink.deliver(&events(0..10)).await.unwrap();
        assert!(matches!(deliveries[0], Delivery::Wait { .. }), "{wish}: {deliveries:?}");
        assert_eq!(deliveries[1..], vec![Delivery::NotTried; 9]);
        pause_is_over(&sink).await;
        assert!(begin.elapsed() > Duration::from_millis(500), "{wish}");
        assert_eq!(receiver.received().len(), 1);
        assert_eq!(sink.deliver(&events(1..2)).await.unwrap(), [Delivery::Delivered]);
    }
}

/// Whole seconds, so it may be nearly one less.
fn http_date_in(delay: Duration) -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now() + delay)
}

#[tokio::test]
async fn one_event_that_fails_says_nothing_about_the_others() {
    let receiver = Receiver::start(|request| match request.header("oncebox-key") {
        Some("0") => Reply::status("500 Oops"),
        _ => Reply::status("200 OK"),
    })
    .await;
    let sink = sink(&receiver, |webhook| webhook.at_once(1));
    let wrong = events(0..1);
    for _ in 0..20 {
        let deliveries = sink.deliver(&wrong).await.unwrap();
        assert!(matches!(&deliveries[..], [Delivery::Retry { .. }]), "{deliveries:?}");
    }
    assert!(matches!(sink.standing(), Standing::Failing { .. }), "nothing is delivered, and that is said");
    assert_eq!(sink.deliver(&events(1..2)).await.unwrap(), [Delivery::Delivered]);
    assert_eq!(sink.standing(), Standing::Ready);
}

#[tokio::test]
async fn who_refuses_everything_parks_only_so_many() {
    let (receiver, ill) = ill_for(usize::MAX, Reply::status("400 Bad Request")).await;
    let sink = sink(&receiver, |webhook| webhook.at_once(1));
    let deliveries = sink.deliver(&events(0..50)).await.unwrap();
    assert_eq!(count(&deliveries, |d| matches!(d, Delivery::Reject { .. })), 10);
    assert_eq!(count(&deliveries, |d| *d == Delivery::NotTried), 39);
    ill.store(0, Ordering::SeqCst);
    pause_is_over(&sink).await;
    assert_eq!(sink.deliver(&events(50..51)).await.unwrap(), [Delivery::Delivered]);
}

#[tokio::test]
async fn a_request_that_was_dropped_is_made_up_for() {
    let receiver = Receiver::start(|request| match request.header("oncebox-key") {
        Some("5") => Reply::Stuck(String::new()),
        Some("6") => Reply::status("200 OK"),
        _ => Reply::status("500 Oops"),
    })
    .await;
    let sink = sink(&receiver, |webhook| webhook.at_once(1));
    sink.deliver(&events(0..5)).await.unwrap();
    pause_is_over(&sink).await;
    let probe = events(5..6);
    let it_is_under_way = async {
        while receiver.received().len() < 6 {
            tokio::task::yield_now().await;
        }
        assert!(matches!(sink.standing(), Standing::Away { .. }));
    };
    tokio::select! {
        deliveries = sink.deliver(&probe) => panic!("{deliveries:?}"),
        () = it_is_under_way => {}
    }
    assert!(matches!(sink.standing(), Standing::Probe { .. }));
    assert_eq!(sink.deliver(&events(6..7)).await.unwrap(), [Delivery::Delivered]);
}

#[tokio::test]
async fn keys_that_hang_share_one_request_and_the_others_flow() {
    let receiver = Receiver::start(|request| match request.header("oncebox-key") {
        Some(key) if key.len() == 1 => Reply::Stuck(String::new()),
        _ => Reply::status("200 OK"),
    })
    .await;
    let sink = sink(&receiver, |webhook| webhook.at_once(2).timeout(Duration::from_millis(300)));
    let hanging = |deliveries: &[Delivery]| count(deliveries, |d| matches!(d, Delivery::Retry { .. }));
    // Each is met once, between events that are delivered.
    for key in 0..4 {
        let mut batch = events(key..key + 1);
        batch.extend(events(100 + key * 10..110 + key * 10));
        let deliveries = sink.deliver(&batch).await.unwrap();
        assert_eq!((hanging(&deliveries), deliveries.len()), (1, 11), "{deliveries:?}");
    }
    let known = receiver.received().len();
    let mut batch = events(0..4);
    batch.extend(events(200..220));
    let deliveries = sink.deliver(&batch).await.unwrap();
    assert_eq!(count(&deliveries, |d| *d == Delivery::Delivered), 20, "{deliveries:?}");
    assert_eq!(hanging(&deliveries), 1, "one of them is tried: {deliveries:?}");
    assert_eq!(
        count(&deliveries, |d| matches!(d, Delivery::Wait { .. })),
        3,
        "the others wait, and are not blamed"
    );
    assert_eq!(receiver.received().len(), known + 21);
}
