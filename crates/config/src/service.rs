//! The small sections: `[http]` and `[purge]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use oncebox_core::inbox::Settings;

use super::bounds::duration;
use super::reader::Section;
use super::source::Reach;

/// `[http]`: health, metrics, and the paths of inboxes. Without the section there is no endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpConfig {
    /// `listen`: address and port. Default `127.0.0.1:7878`.
    pub listen: SocketAddr,
    /// `allow_remote`: the endpoint has no authentication, so an address that others can reach has to be asked for.
    /// Default false.
    pub allow_remote: bool,
}

/// `[purge]`: removing receipts older than the retention of their consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PurgeConfig {
    /// `every`: how often. The default is that of [`Settings::purge_every`].
    pub every: Duration,
}

impl Default for PurgeConfig {
    fn default() -> Self {
        Self { every: Settings::default().purge_every }
    }
}

pub(super) fn read_http(mut section: Section<'_, '_>) -> HttpConfig {
    let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 7878));
    let allow_remote = section.or("allow_remote", false, |e| e.boolean());
    let listen = section.or("listen", default, |entry| {
        let fix = "write an address with a port, such as \"127.0.0.1:7878\" or \"[::1]:7878\"";
        let listen: SocketAddr = entry.parsed("an address with a port", fix, |text| text.parse().ok())?;
        if !listen.ip().to_canonical().is_loopback() && !allow_remote {
            entry.report(
                "others can reach this address, and the endpoint has no authentication",
                "listen on 127.0.0.1, or set `allow_remote = true` where a proxy or firewall protects it",
            );
        }
        Some(listen)
    });
    section.finish();
    HttpConfig { listen, allow_remote }
}

/// Who can send requests.
pub(super) fn reach(http: Option<HttpConfig>) -> Reach {
    match http {
        None => Reach::Nobody,
        Some(http) if http.listen.ip().to_canonical().is_loopback() => Reach::Loopback,
        Some(_) => Reach::Others,
    }
}

pub(super) fn read_purge(mut section: Section<'_, '_>) -> PurgeConfig {
    let default = PurgeConfig::default().every;
    let every = section.or("every", default, |e| duration(&e, Duration::from_secs(1)));
    section.finish();
    PurgeConfig { every }
}
