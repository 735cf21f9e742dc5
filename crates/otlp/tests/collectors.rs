//! Collectors that work, that are in trouble, and that are not there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use oncebox_core::secret::Secret;
use oncebox_core::telemetry::{Kind, Recorder, Span, SpanId, TraceId};
use oncebox_otlp::{Exporter, FLUSH_LIMIT, Settings};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The head of a request, and the names of its spans.
type Seen = (String, Vec<String>);

/// What a collector has got.
#[derive(Clone, Default)]
struct Got(Arc<Mutex<Vec<Seen>>>);

impl Got {
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().flat_map(|(_, names)| names.clone()).collect()
    }

    fn requests(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    async fn until(&self, enough: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !enough(self) {
            assert!(Instant::now() < deadline, "{:?}", self.0.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A collector that answers its first requests with these statuses, and all others with 200. With 0, it never answers.
async fn collector(statuses: &'static [u16]) -> (String, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let got = Got::default();
    let seen = got.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, seen.clone(), statuses));
        }
    });
    (url, got)
}

async fn serve(stream: TcpStream, got: Got, statuses: &'static [u16]) -> Option<()> {
    let mut stream = BufStream::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        let names = scopes.flat_map(|scope| scope.spans).map(|span| span.name).collect();
        let nth = got.requests();
        got.0.lock().unwrap().push((head, names));
        let status = statuses.get(nth).copied().unwrap_or(200);
        if status == 0 {
            std::future::pending::<()>().await;
        }
        let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.ok()?;
        stream.flush().await.ok()?;
    }
}

fn exporter(collector: &str) -> Exporter {
    Exporter::new(Settings {
        collector: collector.to_owned(),
        headers: vec![("x-api-key".to_owned(), Secret::new("canary"))],
        service_name: "shop".to_owned(),
        service_version: "1",
    })
    .unwrap()
}

fn span(name: &str) -> Vec<Span> {
    let now = SystemTime::now();
    vec![Span {
        trace_id: TraceId([1; 16]),
        span_id: SpanId([2; 8]),
        parent: None,
        name: name.to_owned(),
        kind: Kind::Internal,
        start: now,
        end: now,
        attributes: Vec::new(),
        links: Vec::new(),
        error: None,
    }]
}

#[tokio::test]
async fn spans_arrive_with_the_headers_and_the_rest_at_the_end() {
    let (url, got) = collector(&[]).await;
    let exporter = exporter(&url);
    exporter.probe().await.unwrap();
    let (recorder, stop) = (exporter.recorder(), CancellationToken::new());
    let running = tokio::spawn(exporter.run(stop.clone()));
    recorder.record(span("first"));
    got.until(|got| got.names() == ["first"]).await;
    let (head, _) = got.0.lock().unwrap()[1].clone();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    for header in ["content-type: application/x-protobuf\r\n", "x-api-key: canary\r\n"] {
        assert!(head.contains(header), "{head}");
    }
    recorder.record(span("last"));
    stop.cancel();
    running.await.unwrap();
    assert_eq!(got.names(), ["first", "last"]);
}

#[tokio::test]
async fn a_collector_in_trouble_gets_the_same_spans_again() {
    let (url, got) = collector(&[503, 500]).await;
    let exporter = exporter(&url);
    let (recorder, stop) = (exporter.recorder(), CancellationToken::new());
    let running = tokio::spawn(exporter.run(stop.clone()));
    recorder.record(span("a"));
    got.until(|got| got.requests() == 3).await;
    assert_eq!(got.names(), ["a", "a", "a"], "the third time it was taken");
    recorder.record(span("b"));
    got.until(|got| got.requests() == 4).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(got.names(), ["a", "a", "a", "b"]);
}

#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let (url, got) = collector(&[400]).await;
    let exporter = exporter(&url);
    let (recorder, stop) = (exporter.recorder(), CancellationToken::new());
    let running = tokio::spawn(exporter.run(stop.clone()));
    recorder.record(span("a"));
    got.until(|got| got.requests() == 1).await;
    recorder.record(span("b"));
    got.until(|got| got.requests() == 2).await;
    stop.cancel();
    running.await.unwrap();
    assert_eq!(got.names(), ["a", "b"]);
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_collector_that_says_nothing() {
    let (url, got) = collector(&[0, 0, 0]).await;
    let exporter = exporter(&url);
    let (recorder, stop) = (exporter.recorder(), CancellationToken::new());
    let running = tokio::spawn(exporter.run(stop.clone()));
    recorder.record(span("a"));
    got.until(|got| got.requests() == 1).await;
    stop.cancel();
    let ended = tokio::time::timeout(FLUSH_LIMIT * 10, running).await;
    ended.expect("it ends").unwrap();
}

#[tokio::test]
async fn nobody_there_is_told_without_the_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let exporter = exporter(&format!("{url}/canary?key=canary"));
    let reason = exporter.probe().await.unwrap_err();
    assert!(reason.contains("refused") && !reason.contains("canary"), "{reason}");
    assert_eq!(exporter.collector(), url);
    assert!(!format!("{exporter:?}").contains("canary"));
}
