//! A collector of OpenTelemetry, as far as a test needs one: it reads the protobuf with OpenTelemetry's own schema.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

use super::eventually;

/// A span that has arrived. Ids are hexadecimal.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for the first of its trace.
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) attributes: BTreeMap<String, String>,
    /// The traces and spans that it is linked with.
    pub(crate) links: Vec<(String, String)>,
    /// The text of its status, if that is an error.
    pub(crate) error: Option<String>,
    pub(crate) nanoseconds: (u64, u64),
    pub(crate) service: String,
}

impl Span {
    pub(crate) fn says(&self, attribute: &str) -> Option<&str> {
        self.attributes.get(attribute).map(String::as_str)
    }

    /// What a message has in its header that was sent within this span.
    pub(crate) fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

/// Listens on this machine until the test ends.
pub(crate) struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let spans = Arc::new(Mutex::default());
        let seen = Arc::clone(&spans);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&seen)));
            }
        });
        Self { address, spans }
    }

    /// The section that names it, with these further keys.
    pub(crate) fn section(&self, more: &str) -> String {
        format!("[telemetry]\notlp = \"http://{}\"\n{more}\n", self.address)
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().expect("no panic").clone()
    }

    /// The spans of a trace.
    pub(crate) fn of_trace(&self, trace: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.trace == trace).collect()
    }

    /// Waits for the only span of this name in a trace.
    pub(crate) async fn span(&self, trace: &str, name: &str) -> Span {
        let named =
            || -> Vec<Span> { self.of_trace(trace).into_iter().filter(|span| span.name == name).collect() };
        eventually(&format!("a span {name} in {trace}"), async || !named().is_empty()).await;
        let [span] = named().try_into().unwrap_or_else(|spans| panic!("several: {spans:#?}"));
        span
    }
}

async fn serve(stream: TcpStream, seen: Arc<Mutex<Vec<Span>>>) -> Option<()> {
    let mut stream = BufStream::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok()?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let request = ExportTraceServiceRequest::decode(body.as_slice()).expect("the request of OTLP");
        seen.lock().expect("no panic").extend(spans(request));
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
        stream.flush().await.ok()?;
    }
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in request.resource_spans {
        let resource = attributes(of_resource.resource.unwrap_or_default().attributes);
        let service = resource.get("service.name").cloned().unwrap_or_default();
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let status = span.status.clone().unwrap_or_default();
            spans.push(Span {
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                kind: span.kind(),
                links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
                error: (status.code() == StatusCode::Error).then_some(status.message),
                nanoseconds: (span.start_time_unix_nano, span.end_time_unix_nano),
                name: span.name,
                attributes: attributes(span.attributes),
                service: service.clone(),
            });
        }
    }
    spans
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |pair: KeyValue| match pair.value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => (pair.key, text),
        Some(any_value::Value::IntValue(number)) => (pair.key, number.to_string()),
        other => panic!("{}: {other:?}", pair.key),
    };
    pairs.into_iter().map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
