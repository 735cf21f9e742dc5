//! The loop that sends spans, until it is told to stop.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use oncebox_core::backoff::Backoff;
use oncebox_core::quiet::Quiet;
use oncebox_core::telemetry::{Recorder, Span};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::Settings;
use crate::client::{AddressError, Client, Sent};
use crate::encode::request;
use crate::queue::Queue;

/// How long a process that ends waits for its last spans.
pub const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// A collector that starts again is back within seconds, and spans wait meanwhile.
const AGAIN: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
/// So often a request is tried. Newer spans may have a better chance, and are worth more.
const TRIES: u32 = 5;
/// One line in this time.
const LINES: Duration = Duration::from_secs(60);

/// Sends spans to a collector.
pub struct Exporter {
    settings: Settings,
    client: Client,
    queue: Queue,
    lines: Quiet,
}

impl Exporter {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// If the collector's address or a header cannot be used, or TLS is asked for and this machine trusts nobody.
    pub fn new(settings: Settings) -> Result<Self, AddressError> {
        let client = Client::new(&settings)?;
        Ok(Self { settings, client, queue: Queue::new(), lines: Quiet::new(LINES) })
    }

    /// What takes the spans: never waits, and drops what has no room.
    #[must_use]
    pub fn recorder(&self) -> impl Recorder + use<> {
        self.queue.clone()
    }

    /// The collector's scheme, host and port, for people.
    #[must_use]
    pub fn collector(&self) -> &str {
        self.client.origin()
    }

    /// Sends no span, and says whether the collector would take some.
    ///
    /// # Errors
    /// Why it would not.
    pub async fn probe(&self) -> Result<(), String> {
        match self.client.send(Bytes::from(request(&self.settings, &[]))).await {
            Sent::Taken { .. } => Ok(()),
            Sent::Later { reason, .. } | Sent::Refused(reason) => Err(reason),
        }
    }

    /// Sends spans until `stop`; then what is left, once, for at most [`FLUSH_LIMIT`].
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            biased;
            () = self.work(&stop) => {}
            () = flush_is_over(&stop) => {}
        }
        while let Some(left) = Some(self.queue.take().len()).filter(|left| *left > 0) {
            self.queue.drop_counted(left as u64);
        }
    }

    async fn work(&self, stop: &CancellationToken) {
        let mut in_trouble = false;
        loop {
            let spans = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                spans = self.queue.next() => spans,
            };
            self.deliver(&spans, &mut in_trouble, stop).await;
        }
        loop {
            let spans = self.queue.take();
            if spans.is_empty() || !self.deliver(&spans, &mut in_trouble, stop).await {
                return;
            }
        }
    }

    /// Sends these until the collector has them, refuses them, or has failed too often: once, if told to stop. Says whether the
    /// collector works.
    async fn deliver(&self, spans: &[Span], in_trouble: &mut bool, stop: &CancellationToken) -> bool {
        let body = Bytes::from(request(&self.settings, spans));
        let mut unsent = Unsent { queue: &self.queue, count: spans.len() as u64 };
        for tries in 1..=TRIES {
            let last = stop.is_cancelled();
            let (reason, pause) = match self.client.send(body.clone()).await {
                Sent::Taken { rejected } => {
                    unsent.count = rejected;
                    if std::mem::take(in_trouble) {
                        info!(collector = self.collector(), "the collector takes spans again");
                    }
                    return true;
                }
                Sent::Refused(reason) => {
                    self.say(&reason, in_trouble);
                    return false;
                }
                Sent::Later { reason, pause } => (reason, pause),
            };
            self.say(&reason, in_trouble);
            if last {
                break;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause.unwrap_or_else(|| AGAIN.delay(tries))) => {}
            }
        }
        false
    }

    fn say(&self, reason: &str, in_trouble: &mut bool) {
        *in_trouble = true;
        if let Some(left_out) = self.lines.next_line() {
            let collector = self.collector();
            warn!(
                collector,
                reason,
                left_out,
                "spans cannot be sent; messages go on, and spans are dropped after some tries"
            );
        }
    }
}

/// Some time after the stop.
async fn flush_is_over(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(FLUSH_LIMIT).await;
}

/// Counts spans as dropped when it goes, whatever the reason.
struct Unsent<'a> {
    queue: &'a Queue,
    count: u64,
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.queue.drop_counted(self.count);
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").field("collector", &self.client.origin()).finish_non_exhaustive()
    }
}
