//! The place of a span in its trace, and how it travels: the header `traceparent` of W3C Trace Context.

use std::fmt;

use bytes::Bytes;

use crate::message::Headers;

/// The header in which the context of a span travels.
pub const TRACEPARENT: &str = "traceparent";

const SAMPLED: u8 = 1;
/// The flags of version 00: sampled, and whether the id of the trace is random.
const KNOWN_FLAGS: u8 = 3;
/// `00-` and 32 digits, 16 digits, 2 digits, with `-` between them.
const LENGTH: usize = 55;

/// The id of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The id of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A span of a trace, as others name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace.
    pub trace_id: TraceId,
    /// The span.
    pub span_id: SpanId,
    flags: u8,
}

impl SpanContext {
    /// Reads a `traceparent`; `None` if it is none, as the standard wants it: who cannot read it begins anew.
    ///
    /// ```
    /// use oncebox::telemetry::SpanContext;
    ///
    /// let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    /// let context = SpanContext::parse(text.as_bytes()).unwrap();
    /// assert!(context.is_sampled());
    /// assert_eq!(context.traceparent(), text);
    /// ```
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (known, further) = text.split_at_checked(LENGTH)?;
        let version = number(&known[..2])?;
        // Later versions may have more to say, behind another dash.
        let ends_well =
            if version == 0 { further.is_empty() } else { matches!(further.first(), None | Some(b'-')) };
        if version == 0xff || !ends_well || [2, 35, 52].iter().any(|at| known[*at] != b'-') {
            return None;
        }
        let (trace, span) = (number(&known[3..35])?, number(&known[36..52])?);
        if trace == 0 || span == 0 {
            return None;
        }
        Some(Self {
            trace_id: TraceId(trace.to_be_bytes()),
            span_id: SpanId((span as u64).to_be_bytes()),
            flags: number(&known[53..])? as u8 & KNOWN_FLAGS,
        })
    }

    /// The first span of a trace. Both ids follow from this number, however alike numbers are.
    pub(crate) fn root(seed: u128) -> Self {
        let high = mixed((seed >> 64) as u64);
        let low = mixed(seed as u64 ^ high);
        let trace = u128::from(mixed(high ^ low)) << 64 | u128::from(low.max(1));
        let span = mixed(high.wrapping_add(low)).max(1);
        Self { trace_id: TraceId(trace.to_be_bytes()), span_id: SpanId(span.to_be_bytes()), flags: SAMPLED }
    }

    /// The first span of a new trace.
    pub(crate) fn random() -> Self {
        Self { trace_id: TraceId(fastrand::u128(1..).to_be_bytes()), span_id: new_span(), flags: SAMPLED }
    }

    /// A new span of the same trace.
    pub(crate) fn child(&self) -> Self {
        Self { span_id: new_span(), ..*self }
    }

    /// Whether its trace is recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// What the header says.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{:?}-{:?}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

/// These headers, continued by that span.
pub(crate) fn set_traceparent(headers: &Headers, context: &SpanContext) -> Headers {
    let others = headers.iter().filter(|(name, _)| *name != TRACEPARENT);
    let mut continued: Headers =
        others.map(|(name, value)| (name, value.map(Bytes::copy_from_slice))).collect();
    continued.push(TRACEPARENT, Some(context.traceparent().into()));
    continued
}

fn new_span() -> SpanId {
    SpanId(fastrand::u64(1..).to_be_bytes())
}

/// Lower-case hexadecimal digits, and nothing else.
fn number(digits: &[u8]) -> Option<u128> {
    let is_digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(digits).ok().filter(|text| text.as_bytes().iter().all(is_digit))?;
    u128::from_str_radix(text, 16).ok()
}

/// Spreads what is alike over all numbers (the finalizer of SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_no_traceparent_is_not_read() {
        for (from, to) in [
            ("00-", "ff-"),
            ("00-", "0-"),
            ("0af7651916cd43dd8448eb211c80319c", "00000000000000000000000000000000"),
            ("b7ad6b7169203331", "0000000000000000"),
            ("0af", "0AF"),
            ("0af", "+af"),
            ("-b7", "_b7"),
            ("-01", "-1"),
            ("-01", "-01-more"),
            ("-01", ""),
            (GOOD, ""),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_eq!(SpanContext::parse(text.as_bytes()), None, "{text}");
        }
        let later = GOOD.replacen("00-", "42-", 1);
        for text in [later.clone(), format!("{later}-more")] {
            assert_eq!(
                SpanContext::parse(text.as_bytes()).unwrap().traceparent(),
                GOOD,
                "of a later version"
            );
        }
        assert_eq!(SpanContext::parse(format!("{later}more").as_bytes()), None);
    }

    #[test]
    fn the_span_that_continues_takes_the_place_of_the_one_that_was() {
        let headers: Headers = [("a", "1"), (TRACEPARENT, GOOD), ("b", "2"), (TRACEPARENT, "older")]
            .into_iter()
            .map(|(name, value)| (name, Some(Bytes::from_static(value.as_bytes()))))
            .collect();
        let child = SpanContext::parse(GOOD.as_bytes()).unwrap().child();
        let continued = set_traceparent(&headers, &child);
        let names: Vec<&str> = continued.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b", TRACEPARENT]);
        assert_eq!(continued.last(TRACEPARENT), Some(child.traceparent().as_bytes()));
    }

    #[test]
    fn seeds_that_are_alike_give_traces_that_are_not() {
        let trace = |seed| u128::from_be_bytes(SpanContext::root(seed).trace_id.0);
        let differing = (trace(0) ^ trace(1)).count_ones();
        assert!((40..88).contains(&differing), "{differing} of 128 bits");
    }
}
