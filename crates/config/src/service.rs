//! The small sections: `[limits]` and `[purge]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use oncebox_core::inbox::{Memory, Settings};

use super::bounds::{duration, size};
use super::reader::Section;

const MEMORY: RangeInclusive<i64> = 4 * 1024 * 1024..=1024 * 1024 * 1024 * 1024;

/// `[limits]`: what the process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// `memory`: how many bytes of messages may wait, in all inboxes together. The default is that of [`Memory`].
    pub memory: usize,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self { memory: Memory::DEFAULT_BYTES }
    }
}

/// `[purge]`: removing receipts older than the retention of their consumer, and old entries of the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeConfig {
    /// `every`: how often. The default is that of [`Settings::purge_every`].
    pub every: Duration,
    /// `audit`: how long it is kept who did what. Default `400d`.
    pub audit: Duration,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self { every: Settings::default().purge_every, audit: Duration::from_secs(400 * 86_400) }
    }
}

pub(super) fn read_limits(mut section: Section<'_, '_>) -> LimitsConfig {
    let memory = section.or("memory", LimitsConfig::default().memory, |e| size(&e, &MEMORY));
    section.finish();
    LimitsConfig { memory }
}

pub(super) fn read_purge(mut section: Section<'_, '_>) -> PurgeConfig {
    let default = PurgeConfig::default();
    let every = section.or("every", default.every, |e| duration(&e, Duration::from_secs(1)));
    let audit = section.or("audit", default.audit, |e| duration(&e, Duration::from_secs(60 * 60)));
    section.finish();
    PurgeConfig { every, audit }
}
