//! Has the token of a cluster, and asks for the next one in time.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oncebox_core::backoff::Backoff;
use tracing::{debug, info, warn};

use super::endpoint::{Granted, ask, now_ms};
use super::oidc::Oidc;

/// After a failure. Clients cannot sign in without a token, and the endpoint is somebody else's server.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// However short a token lives.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
/// However long it lives: whoever revokes tokens expects them to be asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);

/// Its thread ends with it.
#[derive(Debug)]
pub(crate) struct Keeper {
    oidc: Oidc,
    news: Arc<News>,
    _alive: Sender<()>,
}

/// What is known now. The numbers say what is newer than what somebody has seen.
#[derive(Default)]
pub(super) struct State {
    /// How often the endpoint was asked.
    pub(super) asked: u64,
    pub(super) token: Option<(u64, Arc<Granted>)>,
    /// Why the last question has brought none.
    pub(super) failure: Option<(u64, String)>,
}

#[derive(Default)]
struct News {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("News")
    }
}

impl Keeper {
    /// Begins to ask.
    pub(crate) fn start(oidc: Oidc) -> Self {
        let news = Arc::new(News::default());
        let (alive, ended) = channel();
        let (asked_by, told) = (oidc.clone(), Arc::clone(&news));
        let thread = std::thread::Builder::new().name("kafka-token".to_owned());
        if let Err(e) = thread.spawn(move || keep(&asked_by, &told, &ended)) {
            news.note(Err(format!("no thread can be started: {e}")));
        }
        Self { oidc, news, _alive: alive }
    }

    pub(super) fn extensions(&self) -> &[(String, String)] {
        &self.oidc.extensions
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.news.state()
    }

    /// Waits until there is a token that can be used, or a reason why there is none.
    pub(super) fn wait(&self, timeout: Duration) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let mut state = self.news.state();
        loop {
            if state.token.as_ref().is_some_and(|(_, token)| token.expires_at_ms > now_ms()) {
                return Ok(());
            }
            if let Some((_, failure)) = &state.failure {
                return Err(failure.clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("no token from {} within {} s", self.oidc.origin(), timeout.as_secs()));
            }
            let (again, _) =
                self.news.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = again;
        }
    }
}

impl News {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, outcome: Result<Granted, String>) {
        let mut state = self.state();
        state.asked += 1;
        let number = state.asked;
        match outcome {
            Ok(token) => {
                state.token = Some((number, Arc::new(token)));
                state.failure = None;
            }
            Err(reason) => state.failure = Some((number, reason)),
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// Asks until nobody wants a token any more.
fn keep(oidc: &Oidc, news: &News, ended: &Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return news.note(Err(format!("nobody can ask for a token: {e}"))),
    };
    let mut failures = 0;
    let mut last_reason = String::new();
    loop {
        let outcome = runtime.block_on(ask(oidc));
        let wait = match &outcome {
            Ok(token) => {
                if failures > 0 {
                    info!(endpoint = oidc.origin(), "there is a token for Kafka again");
                }
                failures = 0;
                let wait = until_next(token.expires_at_ms, now_ms());
                debug!(endpoint = oidc.origin(), principal = token.principal, ?wait, "a token for Kafka");
                wait
            }
            Err(reason) => {
                failures += 1;
                if failures == 1 || last_reason != *reason {
                    warn!(reason, "there is no token for Kafka; trying again");
                    last_reason.clone_from(reason);
                }
                RETRY.delay(failures)
            }
        };
        news.note(outcome);
        if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// After four fifths of its life, as librdkafka does it: time enough for several tries.
fn until_next(expires_at_ms: i64, now_ms: i64) -> Duration {
    let left = Duration::from_millis(u64::try_from(expires_at_ms - now_ms).unwrap_or_default());
    (left * 4 / 5).clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_token_is_asked_for_in_time() {
        assert_eq!(until_next(100_000, 0), Duration::from_secs(80));
        assert_eq!(until_next(500, 0), SHORTEST_WAIT);
        assert_eq!(until_next(0, 5_000), SHORTEST_WAIT);
        assert_eq!(until_next(1 << 50, 0), LONGEST_WAIT);
    }
}
