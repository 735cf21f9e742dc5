//! Which part of what has no trace begins one.

use super::TraceId;

/// A part of a whole, from none to all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ratio(u64);

impl Ratio {
    /// From 0 to 1; `None` for anything else.
    ///
    /// ```
    /// use oncebox::telemetry::Ratio;
    ///
    /// assert!(Ratio::new(0.01).is_some() && Ratio::new(1.5).is_none());
    /// assert_eq!(Ratio::new(0.0), Some(Ratio::default()));
    /// ```
    #[must_use]
    pub fn new(part: f64) -> Option<Self> {
        // The conversion saturates: one is all.
        (0.0..=1.0).contains(&part).then_some(Self((part * u64::MAX as f64) as u64))
    }

    /// Whether a trace is in it. All who see the trace and have the same ratio decide alike.
    pub(crate) fn takes(self, trace: TraceId) -> bool {
        let low = u128::from_be_bytes(trace.0) as u64;
        low < self.0 || self.0 == u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::super::SpanContext;
    use super::*;

    #[test]
    fn so_many_are_taken() {
        let taken = |part: f64| {
            let ratio = Ratio::new(part).unwrap();
            (0..1000).filter(|seed| ratio.takes(SpanContext::root(*seed).trace_id)).count()
        };
        assert_eq!((taken(0.0), taken(1.0)), (0, 1000));
        assert!((200..300).contains(&taken(0.25)), "{}", taken(0.25));
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert_eq!(Ratio::new(wrong), None);
        }
    }
}
