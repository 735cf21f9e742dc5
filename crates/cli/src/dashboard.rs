//! The dashboard over the stores of the configuration.

mod act;
mod backend;
mod counted;
mod letters;
mod outside;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use metrics_exporter_prometheus::PrometheusHandle;
use oncebox_config::{Config, HttpConfig, PayloadsConfig, StoreConfig};
use oncebox_core::backoff;
use oncebox_core::monitor::Monitor;
use oncebox_dashboard::{Access, Backend, Dashboard, Payloads, Proxy, Role, Settings};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::exit::Failure;
use crate::stores::{ConfiguredStore, WithStore, require_schema, with_store};
use backend::StoreBackend;

/// What people look at must not take connections from what is applied.
const CONNECTIONS: u32 = 2;
/// Nor may a look cost the database more than that.
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);

/// What a process that runs knows of itself.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) monitor: Monitor,
    pub(crate) metrics: PrometheusHandle,
}

/// A dashboard as the configuration wants it, without a database so far.
pub(crate) fn new(http: &HttpConfig) -> Result<Dashboard, Failure> {
    let payloads = match http.payloads {
        PayloadsConfig::Mask => Payloads::Mask,
        PayloadsConfig::Hide => Payloads::Hide,
    };
    Ok(Dashboard::new(Settings { access: access(http)?, payloads, trace_url: http.trace_url.clone() }))
}

fn access(http: &HttpConfig) -> Result<Access, Failure> {
    let Some(auth) = &http.auth else { return Ok(Access::local()) };
    let of = |role: Role, tokens: &[oncebox_core::secret::Secret]| {
        tokens.iter().map(|token| (role, token.expose().to_owned())).collect::<Vec<_>>()
    };
    let tokens = [of(Role::Read, &auth.read), of(Role::Act, &auth.act)].concat();
    let proxy = auth.proxy.as_ref().map(|proxy| {
        let header: HeaderName = proxy.header.parse().map_err(|_| {
            Failure::config(format!("http.auth.proxy.header: {} is not the name of a header", proxy.header))
        })?;
        Ok::<_, Failure>(Proxy { header, from: proxy.from.clone(), act: proxy.act.clone() })
    });
    Ok(Access::signed_in(tokens, proxy.transpose()?))
}

/// Opens the database for the dashboard as soon as it is there, then fills the charts until `stop`.
pub(crate) async fn keep(
    dashboard: Dashboard,
    config: Arc<Config>,
    process: Option<Process>,
    stop: CancellationToken,
) {
    let mut tries = 0;
    loop {
        match open(Arc::clone(&config), process.clone()).await {
            Ok(backend) => {
                dashboard.set_backend(backend);
                break;
            }
            Err(failure) => {
                tries += 1;
                if tries == 1 {
                    warn!(reason = failure.text, "the dashboard has no database yet; trying again");
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(backoff::SETUP.delay(tries)) => {}
            () = stop.cancelled() => return,
        }
    }
    dashboard.remember(stop).await;
}

/// The database with a small pool of its own.
pub(crate) async fn open(config: Arc<Config>, process: Option<Process>) -> Result<Arc<dyn Backend>, Failure> {
    blocking(move || async move {
        let store = StoreConfig { max_connections: Some(CONNECTIONS), ..config.store.clone() };
        with_store(&store, Open { config, process }).await
    })
    .await
}

/// Runs commands whose futures stay on one thread. What is begun goes on to its end.
pub(crate) async fn blocking<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, Failure>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>>,
{
    let runtime = tokio::runtime::Handle::current();
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work())).await;
    done.unwrap_or_else(|e| Err(Failure::data(format!("it ended badly: {e}"))))
}

struct Open {
    config: Arc<Config>,
    process: Option<Process>,
}

impl WithStore for Open {
    type Output = Result<Arc<dyn Backend>, Failure>;

    const STATEMENT_LIMIT: Option<Duration> = Some(STATEMENT_LIMIT);

    async fn run<S: ConfiguredStore>(self, store: S) -> Self::Output {
        require_schema(&store).await?;
        Ok(Arc::new(StoreBackend::new(store, self.config, self.process)))
    }
}
