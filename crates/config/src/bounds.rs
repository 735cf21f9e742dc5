//! What several sections have: durations, the bounds of a batch, how a failure is retried.

use std::ops::RangeInclusive;
use std::time::Duration;

use oncebox_core::inbox::{BatchBounds, RetryPolicy};

use super::reader::{Entry, Section};
use super::units::{self, BACKOFF_FIX, DURATION_FIX, LONGEST, SIZE_FIX};

const BATCH_BYTES: RangeInclusive<i64> = 1024..=256 * 1024 * 1024;

/// A duration that is at least `min`.
pub(super) fn duration(entry: &Entry<'_, '_>, min: Duration) -> Option<Duration> {
    duration_within(entry, min..=LONGEST)
}

/// A duration within these limits.
pub(super) fn duration_within(entry: &Entry<'_, '_>, limits: RangeInclusive<Duration>) -> Option<Duration> {
    let duration = entry.parsed("a duration", DURATION_FIX, units::duration)?;
    if limits.contains(&duration) {
        return Some(duration);
    }
    let (min, max) = limits.into_inner();
    let problem = if duration < min { "short" } else { "long" };
    entry.report(
        format!("{} is too {problem}", units::show(duration)),
        format!("write a duration from {} to {}", units::show(min), units::show(max)),
    );
    None
}

/// A size in bytes within these limits.
pub(super) fn size(entry: &Entry<'_, '_>, limits: &RangeInclusive<i64>) -> Option<usize> {
    if entry.is_integer() {
        return entry.integer(limits).and_then(|bytes| usize::try_from(bytes).ok());
    }
    let bytes = entry.parsed("a size", SIZE_FIX, units::size)?;
    if !i64::try_from(bytes).is_ok_and(|bytes| limits.contains(&bytes)) {
        let (min, max) = (units::show_size(*limits.start()), units::show_size(*limits.end()));
        entry.report("this size is out of range", format!("write a size from \"{min}\" to \"{max}\""));
    }
    usize::try_from(bytes).ok()
}

/// `{ messages = 500, bytes = "4MiB" }`.
pub(super) fn batch(mut section: Section<'_, '_>, default: BatchBounds) -> BatchBounds {
    let messages = section.or("messages", default.messages, |e| {
        e.integer(&(1..=10_000)).and_then(|messages| usize::try_from(messages).ok())
    });
    let bytes = section.or("bytes", default.bytes, |e| size(&e, &BATCH_BYTES));
    section.finish();
    BatchBounds { messages, bytes }
}

/// `{ attempts = 5, backoff = "200ms..30s" }`.
pub(super) fn retry(mut section: Section<'_, '_>, default: RetryPolicy) -> RetryPolicy {
    let attempts = section.or("attempts", default.attempts, |e| {
        e.integer(&(1..=1000)).and_then(|attempts| u32::try_from(attempts).ok())
    });
    let backoff = section
        .or("backoff", default.backoff, |e| e.parsed("a range of durations", BACKOFF_FIX, units::backoff));
    section.finish();
    RetryPolicy { attempts, backoff }
}
