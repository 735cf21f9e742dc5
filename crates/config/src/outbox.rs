//! `[outbox]`: publishing events.

use std::time::Duration;

use oncebox_core::inbox::BatchBounds;
use oncebox_core::outbox::RelaySettings;

use super::bounds::{self, duration, duration_within};
use super::reader::{Entry, Section};

/// `[outbox]`: publishing the events that handlers and applications emit. The defaults are those of [`RelaySettings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxConfig {
    /// `relay`: publish them, to the `[[webhook]]` whose topics fit or else to `[kafka]`. Default false.
    pub relay: bool,
    /// `keep`: how long published events stay; `0s` deletes them at once.
    pub keep: Duration,
    /// `source`: the CloudEvents source of events that name none.
    pub source: String,
    /// `lease`: how long a shard stays with a relay that is not heard of, from `2s` to `5m`.
    pub lease: Duration,
    /// `max_age`: how old the oldest unpublished event may get before `/healthz` turns red. Default `5m`.
    pub max_age: Duration,
    /// `batch`: how much the relay reads at once.
    pub batch: BatchBounds,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        let RelaySettings { source, keep, lease, batch, .. } = RelaySettings::default();
        Self { relay: false, keep, source, lease, max_age: Duration::from_secs(5 * 60), batch }
    }
}

/// `has_sink`: whether there is anything to publish to.
pub(super) fn read(mut section: Section<'_, '_>, has_sink: bool) -> OutboxConfig {
    let default = OutboxConfig::default();
    let relay = section.or("relay", default.relay, |entry| {
        let relay = entry.boolean()?;
        if relay && !has_sink {
            entry.report(
                "the relay has nothing to publish to",
                "add [kafka] with `brokers`, or a [[webhook]]",
            );
        }
        Some(relay)
    });
    let keep = section.or("keep", default.keep, |e| duration(&e, Duration::ZERO));
    let source = section.or("source", default.source, |e| source(&e));
    let lease_limits = Duration::from_secs(2)..=Duration::from_secs(5 * 60);
    let lease = section.or("lease", default.lease, |e| duration_within(&e, lease_limits));
    let max_age = section.or("max_age", default.max_age, |e| duration(&e, Duration::from_secs(1)));
    let batch = section.or("batch", default.batch, |e| Some(bounds::batch(e.into_section()?, default.batch)));
    section.finish();
    OutboxConfig { relay, keep, source, lease, max_age, batch }
}

fn source(entry: &Entry<'_, '_>) -> Option<String> {
    let source = entry.filled_text()?;
    if source.len() > 1024 || source.contains(|c: char| c.is_whitespace() || c.is_control()) {
        entry.report(
            "this is not a CloudEvents source",
            "write a URI or a path without blanks, such as \"/erp/stock\"",
        );
        return None;
    }
    Some(source)
}
