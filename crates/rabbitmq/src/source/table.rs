//! Values of AMQP's tables as the bytes of headers.

use bytes::Bytes;
use lapin::types::{AMQPValue, DecimalValue};
use serde_json::{Map, Value};

/// A value as a header: text and bytes as they are, numbers and flags as text, tables and lists as JSON.
pub(super) fn header_value(value: &AMQPValue) -> Option<Bytes> {
    let bytes = match value {
        AMQPValue::Void => return None,
        AMQPValue::LongString(text) => Bytes::copy_from_slice(text.as_bytes()),
        AMQPValue::ByteArray(bytes) => Bytes::copy_from_slice(bytes.as_slice()),
        AMQPValue::ShortString(text) => Bytes::copy_from_slice(text.as_str().as_bytes()),
        AMQPValue::FieldTable(_) | AMQPValue::FieldArray(_) => json(value).to_string().into(),
        AMQPValue::DecimalValue(decimal) => decimal_text(*decimal).into(),
        // The rest is a number or a flag.
        other => match json(other) {
            Value::String(text) => text.into(),
            value => value.to_string().into(),
        },
    };
    Some(bytes)
}

fn json(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::Boolean(flag) => (*flag).into(),
        AMQPValue::ShortShortInt(number) => (*number).into(),
        AMQPValue::ShortShortUInt(number) => (*number).into(),
        AMQPValue::ShortInt(number) => (*number).into(),
        AMQPValue::ShortUInt(number) => (*number).into(),
        AMQPValue::LongInt(number) => (*number).into(),
        AMQPValue::LongUInt(number) => (*number).into(),
        AMQPValue::LongLongInt(number) => (*number).into(),
        // Seconds since 1970.
        AMQPValue::Timestamp(seconds) => (*seconds).into(),
        // JSON has no NaN and no infinity.
        AMQPValue::Float(number) => finite(f64::from(*number)),
        AMQPValue::Double(number) => finite(*number),
        AMQPValue::DecimalValue(decimal) => decimal_text(*decimal).into(),
        AMQPValue::ShortString(text) => text.as_str().into(),
        AMQPValue::LongString(text) => String::from_utf8_lossy(text.as_bytes()).into(),
        AMQPValue::ByteArray(bytes) => String::from_utf8_lossy(bytes.as_slice()).into(),
        AMQPValue::FieldArray(list) => list.as_slice().iter().map(json).collect(),
        AMQPValue::FieldTable(table) => {
            let fields = table.into_iter().map(|(name, value)| (name.as_str().to_owned(), json(value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        AMQPValue::Void => Value::Null,
    }
}

fn finite(number: f64) -> Value {
    serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
}

fn decimal_text(DecimalValue { scale, value }: DecimalValue) -> String {
    let (digits, scale) = (value.to_string(), usize::from(scale));
    if scale == 0 {
        return digits;
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use lapin::types::{FieldArray, FieldTable};

    use super::*;

    #[test]
    fn values_become_text_bytes_or_json() {
        let mut table = FieldTable::default();
        table.insert("a".into(), AMQPValue::LongInt(-1));
        table.insert("b".into(), AMQPValue::LongString("x\"y".into()));
        let list: FieldArray = vec![AMQPValue::Boolean(true), AMQPValue::FieldTable(table.clone())].into();
        for (value, expected) in [
            (AMQPValue::LongString("text".into()), &b"text"[..]),
            (AMQPValue::LongString(vec![0xff, 1].into()), &[0xff, 1]),
            (AMQPValue::ByteArray(vec![0, 1].into()), &[0, 1]),
            (AMQPValue::Boolean(true), b"true"),
            (AMQPValue::ShortShortInt(-5), b"-5"),
            (AMQPValue::LongLongInt(i64::MIN), b"-9223372036854775808"),
            (AMQPValue::Timestamp(1_700_000_000), b"1700000000"),
            (AMQPValue::Double(1.5), b"1.5"),
            (AMQPValue::Double(f64::NAN), b"NaN"),
            (AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 1234 }), b"12.34"),
            (AMQPValue::DecimalValue(DecimalValue { scale: 3, value: 5 }), b"0.005"),
            (AMQPValue::FieldTable(table), br#"{"a":-1,"b":"x\"y"}"#),
            (AMQPValue::FieldArray(list), br#"[true,{"a":-1,"b":"x\"y"}]"#),
        ] {
            assert_eq!(header_value(&value).as_deref(), Some(expected), "{value:?}");
        }
        assert_eq!(header_value(&AMQPValue::Void), None);
    }
}
