//! Spans as a collector reads them: `ExportTraceServiceRequest` of OTLP 1. The numbers are those of its fields.

use std::time::{SystemTime, UNIX_EPOCH};

use oncebox_core::telemetry::{Kind, Span, Value};

use crate::Settings;
use crate::wire::{Read, bytes, fixed64, integer, last, message};

const STATUS_ERROR: i64 = 2;

/// The body of a request with these spans.
pub(crate) fn request(settings: &Settings, spans: &[Span]) -> Vec<u8> {
    let mut request = Vec::new();
    message(&mut request, 1, |resource_spans| {
        message(resource_spans, 1, |resource| {
            attribute(resource, 1, "service.name", &Value::from(settings.service_name.clone()));
            attribute(resource, 1, "service.version", &Value::from(settings.service_version));
        });
        message(resource_spans, 2, |scope_spans| {
            message(scope_spans, 1, |scope| bytes(scope, 1, b"oncebox"));
            for one in spans {
                message(scope_spans, 2, |out| span(out, one));
            }
        });
    });
    request
}

/// How many of them the collector has refused, by its answer.
pub(crate) fn rejected(answer: &[u8]) -> u64 {
    match last(answer, 1) {
        Some(Read::Bytes(partial)) => match last(partial, 1) {
            Some(Read::Integer(rejected)) => rejected,
            _ => 0,
        },
        _ => 0,
    }
}

fn span(out: &mut Vec<u8>, span: &Span) {
    bytes(out, 1, &span.trace_id.0);
    bytes(out, 2, &span.span_id.0);
    if let Some(parent) = &span.parent {
        bytes(out, 4, &parent.0);
    }
    bytes(out, 5, span.name.as_bytes());
    integer(out, 6, kind(span.kind));
    fixed64(out, 7, nanoseconds(span.start));
    fixed64(out, 8, nanoseconds(span.end));
    for (name, value) in &span.attributes {
        attribute(out, 9, name, value);
    }
    for link in &span.links {
        message(out, 13, |out| {
            bytes(out, 1, &link.trace_id.0);
            bytes(out, 2, &link.span_id.0);
        });
    }
    if let Some(error) = &span.error {
        message(out, 15, |status| {
            bytes(status, 2, error.as_bytes());
            integer(status, 3, STATUS_ERROR);
        });
    }
}

fn kind(kind: Kind) -> i64 {
    match kind {
        Kind::Internal => 1,
        Kind::Producer => 4,
        Kind::Consumer => 5,
    }
}

fn attribute(out: &mut Vec<u8>, field: u64, name: &str, value: &Value) {
    message(out, field, |pair| {
        bytes(pair, 1, name.as_bytes());
        message(pair, 2, |any| match value {
            Value::Text(text) => bytes(any, 1, text.as_bytes()),
            Value::Number(number) => integer(any, 3, *number),
        });
    });
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oncebox_core::telemetry::{SpanContext, SpanId, TraceId};
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    use opentelemetry_proto::tonic::common::v1::any_value;
    use opentelemetry_proto::tonic::trace::v1::{span::SpanKind, status::StatusCode};
    use prost::Message;

    use super::*;

    #[test]
    fn the_schema_of_opentelemetry_reads_every_field() {
        let start = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
        let link = SpanContext::parse(b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        let whole = Span {
            trace_id: TraceId([1; 16]),
            span_id: SpanId([2; 8]),
            parent: Some(SpanId([3; 8])),
            name: "process bücher".to_owned(),
            kind: Kind::Consumer,
            start,
            end: start + Duration::from_millis(5),
            attributes: vec![("text", "x".repeat(300).into()), ("number", (-5_i64).into())],
            links: vec![link],
            error: Some("it failed".to_owned()),
        };
        let bare = Span { parent: None, kind: Kind::Producer, error: None, ..whole.clone() };
        let settings = Settings {
            collector: String::new(),
            headers: Vec::new(),
            service_name: "shop".to_owned(),
            service_version: "1.2.3",
        };
        let request = request(&settings, &[whole, bare]);
        let request = ExportTraceServiceRequest::decode(request.as_slice()).unwrap();
        let [resource_spans] = request.resource_spans.as_slice() else { unreachable!() };
        let resource = &resource_spans.resource.as_ref().unwrap().attributes;
        let names: Vec<&str> = resource.iter().map(|pair| pair.key.as_str()).collect();
        assert_eq!(names, ["service.name", "service.version"]);
        let [scope_spans] = resource_spans.scope_spans.as_slice() else { unreachable!() };
        assert_eq!(scope_spans.scope.as_ref().unwrap().name, "oncebox");
        let [whole, bare] = scope_spans.spans.as_slice() else { unreachable!() };
        assert_eq!(
            (whole.trace_id.as_slice(), whole.span_id.as_slice()),
            ([1; 16].as_slice(), [2; 8].as_slice())
        );
        assert_eq!(
            (whole.parent_span_id.as_slice(), bare.parent_span_id.as_slice()),
            ([3; 8].as_slice(), [].as_slice())
        );
        assert_eq!((whole.name.as_str(), whole.kind()), ("process bücher", SpanKind::Consumer));
        assert_eq!(whole.start_time_unix_nano, 1_700_000_000_123_456_789);
        assert_eq!(whole.end_time_unix_nano - whole.start_time_unix_nano, 5_000_000);
        let values: Vec<_> =
            whole.attributes.iter().map(|pair| pair.value.clone().unwrap().value.unwrap()).collect();
        let expected = [any_value::Value::StringValue("x".repeat(300)), any_value::Value::IntValue(-5)];
        assert_eq!(values, expected);
        assert_eq!(whole.links[0].trace_id, link.trace_id.0);
        assert_eq!(whole.links[0].span_id, link.span_id.0);
        let status = whole.status.as_ref().unwrap();
        assert_eq!((status.code(), status.message.as_str()), (StatusCode::Error, "it failed"));
        assert_eq!((bare.kind(), bare.status.is_none()), (SpanKind::Producer, true));
    }

    #[test]
    fn what_a_collector_refuses_is_counted() {
        let partial = ExportTracePartialSuccess { rejected_spans: 300, error_message: "too old".to_owned() };
        let some = ExportTraceServiceResponse { partial_success: Some(partial) };
        assert_eq!(rejected(&some.encode_to_vec()), 300);
        assert_eq!((rejected(b""), rejected(b"<html>")), (0, 0));
    }
}
