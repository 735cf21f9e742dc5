//! Numbers, ages and bytes as people read them.

use std::time::Duration;

use jiff::Timestamp;
use maud::{Markup, html};
use oncebox_core::printable::printable;

/// Counts stop here; beyond it `10,000+` is shown.
pub(crate) const COUNT_CAP: u64 = oncebox_core::metrics::COUNT_CAP;

/// `12345` as `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count that stopped at its cap.
pub(crate) fn capped(number: u64) -> String {
    if number >= COUNT_CAP { format!("{}+", grouped(COUNT_CAP)) } else { grouped(number) }
}

/// A rate: more digits where it is small.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        r if r >= 100.0 => grouped(r.round() as u64),
        r if r >= 10.0 => format!("{r:.0}"),
        r if r >= 0.05 => format!("{r:.1}"),
        r if r > 0.0 => "<0.1".to_owned(),
        _ => "0".to_owned(),
    }
}

/// A share of a whole.
pub(crate) fn share(part: u64, whole: u64) -> Option<String> {
    if whole == 0 {
        return None;
    }
    let percent = part as f64 * 100.0 / whole as f64;
    Some(match percent {
        0.0 => "0 %".to_owned(),
        p if p < 0.1 => "<0.1 %".to_owned(),
        p if p < 10.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    })
}

/// `3 min`: the largest unit that says enough.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() > 0 => format!("{:.1} s", duration.as_secs_f64()),
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A time as RFC 3339 has it.
pub(crate) fn exact(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}

/// How long ago or how soon, with the exact time on hover.
pub(crate) fn when(ms: i64, now_ms: i64) -> Markup {
    let exact = exact(ms);
    let apart = duration(Duration::from_millis(now_ms.abs_diff(ms)));
    let relative = match now_ms - ms {
        -999..1_000 => "now".to_owned(),
        1_000.. => format!("{apart} ago"),
        _ => format!("in {apart}"),
    };
    html! { time datetime=(exact) title=(exact) { (relative) } }
}

/// A text from outside on one line: what hides itself is written as what it is.
pub(crate) fn shown(text: &str) -> String {
    printable(text).into_owned()
}

/// The first line of a text, cut to what a table can show.
pub(crate) fn short(text: &str) -> String {
    const LONGEST: usize = 140;
    let line = shown(text.lines().next().unwrap_or_default());
    if line.chars().count() <= LONGEST {
        line
    } else {
        line.chars().take(LONGEST - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_capped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([9_999, 10_000].map(capped), ["9,999", "10,000+"]);
        assert_eq!(
            [0.0, 0.01, 0.06, 9.96, 12.4, 1234.5].map(rate),
            ["0", "<0.1", "0.1", "10.0", "12", "1,235"]
        );
        assert_eq!(share(1, 3).as_deref(), Some("33 %"));
        assert_eq!(share(0, 0), None);
    }

    #[test]
    fn times_are_relative_with_the_exact_one_on_hover() {
        let now = 1_767_225_600_000;
        let text = |ms| when(ms, now).into_string();
        assert_eq!(
            text(now - 180_000),
            "<time datetime=\"2025-12-31T23:57:00Z\" title=\"2025-12-31T23:57:00Z\">3 min ago</time>"
        );
        assert!(text(now).contains(">now<") && text(now + 90_000).contains(">in 90 s<"));
    }

    #[test]
    fn what_hides_itself_is_shown() {
        assert_eq!(shown("a\u{202e}b\n"), "a\\u{202e}b\\n");
        assert_eq!(short(&"x".repeat(200)).chars().count(), 140);
    }
}
