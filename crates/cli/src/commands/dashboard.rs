//! `oncebox dashboard`: the dashboard alone, for a database whose daemons run elsewhere or not at all.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use oncebox_config::{HttpConfig, is_remote};
use oncebox_http::ServerLimits;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::dashboard;
use crate::exit::{Answer, CommandResult, Failure};
use crate::interrupt::Interrupt;
use crate::load;
use crate::output;

pub(crate) async fn run(file: &Path, listen: Option<SocketAddr>) -> CommandResult {
    let config = Arc::new(load::config(file)?);
    let http = config.http.clone().unwrap_or_default();
    let http = HttpConfig { listen: listen.unwrap_or(http.listen), ..http };
    if is_remote(http.listen) && (!http.allow_remote || http.auth.is_none()) {
        return Err(Failure::config(format!(
            "others can reach {}: that needs `allow_remote = true` and [http.auth] in {}",
            http.listen,
            file.display()
        )));
    }
    let mut interrupt = Interrupt::listen()?;
    let dashboard = dashboard::new(&http)?;
    let listener = TcpListener::bind(http.listen).await.map_err(|e| {
        Failure::config(format!(
            "cannot listen on {}: {e}. Choose another address with --listen",
            http.listen
        ))
    })?;
    let address = listener.local_addr()?;
    // A database that cannot be used is said at once, not on a page.
    dashboard.set_backend(interrupt.or(dashboard::open(Arc::clone(&config), None)).await?);
    output::line(&format!("http://{address}/"))?;
    let stop = CancellationToken::new();
    let remembering = tokio::spawn(dashboard.clone().remember(stop.clone()));
    let serving = oncebox_http::serve(listener, dashboard.router(), ServerLimits::default(), stop.clone());
    let serving = tokio::spawn(serving);
    interrupt.wait().await;
    stop.cancel();
    drop(tokio::join!(serving, remembering));
    Ok(Answer::Yes)
}
