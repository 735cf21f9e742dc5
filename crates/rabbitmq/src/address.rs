//! Where a node is, who we are there, and how much of that may be shown.
//!
//! The client's own reader of such URLs takes an IPv6 address for `localhost` and a misspelt parameter for none, so there is one here.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo, SASLMechanism};
use oncebox_core::secret::Secrets;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::error::Error;

/// One node of a cluster. Only its host and port are shown.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) connect_timeout: Option<Duration>,
    user: String,
    password: String,
    vhost: String,
    mechanism: SASLMechanism,
}

/// What the URL says about TLS: files in PEM form, named as RabbitMQ's own clients name them.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    /// Whom to trust instead of the authorities of the machine.
    pub(crate) ca: Option<PathBuf>,
    /// Who we are.
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    /// The name in the broker's certificate, if it is not the host.
    pub(crate) server_name: Option<String>,
}

impl Address {
    /// Reads one URL or several with commas between them. What they must not show goes to `secrets`.
    pub(crate) fn parse_all(text: &str, secrets: &mut Secrets) -> Result<Vec<Self>, Error> {
        split(text).into_iter().map(|url| Self::parse(url, secrets)).collect()
    }

    fn parse(text: &str, secrets: &mut Secrets) -> Result<Self, Error> {
        // The error of the parser is a fixed sentence without the text.
        let url = Url::parse(text).map_err(|e| Error::Address(format!("cannot be read ({e})")))?;
        let password = url.password().map(decoded).transpose()?;
        if let Some(password) = &password {
            secrets.add(password);
            secrets.add(url.password().unwrap_or_default());
        }
        let tls = match url.scheme() {
            "amqp" => false,
            "amqps" => true,
            _ => return Err(Error::Address("does not begin with amqp:// or amqps://".to_owned())),
        };
        let host = match url.host() {
            // The parser leaves the hosts of schemes that it does not know as they are.
            Some(Host::Domain(host)) if !host.is_empty() => decoded(host)?,
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            _ => return Err(Error::Address("names no host".to_owned())),
        };
        if host.contains(',') {
            let fix = "names several hosts: write a whole URL for each, with commas between them";
            return Err(Error::Address(fix.to_owned()));
        }
        let vhost = match url.path() {
            "" | "/" => "/".to_owned(),
            path => decoded(path.trim_start_matches('/'))?,
        };
        if vhost.contains('/') && url.path().trim_start_matches('/').contains('/') {
            let fix = "has a slash in its virtual host: write it as %2f";
            return Err(Error::Address(fix.to_owned()));
        }
        let user = if url.username().is_empty() { "guest".to_owned() } else { decoded(url.username())? };
        let mut address = Self {
            host,
            port: url.port().unwrap_or(if tls { 5671 } else { 5672 }),
            tls: tls.then(TlsFiles::default),
            heartbeat: None,
            connect_timeout: None,
            password: password.unwrap_or_else(|| "guest".to_owned()),
            user,
            vhost,
            mechanism: SASLMechanism::Plain,
        };
        for (name, value) in url.query_pairs() {
            address.parameter(&name, &value)?;
        }
        let files = address.tls.as_ref().map(|tls| (tls.certificate.is_some(), tls.key.is_some()));
        if matches!(files, Some((true, false) | (false, true))) {
            return Err(Error::Address("needs both certfile and keyfile, or neither".to_owned()));
        }
        Ok(address)
    }

    fn parameter(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let number = || {
            let wrong = |_| Error::Address(format!("has a {name} that is not a number"));
            value.parse::<u32>().map_err(wrong)
        };
        match name {
            "heartbeat" => self.heartbeat = Some(Duration::from_secs(number()?.into())),
            "connection_timeout" => self.connect_timeout = Some(Duration::from_millis(number()?.into())),
            "auth_mechanism" => {
                self.mechanism = match value.to_ascii_lowercase().as_str() {
                    "plain" => SASLMechanism::Plain,
                    "external" => SASLMechanism::External,
                    _ => {
                        return Err(Error::Address(
                            "has an auth_mechanism besides plain and external".to_owned(),
                        ));
                    }
                };
            }
            "cacertfile" | "certfile" | "keyfile" | "server_name_indication" | "verify" => {
                let Some(tls) = &mut self.tls else {
                    return Err(Error::Address(format!("has a {name}, which is for amqps://")));
                };
                match name {
                    "cacertfile" => tls.ca = Some(value.into()),
                    "certfile" => tls.certificate = Some(value.into()),
                    "keyfile" => tls.key = Some(value.into()),
                    "server_name_indication" => tls.server_name = Some(value.to_owned()),
                    _ if value == "verify_peer" => {}
                    _ => {
                        let fix = "turns the check of certificates off, which is not possible: give the authority as cacertfile";
                        return Err(Error::Address(fix.to_owned()));
                    }
                }
            }
            _ => return Err(Error::Address(format!("has an unknown parameter {name}"))),
        }
        Ok(())
    }

