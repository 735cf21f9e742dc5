//! The age of the oldest unpublished event. It grows by itself between two looks, also while the database is away.

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use oncebox_core::metrics::{Gauge, outbox_oldest_seconds};
use oncebox_core::monitor::{LoopHandle, Monitor};

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the age as a metric, and raises an alarm when it exceeds its limit.
pub(crate) struct OldestEvent {
    /// How old it was, and when that was.
    seen: Option<(Duration, Instant)>,
    gauge: Gauge,
    alarm: Option<(LoopHandle, Duration)>,
}

impl OldestEvent {
    /// `/healthz` turns red when the event is older than `max_age`. Without it whoever publishes the events has to watch
    /// them.
    pub(crate) fn new(monitor: &Monitor, max_age: Option<Duration>) -> Self {
        let alarm = max_age.map(|max_age| {
            let health = monitor.register("outbox", "");
            health.idle();
            (health, max_age)
        });
        Self { seen: None, gauge: outbox_oldest_seconds(), alarm }
    }

    /// The database has told the age.
    pub(crate) fn note_age(&mut self, age: Option<Duration>) {
        self.seen = age.map(|age| (age, Instant::now()));
        self.show();
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
        if let Some((health, max_age)) = &self.alarm {
            health.alarm((age > *max_age).then(|| text(age, *max_age)));
        }
    }
}

fn text(age: Duration, max_age: Duration) -> String {
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
        monitor.report().into_iter().find(|report| report.name == "outbox")?.alarm
    }

    #[test]
    fn an_old_event_raises_the_alarm_until_it_is_published() {
        let monitor = Monitor::default();
        let mut oldest = OldestEvent::new(&monitor, Some(Duration::from_secs(300)));
        oldest.note_age(Some(Duration::from_secs(299)));
        assert_eq!(alarm(&monitor), None);
        oldest.note_age(Some(Duration::from_secs(301)));
        let text = alarm(&monitor).unwrap();
        assert!(text.contains("waits for 5m 1s, longer than outbox.max_age = 5m"), "{text}");
        oldest.note_age(None);
        assert_eq!(alarm(&monitor), None);
    }

    #[tokio::test]
    async fn it_grows_while_the_database_does_not_answer() {
        let monitor = Monitor::default();
        let mut oldest = OldestEvent::new(&monitor, Some(Duration::from_secs(300)));
        oldest.note_age(Some(Duration::from_millis(299_500)));
        assert_eq!(alarm(&monitor), None);
        let look = std::future::poll_fn(|_| {
            if alarm(&monitor).is_some() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        tokio::time::timeout(Duration::from_secs(30), oldest.show_during(look)).await.unwrap();
    }
}
