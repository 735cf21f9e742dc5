//! What was asked for, how far it is, and what became of it: the last ones of this process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oncebox_core::clock::Clock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::action::{Action, Outcome};
use crate::backend::{Answering, Task, Trouble};

/// So many are remembered.
const REMEMBERED: usize = 200;
/// So many run at once; each may hold a connection.
const AT_ONCE: usize = 4;

/// How far something is. Zero of zero: nobody knows.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    so_far: Mutex<String>,
}

impl Progress {
    /// So much of so much.
    pub fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// What came of it until now, for people.
    pub fn tell(&self, so_far: impl Into<String>) {
        *self.so_far.lock().unwrap_or_else(PoisonError::into_inner) = so_far.into();
    }

    pub(crate) fn so_far(&self) -> String {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn get(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }
}

/// Something that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) action: Action,
    pub(crate) by: String,
    pub(crate) since_ms: i64,
    pub(crate) progress: Arc<Progress>,
    pub(crate) stop: CancellationToken,
    pub(crate) end: Option<Result<Outcome, Trouble>>,
}

#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    jobs: BTreeMap<u64, Job>,
}

impl Jobs {
    /// Begins it, and waits for its end for a while. It goes on whether somebody waits or not.
    pub(crate) async fn start(
        self: &Arc<Self>,
        action: Action,
        by: String,
        patience: Duration,
        begin: impl FnOnce(Action, Task) -> Answering<'static, Outcome>,
    ) -> Result<Job, Trouble> {
        let (number, task) = self.enter(&action, by)?;
        info!(
            number,
            action = action.name(),
            by = task.by,
            dry_run = action.is_dry_run(),
            "asked for on the dashboard"
        );
        let doing = begin(action, task);
        let (jobs, (told, mut ended)) = (Arc::clone(self), watch::channel(false));
        tokio::spawn(async move {
            // In a task of its own, so that a panic is an end too.
            let end = tokio::spawn(doing).await;
            let end = end.unwrap_or_else(|_| Err(Trouble::Failed("it ended badly: see the log".to_owned())));
            jobs.end(number, end);
            told.send_replace(true);
        });
        // Too early is no error: whoever asks again finds it under its number.
        tokio::time::timeout(patience, ended.wait_for(|over| *over)).await.ok();
        self.get(number).ok_or_else(|| Trouble::Missing("it is forgotten already".to_owned()))
    }

    fn enter(&self, action: &Action, by: String) -> Result<(u64, Task), Trouble> {
        let mut state = self.lock();
        if state.jobs.values().filter(|job| job.end.is_none()).count() >= AT_ONCE {
            return Err(Trouble::Away(format!(
                "{AT_ONCE} things are being done already: wait for one to end"
            )));
        }
        state.last += 1;
        let number = state.last;
        let task = Task { by: by.clone(), progress: Arc::default(), stop: CancellationToken::new() };
        let job = Job {
            number,
            action: action.remembered(),
            by,
            since_ms: Clock::system().now_ms(),
            progress: Arc::clone(&task.progress),
            stop: task.stop.clone(),
            end: None,
        };
        state.jobs.insert(number, job);
        while state.jobs.len() > REMEMBERED {
            let oldest = state.jobs.iter().find(|(_, job)| job.end.is_some()).map(|(number, _)| *number);
            let Some(oldest) = oldest else { break };
            state.jobs.remove(&oldest);
        }
        Ok((number, task))
    }

    fn end(&self, number: u64, end: Result<Outcome, Trouble>) {
        if let Some(job) = self.lock().jobs.get_mut(&number) {
            job.end = Some(end);
        }
    }

    pub(crate) fn get(&self, number: u64) -> Option<Job> {
        self.lock().jobs.get(&number).cloned()
    }

    /// The last ones, the newest first.
    pub(crate) fn latest(&self, most: usize) -> Vec<Job> {
        self.lock().jobs.values().rev().take(most).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURGE: Action = Action::Purge { dry_run: true };

    async fn start(jobs: &Arc<Jobs>, doing: Answering<'static, Outcome>) -> Result<Job, Trouble> {
        jobs.start(PURGE, "ana".to_owned(), Duration::from_millis(50), |_, _| doing).await
    }

    #[tokio::test]
    async fn what_takes_long_goes_on_and_is_found_under_its_number() {
        let jobs = Arc::new(Jobs::default());
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let doing = Box::pin(async {
            wait.await.ok();
            Ok(Outcome::done(3, "three"))
        });
        let job = start(&jobs, doing).await.unwrap();
        assert!(job.end.is_none());
        go.send(()).unwrap();
        while jobs.get(job.number).unwrap().end.is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(jobs.latest(5)[0].end, Some(Ok(Outcome::done(3, "three"))));
    }

    #[tokio::test]
    async fn a_panic_is_an_end_too() {
        let jobs = Arc::new(Jobs::default());
        let job = start(&jobs, Box::pin(async { panic!("oh") })).await.unwrap();
        assert!(matches!(job.end, Some(Err(Trouble::Failed(_)))));
    }

    #[tokio::test]
    async fn only_so_many_run_at_once_and_are_remembered() {
        let jobs = Arc::new(Jobs::default());
        for _ in 0..REMEMBERED + 10 {
            start(&jobs, Box::pin(async { Ok(Outcome::default()) })).await.unwrap();
        }
        assert_eq!(jobs.latest(usize::MAX).len(), REMEMBERED);
        for _ in 0..AT_ONCE {
            start(&jobs, Box::pin(std::future::pending())).await.unwrap();
        }
        assert!(matches!(start(&jobs, Box::pin(std::future::pending())).await, Err(Trouble::Away(_))));
    }
}