    /// What the client needs for the handshake. The connection itself is ours.
    pub(crate) fn uri(&self, heartbeat: Duration) -> AMQPUri {
        let seconds = self.heartbeat.unwrap_or(heartbeat).as_secs();
        AMQPUri {
            scheme: AMQPScheme::AMQP,
            authority: AMQPAuthority {
                userinfo: AMQPUserInfo { username: self.user.clone(), password: self.password.clone() },
                host: self.host.clone(),
                port: self.port,
            },
            vhost: self.vhost.clone(),
            query: AMQPQueryString {
                heartbeat: Some(u16::try_from(seconds).unwrap_or(u16::MAX)),
                auth_mechanism: Some(self.mechanism),
                ..AMQPQueryString::default()
            },
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "amqps" } else { "amqp" };
        write!(f, "{scheme}://{}@{self}/{}", self.user, self.vhost)
    }
}

/// A comma that begins no URL belongs to the one before it: to a password, say.
fn split(text: &str) -> Vec<&str> {
    let (mut urls, mut rest) = (Vec::new(), text.trim());
    loop {
        let begins = |(at, _): &(usize, &str)| {
            let next = rest[at + 1..].trim_start();
            next.starts_with("amqp://") || next.starts_with("amqps://")
        };
        let Some((at, _)) = rest.match_indices(',').find(begins) else { break };
        urls.push(rest[..at].trim());
        rest = rest[at + 1..].trim();
    }
    urls.push(rest);
    urls
}

fn decoded(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| Error::Address("is not UTF-8 where %XX is decoded".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Address>, Error> {
        Address::parse_all(text, &mut Secrets::default())
    }

    fn one(text: &str) -> Address {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).remove(0)
    }

    #[test]
    fn urls_are_read_as_the_clients_of_rabbitmq_do() {
        for (url, shown) in [
            ("amqp://localhost", "amqp://guest@localhost:5672//"),
            ("amqp://me:pw@rabbit:5673/%2f", "amqp://me@rabbit:5673//"),
            ("amqp://me:pw@rabbit/", "amqp://me@rabbit:5672//"),
            ("amqps://me:pw@rabbit/erp", "amqps://me@rabbit:5671/erp"),
            ("amqp://127.0.0.1:1/a%2fb", "amqp://guest@127.0.0.1:1/a/b"),
            ("amqp://[::1]:5/x", "amqp://guest@[::1]:5/x"),
        ] {
            assert_eq!(format!("{:?}", one(url)), shown);
        }
        let uri = one("amqp://a%40b:p%2Fw@h/v?heartbeat=7").uri(Duration::from_secs(15));
        assert_eq!(
            (uri.authority.userinfo.username.as_str(), uri.authority.userinfo.password.as_str()),
            ("a@b", "p/w")
        );
        assert_eq!((uri.vhost.as_str(), uri.query.heartbeat), ("v", Some(7)));
    }

    #[test]
    fn several_nodes_have_commas_between_them() {
        let shown = |text| parse(text).expect("urls").iter().map(Address::to_string).collect::<Vec<_>>();
        assert_eq!(shown("amqp://a,amqps://b , amqp://c:1"), ["a:5672", "b:5671", "c:1"]);
        assert_eq!(shown("amqp://me:p,w@a,amqp://b"), ["a:5672", "b:5672"]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_showing_it() {
        for (url, problem) in [
            ("rabbit:5672", "amqp://"),
            ("http://me:canary@h", "does not begin with amqp://"),
            ("amqp://me:canary@/v", "cannot be read"),
            ("amqp://me:canary@a,b/v", "several hosts"),
            ("amqp://me:canary@a/v/w", "%2f"),
            ("amqp://me:canary@a?hearbeat=7", "unknown parameter hearbeat"),
            ("amqp://me:canary@a?heartbeat=x", "heartbeat that is not a number"),
            ("amqp://me:canary@a?cacertfile=/x", "for amqps://"),
            ("amqps://me:canary@a?verify=verify_none", "check of certificates"),
            ("amqps://me:canary@a?certfile=/x", "both certfile and keyfile"),
            ("amqp://me:canary@a?auth_mechanism=demo", "auth_mechanism"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(problem) && !error.contains("canary"), "{url}: {error}");
        }
    }
}
