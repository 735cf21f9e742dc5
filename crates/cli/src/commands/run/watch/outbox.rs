//! What of the outbox wants attention: the age of the oldest unpublished event, which grows by itself between two looks, also
//! while the database is away; and events that were given up.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use oncebox_core::metrics::{COUNT_CAP, Gauge, outbox_oldest_seconds};
use oncebox_core::monitor::{LoopHandle, Monitor};
use oncebox_core::store::OutboxStatus;
use tracing::warn;

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

// What the problems are about.
const TOO_OLD: &str = "too old";
const PARKED: &str = "parked";

/// Shows the age as a metric, and raises an alarm when it exceeds its limit, or when events were given up.
pub(crate) struct OutboxAlarms {
    /// How old it was, and when that was.
    seen: Option<(Duration, Instant)>,
    gauge: Gauge,
    alarms: Option<(LoopHandle, Duration)>,
}

impl OutboxAlarms {
    /// `/healthz` turns red when the event is older than `max_age`. Without it whoever publishes the events has to watch
    /// them.
    pub(crate) fn new(monitor: &Monitor, max_age: Option<Duration>) -> Self {
        let alarms = max_age.map(|max_age| {
            let health = monitor.register_with("outbox", "", "all is well");
            health.idle();
            (health, max_age)
        });
        Self { seen: None, gauge: outbox_oldest_seconds(), alarms }
    }

    /// The database has told how the outbox is.
    pub(crate) fn note(&mut self, status: &OutboxStatus) {
        self.seen = status.oldest.map(|age| (age, Instant::now()));
        self.show();
        let Some((health, _)) = &self.alarms else { return };
        if status.parked == 0 {
            health.over(PARKED);
        } else if health.problem(PARKED, parked(status.parked)) {
            warn!(events = status.parked, "events were given up: see `oncebox outbox list --state parked`");
        }
    }

    /// Keeps showing the age while something else goes on.
    pub(crate) async fn show_during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                output = &mut work => return output,
                () = tokio::time::sleep(REFRESH_INTERVAL) => self.show(),
            }
        }
    }

    fn show(&self) {
        let age = self.seen.map(|(age, at)| age + at.elapsed()).unwrap_or_default();
        self.gauge.set(age.as_secs_f64());
        let Some((health, max_age)) = &self.alarms else { return };
        if age <= *max_age {
            health.over(TOO_OLD);
        } else if health.problem(TOO_OLD, too_old(age, *max_age)) {
            warn!("{}", too_old(age, *max_age));
        }
    }
}

fn parked(events: u64) -> String {
    let events = if events >= COUNT_CAP { format!("{COUNT_CAP} or more") } else { events.to_string() };
    format!(
        "{events} events were given up: see why with `oncebox outbox list --state parked`; `oncebox outbox retry --state \
         parked` tries them again, `oncebox outbox drop` removes them"
    )
}

fn too_old(age: Duration, max_age: Duration) -> String {
    format!(
        "the oldest event waits for {}, longer than outbox.max_age = {}: see what holds it with `oncebox status` and \
         `oncebox outbox list`",
        humantime::format_duration(Duration::from_secs(age.as_secs())),
        humantime::format_duration(max_age),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(monitor: &Monitor) -> Option<String> {
        monitor.report().into_iter().find(|report| report.name == "outbox")?.problems.pop()
    }

    fn aged(oldest: Option<Duration>) -> OutboxStatus {
        OutboxStatus { oldest, ..OutboxStatus::default() }
    }

    #[test]
    fn an_old_event_raises_the_alarm_until_it_is_published() {
        let monitor = Monitor::default();
        let mut outbox = OutboxAlarms::new(&monitor, Some(Duration::from_secs(300)));
        outbox.note(&aged(Some(Duration::from_secs(299))));
        assert_eq!(alarm(&monitor), None);
        outbox.note(&aged(Some(Duration::from_secs(301))));
        let text = alarm(&monitor).unwrap();
        assert!(text.contains("waits for 5m 1s, longer than outbox.max_age = 5m"), "{text}");
        outbox.note(&aged(None));
        assert_eq!(alarm(&monitor), None);
    }

    #[test]
    fn events_that_were_given_up_are_an_alarm_until_somebody_has_cleared_it() {
        let monitor = Monitor::default();
        let mut outbox = OutboxAlarms::new(&monitor, Some(Duration::from_secs(300)));
        outbox.note(&OutboxStatus { parked: 3, ..OutboxStatus::default() });
        let text = alarm(&monitor).unwrap();
        assert!(text.contains("3 events") && text.contains("`oncebox outbox list --state parked`"), "{text}");
        outbox.note(&OutboxStatus::default());
        assert_eq!(alarm(&monitor), None);
    }

    #[tokio::test]
    async fn it_grows_while_the_database_does_not_answer() {
        let monitor = Monitor::default();
        let mut outbox = OutboxAlarms::new(&monitor, Some(Duration::from_secs(300)));
        outbox.note(&aged(Some(Duration::from_millis(299_500))));
        assert_eq!(alarm(&monitor), None);
        let look = std::future::poll_fn(|_| {
            if alarm(&monitor).is_some() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        tokio::time::timeout(Duration::from_secs(30), outbox.show_during(look)).await.unwrap();
    }
}
