//! Whether the time in a request is near enough to ours.

use std::time::Duration;

use http::HeaderName;

use super::error::NotVerified;

/// How far the time of a request may be from ours, unless [`Verifier::tolerance`](super::Verifier::tolerance) says otherwise.
pub const DEFAULT_TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// How far the time of a request may be from ours, in either direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerance {
    seconds: u64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self::of(DEFAULT_TOLERANCE)
    }
}

impl Tolerance {
    pub(super) fn of(tolerance: Duration) -> Self {
        Self { seconds: tolerance.as_secs() }
    }

    /// Seconds since 1970, in digits and nothing else: what was signed is the text, and one time must have one text.
    pub(super) fn check(self, timestamp: &str, name: HeaderName, now_s: i64) -> Result<(), NotVerified> {
        let is_number = !timestamp.is_empty() && timestamp.bytes().all(|b| b.is_ascii_digit());
        let sent = timestamp.parse::<i64>().ok().filter(|_| is_number);
        let Some(sent) = sent else { return Err(NotVerified::Unreadable(name)) };
        if now_s.abs_diff(sent) > self.seconds {
            return Err(NotVerified::OutOfTime { name, tolerance_s: self.seconds });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-time");

    #[test]
    fn the_tolerance_goes_both_ways() {
        let tolerance = Tolerance::of(Duration::from_secs(300));
        for (sent, good) in [("999", false), ("1000", true), ("1300", true), ("1600", true), ("1601", false)]
        {
            assert_eq!(tolerance.check(sent, NAME, 1300).is_ok(), good, "{sent}");
        }
        assert_eq!(
            tolerance.check("0", NAME, 1300),
            Err(NotVerified::OutOfTime { name: NAME, tolerance_s: 300 })
        );
    }

    #[test]
    fn a_time_is_digits_and_nothing_else() {
        for odd in ["", " 1300", "+1300", "-1", "1300.0", "0x514", "١٣٠٠", "99999999999999999999"] {
            let checked = Tolerance::default().check(odd, NAME, 1300);
            assert_eq!(checked, Err(NotVerified::Unreadable(NAME)), "{odd}");
        }
        let far = Tolerance::default().check("9223372036854775807", NAME, i64::MIN);
        assert!(matches!(far, Err(NotVerified::OutOfTime { .. })), "{far:?}");
    }
}
