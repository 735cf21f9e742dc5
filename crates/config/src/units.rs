//! Durations, sizes and ranges of durations, as they are written in the file.

use std::time::Duration;

use oncebox_core::backoff::Backoff;

pub(super) const DURATION_FIX: &str =
    "write a number with a unit, such as \"200ms\", \"30s\", \"12h\" or \"7d\"";
pub(super) const SIZE_FIX: &str =
    "write a number of bytes or a number with a unit, such as \"512KiB\", \"4MiB\" or \"1MB\"";
pub(super) const BACKOFF_FIX: &str =
    "write the first and the longest wait, such as \"200ms..30s\", the first above zero and not longer";

/// Longer than any use, and still far from the ends of a database's timestamps.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// `7d`, `200ms`, `1h 30m`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok().filter(|duration| *duration <= LONGEST)
}

/// As an operator would write it.
pub(super) fn show(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// `200ms..30s`: the first wait and the longest.
pub(super) fn backoff(text: &str) -> Option<Backoff> {
    let (min, max) = text.split_once("..")?;
    let (min, max) = (duration(min)?, duration(max)?);
    (!min.is_zero() && min <= max).then_some(Backoff { min, max })
}

/// As people write it, rounded down.
pub(super) fn show_size(bytes: i64) -> String {
    match bytes {
        _ if bytes >= 1024 * 1024 => format!("{}MiB", bytes / (1024 * 1024)),
        _ if bytes >= 1024 => format!("{}KiB", bytes / 1024),
        _ => format!("{bytes}B"),
    }
}

/// `512KiB`, `4 MiB`, `1MB`, `100B`. A bare letter such as `4M` is refused, because it means two different sizes.
pub(super) fn size(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("b", 1),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
    ];
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, factor) = UNITS.iter().find(|(name, _)| unit.trim_start().eq_ignore_ascii_case(name))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("512KiB", Some(512 * 1024)),
            (" 4 MiB ", Some(4 * 1024 * 1024)),
            ("1MB", Some(1_000_000)),
            ("1gib", Some(1 << 30)),
            ("7B", Some(7)),
            ("4M", None),
            ("4", None),
            ("MiB", None),
            ("", None),
            ("-1MB", None),
            ("1.5MB", None),
            ("99999999999GiB", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn durations_and_backoffs() {
        assert_eq!(duration("7d"), Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(duration("0s"), Some(Duration::ZERO));
        for text in ["", "7", "7 dayz", "-1s", "1000y"] {
            assert_eq!(duration(text), None, "{text}");
        }
        let (min, max) = (Duration::from_millis(200), Duration::from_secs(30));
        assert_eq!(backoff("200ms..30s"), Some(Backoff { min, max }));
        assert_eq!(backoff("200ms .. 200ms"), Some(Backoff { min, max: min }));
        for text in ["200ms", "..30s", "30s..", "30s..1s", "0s..1s", "1s...2s"] {
            assert_eq!(backoff(text), None, "{text}");
        }
    }
}
