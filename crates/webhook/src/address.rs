//! Where the requests go, and how much of that may be shown.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderValue, Uri};
use oncebox_core::secret::Secrets;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::Error;
use crate::text::one_line;

const MAX_SHOWN_CHARS: usize = 200;

/// The address of a receiver. Only its scheme, host and port are ever shown.
#[derive(Clone)]
pub(crate) struct Address {
    /// The whole of it, to connect to.
    pub(crate) uri: Uri,
    /// The path and the query: what the request line holds.
    pub(crate) target: Uri,
    /// The host, with the port where it is not the usual one.
    pub(crate) host: HeaderValue,
    /// What the credentials in the URL become.
    pub(crate) authorization: Option<HeaderValue>,
    url: Url,
}

impl Address {
    /// Reads it. What it must not show goes to `secrets`.
    pub(crate) fn parse(text: &str, secrets: &mut Secrets) -> Result<Self, Error> {
        // The error of the parser is a fixed sentence without the text.
        let mut url = Url::parse(text).map_err(|e| match e {
            url::ParseError::RelativeUrlWithoutBase => Error::Scheme,
            other => Error::Address(other.to_string()),
        })?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::Scheme);
        }
        let authorization = take_credentials(&mut url, secrets)?;
        url.set_fragment(None);
        keep_path_secret(&url, secrets);
        if let Some(query) = url.query() {
            secrets.add(query);
        }
        for (_, value) in url.query_pairs() {
            secrets.add(&value);
        }
        let wrong = |e: http::Error| Error::Address(e.to_string());
        let uri = url.as_str().parse::<Uri>().map_err(|e| wrong(e.into()))?;
        let target = url[url::Position::BeforePath..].parse::<Uri>().map_err(|e| wrong(e.into()))?;
        let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let host = host.parse::<HeaderValue>().map_err(|e| wrong(e.into()))?;
        Ok(Self { uri, target, host, authorization, url })
    }

    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Where a `Location` points to, as it may be shown.
    pub(crate) fn shown_target(&self, location: &str) -> Option<String> {
        self.url.join(location).ok().as_ref().map(shown)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.url))
    }
}

fn take_credentials(url: &mut Url, secrets: &mut Secrets) -> Result<Option<HeaderValue>, Error> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let mut pair = percent_decode_str(url.username()).collect::<Vec<u8>>();
    pair.push(b':');
    let password: Vec<u8> = percent_decode_str(url.password().unwrap_or_default()).collect();
    pair.extend_from_slice(&password);
    let encoded = BASE64_STANDARD.encode(pair);
    secrets.add(&encoded);
    secrets.add(&String::from_utf8_lossy(&password));
    secrets.add(url.password().unwrap_or_default());
    let mut value = HeaderValue::try_from(format!("Basic {encoded}"))
        .map_err(|_| Error::Address("its credentials cannot be sent".to_owned()))?;
    value.set_sensitive(true);
    forget_credentials(url);
    Ok(Some(value))
}

/// Many receivers keep their token in the path, and servers like to quote a path that they do not know. Ordinary words are hidden too,
/// where they are longer than a few letters: nobody can tell them from a token.
fn keep_path_secret(url: &Url, secrets: &mut Secrets) {
    secrets.add(url.path());
    for segment in url.path_segments().into_iter().flatten() {
        secrets.add(segment);
        secrets.add(&percent_decode_str(segment).decode_utf8_lossy());
    }
}

fn forget_credentials(url: &mut Url) {
    // Only an address without a host refuses, and that one cannot have any.
    url.set_username("").ok();
    url.set_password(None).ok();
}

/// Scheme, host and port. Many receivers keep their token in the path.
fn shown(url: &Url) -> String {
    one_line(&url.origin().ascii_serialization(), MAX_SHOWN_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<Address, Error> {
        Address::parse(text, &mut Secrets::default())
    }

    #[test]
    fn credentials_become_a_header_and_are_not_shown() {
        let address = address("https://me:p%40ss@example.com:8443/a/b?token=canary#part").unwrap();
        assert_eq!(address.uri.to_string(), "https://example.com:8443/a/b?token=canary");
        assert_eq!(address.target.to_string(), "/a/b?token=canary");
        assert_eq!(address.host, "example.com:8443");
        assert_eq!(address.to_string(), "https://example.com:8443");
        // `me:p@ss`
        assert_eq!(address.authorization.unwrap(), "Basic bWU6cEBzcw==");
    }

    #[test]
    fn the_host_is_named_as_http_wants_it() {
        for (text, host, target) in [
            ("http://Example.com:80", "example.com", "/"),
            ("https://example.com:443?a=b", "example.com", "/?a=b"),
            ("http://[::1]:8080/x y", "[::1]:8080", "/x%20y"),
            ("http://bücher.example/ü", "xn--bcher-kva.example", "/%C3%BC"),
        ] {
            let address = address(text).unwrap();
            assert_eq!((address.host.to_str().unwrap(), address.target.to_string().as_str()), (host, target));
        }
    }

    #[test]
    fn only_http_and_https_are_taken() {
        for text in
            ["", "example.com/x", "localhost:80/x", "ftp://me:canary@example.com", "me:canary@example.com"]
        {
            let error = address(text).err().unwrap();
            assert!(matches!(error, Error::Scheme), "{text}: {error}");
        }
        for text in ["http://", "https://me:canary@", "http://me:canary@example.com:port/"] {
            let error = address(text).err().unwrap();
            assert!(matches!(error, Error::Address(_)), "{text}: {error}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        }
    }

    #[test]
    fn the_target_of_a_redirect_is_shown_like_an_address() {
        let address = address("http://example.com/a").unwrap();
        assert_eq!(address.shown_target("/b?token=canary").unwrap(), "http://example.com");
        assert_eq!(
            address.shown_target("https://me:canary@other.example/").unwrap(),
            "https://other.example"
        );
        assert_eq!(address.shown_target("http://[").as_deref(), None);
    }
}
