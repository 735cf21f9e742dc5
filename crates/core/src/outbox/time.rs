//! Times of events: when they are due, when they expire, and how that is written in a header.

use std::time::{Duration, SystemTime};

/// The header of CloudEvents that says until when an event is of use (the extension `expirytime`).
pub(crate) const EXPIRY: &str = "ce_expirytime";

/// The last millisecond of the year 9999: what comes after has no form in RFC 3339.
const LAST_MS: i64 = 253_402_300_799_999;

/// A moment that an event speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    At(SystemTime),
    /// So long after it is written.
    In(Duration),
}

impl When {
    /// In milliseconds since 1970, for an event that is written now. Rounded up: not before the moment itself.
    pub(crate) fn as_ms(self, now: SystemTime) -> i64 {
        let at = match self {
            Self::At(at) => Some(at),
            Self::In(duration) => now.checked_add(duration),
        };
        let since_1970 = at.map(|at| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        let ms = since_1970.and_then(|time| i64::try_from(time.as_nanos().div_ceil(1_000_000)).ok());
        ms.unwrap_or(LAST_MS).min(LAST_MS)
    }
}

/// RFC 3339 in UTC. What has no such form becomes the next moment that has.
pub(crate) fn to_rfc3339(ms: i64) -> String {
    let since_1970 = Duration::from_millis(ms.clamp(0, LAST_MS).unsigned_abs());
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since_1970).to_string()
}

/// Reads RFC 3339, with any offset, as milliseconds since 1970.
pub(crate) fn from_rfc3339(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_uppercase();
    let (local, offset_minutes) = match text.strip_suffix('Z') {
        Some(local) => (local, 0),
        None => {
            let (local, offset) = text.split_at_checked(text.len().checked_sub("+00:00".len())?)?;
            (local, minutes(offset)?)
        }
    };
    let time = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let ms = time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis();
    i64::try_from(ms).ok()?.checked_sub(offset_minutes * 60_000)
}

/// The minutes of an offset such as `-05:30`.
fn minutes(offset: &str) -> Option<i64> {
    let (sign, rest) = match offset.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, below: i64| text.parse::<u8>().ok().map(i64::from).filter(|n| *n < below);
    Some(sign * (number(hours, 24)? * 60 + number(minutes, 60)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_time_can_be_written() {
        assert_eq!(to_rfc3339(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
        assert_eq!(to_rfc3339(i64::MIN), "1970-01-01T00:00:00.000Z");
        assert_eq!(to_rfc3339(i64::MAX), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_time_is_read_in_all_its_forms() {
        for text in [
            "2023-11-14T22:13:20Z",
            "2023-11-14t22:13:20.000000z",
            "2023-11-14T23:13:20+01:00",
            "2023-11-14T16:43:20.000-05:30",
            " 2023-11-14T22:13:20.0+00:00 ",
        ] {
            assert_eq!(from_rfc3339(text), Some(1_700_000_000_000), "{text}");
        }
        for text in
            ["", "soon", "+00:00", "2023-11-14", "2023-11-14T22:13:20", "2023-11-14T22:13:20+1:00", "ü+00:00"]
        {
            assert_eq!(from_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn a_moment_beyond_all_times_is_the_last_one() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_001);
        assert_eq!(When::In(Duration::ZERO).as_ms(now), 2);
        assert_eq!(When::In(Duration::MAX).as_ms(now), LAST_MS);
        assert_eq!(When::At(SystemTime::UNIX_EPOCH - Duration::from_secs(1)).as_ms(now), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in 0..=LAST_MS) {
            prop_assert_eq!(from_rfc3339(&to_rfc3339(ms)), Some(ms));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,30}") {
            from_rfc3339(&text);
        }
    }
}
