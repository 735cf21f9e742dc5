//! The dashboard as a whole: its backend, what it remembers, its routes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::access::Access;
use crate::backend::{Answering, Backend, Look, Trouble};
use crate::guard;
use crate::history::{History, SAMPLE_EVERY};
use crate::jobs::Jobs;
use crate::{api, assets, pages};

/// So many questions to the database at once; others wait.
const READS_AT_ONCE: usize = 4;
/// Nobody waits longer for an answer.
const READ_LIMIT: Duration = Duration::from_secs(10);
/// Whoever looks within this time sees the same.
const LOOK_FRESH: Duration = Duration::from_secs(1);

/// Whether payloads can be looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Payloads {
    /// They are masked until somebody asks for one.
    #[default]
    Mask,
    /// They are never shown.
    Hide,
}

/// What somebody decides who serves a dashboard.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who may do what.
    pub access: Access,
    /// Whether payloads can be looked at.
    pub payloads: Payloads,
    /// Where traces are shown: a URL with `{trace}` in the place of the id.
    pub trace_url: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { access: Access::local(), payloads: Payloads::default(), trace_url: None }
    }
}

/// The dashboard. Cheap to clone.
#[derive(Clone)]
pub struct Dashboard(Arc<Site>);

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

pub(crate) struct Site {
    pub(crate) settings: Settings,
    pub(crate) jobs: Arc<Jobs>,
    backend: RwLock<Option<Arc<dyn Backend>>>,
    history: Mutex<History>,
    seen: tokio::sync::Mutex<Option<(Instant, Arc<Look>)>>,
    reads: Semaphore,
}

impl Dashboard {
    /// A dashboard without a database so far.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Site {
            settings,
            jobs: Arc::default(),
            backend: RwLock::default(),
            history: Mutex::default(),
            seen: tokio::sync::Mutex::default(),
            reads: Semaphore::new(READS_AT_ONCE),
        }))
    }

    /// From now on this is asked.
    pub fn set_backend(&self, backend: Arc<dyn Backend>) {
        *self.0.backend.write().unwrap_or_else(PoisonError::into_inner) = Some(backend);
    }

    /// The pages, their assets, and the API.
    pub fn router(&self) -> Router {
        let site = Arc::clone(&self.0);
        assets::routes()
            .merge(pages::routes())
            .merge(api::routes())
            .fallback(pages::not_found)
            .layer(middleware::from_fn_with_state(Arc::clone(&site), guard::guard))
            .with_state(site)
    }

    /// Fills the charts until `stop`.
    pub async fn remember(self, stop: CancellationToken) {
        let mut was_away = false;
        loop {
            match self.0.look().await {
                Ok(_) => was_away = false,
                Err(trouble) => {
                    if !std::mem::replace(&mut was_away, true) {
                        warn!(reason = %trouble, "the dashboard cannot look at the database");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(SAMPLE_EVERY) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

impl Site {
    pub(crate) fn backend(&self) -> Result<Arc<dyn Backend>, Trouble> {
        let backend = self.backend.read().unwrap_or_else(PoisonError::into_inner).clone();
        backend.ok_or_else(|| Trouble::Away("the database cannot be reached yet".to_owned()))
    }

    /// Asks the backend, one of a few at once, and not for ever.
    pub(crate) async fn read<T>(
        &self,
        ask: impl for<'b> FnOnce(&'b dyn Backend) -> Answering<'b, T>,
    ) -> Result<T, Trouble> {
        let backend = self.backend()?;
        let answered = async {
            // Nobody closes it.
            let _place = self.reads.acquire().await;
            ask(&*backend).await
        };
        let too_long = || Trouble::Away(format!("no answer within {} s", READ_LIMIT.as_secs()));
        tokio::time::timeout(READ_LIMIT, answered).await.map_err(|_| too_long())?
    }

    /// What there is to see now, or was a moment ago.
    pub(crate) async fn look(&self) -> Result<Arc<Look>, Trouble> {
        let mut seen = self.seen.lock().await;
        if let Some((_, look)) = seen.as_ref().filter(|(at, _)| at.elapsed() < LOOK_FRESH) {
            return Ok(Arc::clone(look));
        }
        let look = Arc::new(self.read(|backend| backend.look()).await?);
        self.history().add(&look);
        *seen = Some((Instant::now(), Arc::clone(&look)));
        Ok(look)
    }

    /// What is seen next is seen anew: something was changed.
    pub(crate) async fn forget_look(&self) {
        *self.seen.lock().await = None;
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
