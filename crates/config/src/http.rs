//! `[http]`: what the process shows of itself, and who may see it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use oncebox_core::secret::Secret;

use super::reader::{Entry, Section};
use super::source::Reach;

/// `[http]`: health, metrics, the dashboard, and the paths of inboxes. Without the section there is no endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpConfig {
    /// `listen`: address and port. Default `127.0.0.1:7878`.
    pub listen: SocketAddr,
    /// `allow_remote`: an address that others can reach has to be asked for. Default false.
    pub allow_remote: bool,
    /// `dashboard`: whether there is one. Default true.
    pub dashboard: bool,
    /// `payloads`: what the dashboard shows of messages. Default `mask`.
    pub payloads: PayloadsConfig,
    /// `trace_url`: where traces are shown, with `{trace}` in the place of the id. Default: nowhere.
    pub trace_url: Option<String>,
    /// `[http.auth]`: who may see the dashboard. Required where others can reach it.
    pub auth: Option<HttpAuthConfig>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7878)),
            allow_remote: false,
            dashboard: true,
            payloads: PayloadsConfig::Mask,
            trace_url: None,
            auth: None,
        }
    }
}

/// `payloads`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayloadsConfig {
    /// `mask`: shown when somebody asks for one.
    Mask,
    /// `hide`: never shown.
    Hide,
}

/// `[http.auth]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAuthConfig {
    /// `read`: tokens of those who may look.
    pub read: Vec<Secret>,
    /// `act`: tokens of those who may also change things.
    pub act: Vec<Secret>,
    /// `proxy`: somebody else signs people in.
    pub proxy: Option<HttpProxyConfig>,
}

/// `proxy = { header = "x-forwarded-user", from = ["10.0.0.1"], act = ["ana"] }`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProxyConfig {
    /// `header`: the header with the name of the user. Required.
    pub header: String,
    /// `from`: the addresses of the proxy. Required.
    pub from: Vec<IpAddr>,
    /// `act`: who may also change things; `["*"]` is everybody. Default: nobody.
    pub act: Vec<String>,
}

/// Shorter tokens can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Whether others can reach an address.
#[must_use]
pub fn is_remote(listen: SocketAddr) -> bool {
    !listen.ip().to_canonical().is_loopback()
}

pub(super) fn read(mut section: Section<'_, '_>) -> HttpConfig {
    let default = HttpConfig::default();
    let allow_remote = section.or("allow_remote", default.allow_remote, |e| e.boolean());
    let dashboard = section.or("dashboard", default.dashboard, |e| e.boolean());
    let payloads = section.or("payloads", default.payloads, |e| {
        e.choice(&[("mask", PayloadsConfig::Mask), ("hide", PayloadsConfig::Hide)])
    });
    let trace_url = section.optional("trace_url").and_then(|entry| {
        let fix = "write the address of a trace with {trace} in the place of its id, such as \"https://jaeger.example/trace/{trace}\"";
        let is_one = |text: &str| {
            let is_web = text.starts_with("https://") || text.starts_with("http://");
            (is_web && text.contains("{trace}")).then(|| text.to_owned())
        };
        entry.parsed("the address of a trace", fix, is_one)
    });
    let auth = section.optional("auth");
    let is_closed = auth.is_some() || !dashboard;
    let auth = auth.and_then(Entry::into_section).and_then(read_auth);
    let listen = section.or("listen", default.listen, |entry| {
        let fix = "write an address with a port, such as \"127.0.0.1:7878\" or \"[::1]:7878\"";
        let listen: SocketAddr = entry.parsed("an address with a port", fix, |text| text.parse().ok())?;
        if is_remote(listen) && !allow_remote {
            entry.report(
                "others can reach this address, and health and metrics have no authentication",
                "listen on 127.0.0.1, or set `allow_remote = true` where a proxy or firewall protects it",
            );
        }
        Some(listen)
    });
    if allow_remote && !is_closed {
        section.report_key(
            "auth",
            "others can reach the dashboard, and nobody has to sign in",
            "add [http.auth] with tokens or a proxy, or write `dashboard = false`",
        );
    }
    section.finish();
    HttpConfig { listen, allow_remote, dashboard, payloads, trace_url, auth }
}

/// Who can send requests.
pub(super) fn reach(http: Option<&HttpConfig>) -> Reach {
    match http {
        None => Reach::Nobody,
        Some(http) if is_remote(http.listen) => Reach::Others,
        Some(_) => Reach::Loopback,
    }
}

fn read_auth(mut section: Section<'_, '_>) -> Option<HttpAuthConfig> {
    let place = section.place();
    let read = section.or("read", Vec::new(), tokens);
    let act = section.or("act", Vec::new(), tokens);
    let proxy = section.optional("proxy");
    let is_empty = read.is_empty() && act.is_empty() && proxy.is_none();
    let proxy = proxy.and_then(Entry::into_section).and_then(read_proxy);
    section.finish();
    if is_empty {
        place.report(
            "nobody can sign in",
            "write tokens, as in act = [\"${ONCEBOX_ACT_TOKEN}\"], or the proxy that signs people in",
        );
        return None;
    }
    if let Some(both) = read.iter().find(|token| act.contains(token)).map(|_| "act") {
        place.report_below(both, "a token of `read` stands here too", "give each role tokens of its own");
    }
    Some(HttpAuthConfig { read, act, proxy })
}

fn tokens(entry: Entry<'_, '_>) -> Option<Vec<Secret>> {
    let items = entry.into_items("an array of tokens, as in [\"${ONCEBOX_ACT_TOKEN}\"]")?;
    let token = |item: &Entry<'_, '_>| {
        let text = item.filled_text()?;
        if text.trim().len() < SHORTEST_TOKEN {
            item.report(
                format!("a token of fewer than {SHORTEST_TOKEN} characters can be guessed"),
                "make one with `openssl rand -hex 32`, and keep it in the environment",
            );
            return None;
        }
        Some(Secret::new(text.trim()))
    };
    Some(items.iter().filter_map(token).collect())
}

fn read_proxy(mut section: Section<'_, '_>) -> Option<HttpProxyConfig> {
    let header = section
        .required("header", "it is missing", "write the header with the name of the user")
        .and_then(|entry| {
            entry.parsed("the name of a header", "write one such as \"x-forwarded-user\"", header_name)
        });
    let from = section
        .required("from", "it is missing", "write the addresses that requests of the proxy come from")
        .and_then(|entry| {
            if entry.is_empty_array() {
                entry.report("the list is empty", "write the addresses of the proxy");
                return None;
            }
            let items = entry.into_items("an array of addresses, as in [\"10.0.0.1\"]")?;
            let address = |item: &Entry<'_, '_>| {
                item.parsed("an address", "write one such as \"10.0.0.1\"", |text| text.parse().ok())
            };
            Some(items.iter().filter_map(address).collect::<Vec<IpAddr>>())
        });
    let act = section.or("act", Vec::new(), |entry| {
        let items = entry.into_items("an array of users")?;
        Some(items.iter().filter_map(Entry::filled_text).collect())
    });
    section.finish();
    Some(HttpProxyConfig { header: header?, from: from?, act })
}

fn header_name(text: &str) -> Option<String> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    (!text.is_empty() && text.chars().all(is_token)).then(|| text.to_ascii_lowercase())
}
