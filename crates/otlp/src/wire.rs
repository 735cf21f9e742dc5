//! As much of protobuf as spans need. A field is a tag, which is its number and how long it is told, and its value.

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, field: u64, kind: u64) {
    varint(out, field << 3 | kind);
}

/// An integer, or a member of an enumeration.
pub(crate) fn integer(out: &mut Vec<u8>, field: u64, value: i64) {
    tag(out, field, VARINT);
    // As the format wants it: a negative number has ten bytes.
    varint(out, value as u64);
}

pub(crate) fn fixed64(out: &mut Vec<u8>, field: u64, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A text, or bytes.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    tag(out, field, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A message in a message.
pub(crate) fn message(out: &mut Vec<u8>, field: u64, write: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    write(&mut inner);
    bytes(out, field, &inner);
}

/// A value that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
}

/// The last value of a field; `None` also if the message cannot be read to its end.
pub(crate) fn last(mut message: &[u8], field: u64) -> Option<Read<'_>> {
    let mut found = None;
    while !message.is_empty() {
        let tag = take_varint(&mut message)?;
        let value = match tag & 7 {
            VARINT => Some(Read::Integer(take_varint(&mut message)?)),
            FIXED64 => take(&mut message, 8).map(|_| None)?,
            BYTES => {
                let length = usize::try_from(take_varint(&mut message)?).ok()?;
                Some(Read::Bytes(take(&mut message, length)?))
            }
            5 => take(&mut message, 4).map(|_| None)?,
            _ => return None,
        };
        if tag >> 3 == field {
            found = value;
        }
    }
    found
}

fn take<'a>(message: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(taken)
}

fn take_varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(message, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        integer(&mut out, 1, 300);
        fixed64(&mut out, 2, u64::MAX);
        message(&mut out, 15, |inner| bytes(inner, 2, b"text"));
        integer(&mut out, 1, -1);
        assert_eq!(last(&out, 1), Some(Read::Integer(u64::MAX)));
        assert_eq!(last(&out, 15), Some(Read::Bytes(b"\x12\x04text")));
        assert_eq!((last(&out, 2), last(&out, 3)), (None, None));
        for cut in 1..out.len() {
            // Whatever it finds, it ends.
            last(&out[..cut], 15);
        }
        assert_eq!(last(&[0xff; 20], 1), None);
    }
}
