//! Who may look, and who may act.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};
use sha2::{Digest as _, Sha256};

/// The cookie of somebody who has signed in with a token.
pub(crate) const COOKIE: &str = "oncebox_dashboard";

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look at everything.
    Read,
    /// Also change things.
    Act,
}

impl Role {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Act => "act",
        }
    }
}

/// Who may do what.
#[derive(Debug, Clone)]
pub struct Access(Way);

#[derive(Debug, Clone)]
enum Way {
    /// Nobody signs in: whoever is on this machine may do everything. Only for an address that nobody else can reach.
    Local,
    SignedIn {
        tokens: Vec<Token>,
        proxy: Option<Proxy>,
    },
}

/// What is known of a token. Neither it nor what stands in a cookie can be worked out from the other.
#[derive(Clone)]
struct Token {
    role: Role,
    digest: Digest,
    cookie: String,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("role", &self.role).finish_non_exhaustive()
    }
}

type Digest = [u8; 32];

/// A proxy that has signed people in and says who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The header with the name of the user.
    pub header: HeaderName,
    /// The addresses that requests of the proxy come from. From others the header means nothing.
    pub from: Vec<IpAddr>,
    /// Who may act; the others may read. `*` is everybody.
    pub act: Vec<String>,
}

/// Somebody who may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Came in with a cookie, and can sign out.
    pub(crate) has_cookie: bool,
}

/// Why somebody stays outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Nobody signs in here, so only this machine's own names are answered: a name from elsewhere that leads here is an attack.
    Host,
    /// Has not signed in, or with something that is not known.
    SignIn,
}

impl Access {
    /// Without signing in, for a loopback address.
    #[must_use]
    pub fn local() -> Self {
        Self(Way::Local)
    }

    /// With tokens, and whoever a proxy vouches for.
    pub fn signed_in(tokens: impl IntoIterator<Item = (Role, String)>, proxy: Option<Proxy>) -> Self {
        let token = |(role, text): (Role, String)| Token {
            role,
            digest: digest("token", &text),
            cookie: hexadecimal(digest("cookie", &text)),
        };
        Self(Way::SignedIn { tokens: tokens.into_iter().map(token).collect(), proxy })
    }

    /// Whether people can sign in with a token.
    pub(crate) fn has_tokens(&self) -> bool {
        matches!(&self.0, Way::SignedIn { tokens, .. } if !tokens.is_empty())
    }

    /// Who asks.
    pub(crate) fn caller(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Result<Caller, Denied> {
        let (tokens, proxy) = match &self.0 {
            Way::Local if is_this_machine(headers) => {
                return Ok(Caller { name: "local".to_owned(), role: Role::Act, has_cookie: false });
            }
            Way::Local => return Err(Denied::Host),
            Way::SignedIn { tokens, proxy } => (tokens, proxy),
        };
        if let Some(user) = proxy.as_ref().and_then(|proxy| proxy.user(headers, peer)) {
            return Ok(user);
        }
        let named = |token: &Token, has_cookie| Caller {
            name: format!("token:{}", token.role.as_str()),
            role: token.role,
            has_cookie,
        };
        if let Some(given) = bearer(headers) {
            let given = digest("token", given);
            return tokens.iter().find(|t| t.digest == given).map(|t| named(t, false)).ok_or(Denied::SignIn);
        }
        let given = cookie(headers).ok_or(Denied::SignIn)?;
        // Compared as digests: how long that takes says nothing about the cookie.
        let given = digest("compare", given);
        let found = tokens.iter().find(|token| digest("compare", &token.cookie) == given);
        found.map(|token| named(token, true)).ok_or(Denied::SignIn)
    }

    /// What stands in the cookie of somebody with this token.
    pub(crate) fn cookie_for(&self, token: &str) -> Option<&str> {
        let Way::SignedIn { tokens, .. } = &self.0 else { return None };
        let given = digest("token", token.trim());
        tokens.iter().find(|token| token.digest == given).map(|token| token.cookie.as_str())
    }
}

impl Proxy {
    fn user(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<Caller> {
        let peer = peer?.to_canonical();
        if !self.from.iter().any(|from| from.to_canonical() == peer) {
            return None;
        }
        let mut names = headers.get_all(&self.header).iter();
        let name = names.next()?.to_str().ok()?.trim();
        // Two of them: somebody has smuggled one in.
        if name.is_empty() || names.next().is_some() {
            return None;
        }
        let acts = self.act.iter().any(|user| user == "*" || user == name);
        let role = if acts { Role::Act } else { Role::Read };
        Some(Caller { name: name.to_owned(), role, has_cookie: false })
    }
}

fn digest(purpose: &str, text: &str) -> Digest {
    let mut hash = Sha256::new();
    hash.update(format!("oncebox dashboard {purpose}\0"));
    hash.update(text);
    hash.finalize().into()
}

fn hexadecimal(digest: Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

/// Whether a request was sent to a name that only this machine has.
fn is_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn access() -> Access {
        let proxy = Proxy {
            header: HeaderName::from_static("x-user"),
            from: vec!["10.0.0.1".parse().unwrap()],
            act: vec!["ana".to_owned()],
        };
        Access::signed_in([(Role::Read, "r".repeat(20)), (Role::Act, "a".repeat(20))], Some(proxy))
    }

    #[test]
    fn without_sign_in_only_names_of_this_machine_are_answered() {
        let asked = |host: &str| Access::local().caller(&headers(&[("host", host)]), None);
        for host in
            ["127.0.0.1:7878", "localhost", "LOCALHOST:1", "[::1]:7878", "127.9.9.9", "box.localhost."]
        {
            assert!(asked(host).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "evil.example:7878", "10.0.0.1:7878", "localhost.evil.example", "[::2]:1", ""]
        {
            assert_eq!(asked(host), Err(Denied::Host), "{host}");
        }
        assert_eq!(Access::local().caller(&HeaderMap::new(), None), Err(Denied::Host));
    }

    #[test]
    fn a_token_has_its_role_in_a_header_and_in_a_cookie() {
        for (token, role) in [("r", Role::Read), ("a", Role::Act)] {
            let token = token.repeat(20);
            let bearer = headers(&[("authorization", &format!("Bearer {token}"))]);
            assert_eq!(access().caller(&bearer, None).unwrap().role, role);
            let access = access();
            let cookie = access.cookie_for(&token).unwrap();
            assert!(!cookie.contains(&token));
            let pair = headers(&[("cookie", &format!("other=1; {COOKIE}={cookie}"))]);
            assert_eq!(access.caller(&pair, None).unwrap().role, role);
            let as_bearer = headers(&[("authorization", &format!("Bearer {cookie}"))]);
            assert_eq!(access.caller(&as_bearer, None), Err(Denied::SignIn), "a cookie is no token");
        }
        for wrong in ["Bearer x", "Basic cg==", "Bearer "] {
            assert_eq!(access().caller(&headers(&[("authorization", wrong)]), None), Err(Denied::SignIn));
        }
        assert_eq!(access().caller(&HeaderMap::new(), None), Err(Denied::SignIn));
    }

    #[test]
    fn a_proxy_is_believed_only_from_its_address() {
        let of = |peer: &str, users: &[&str]| {
            let pairs: Vec<_> = users.iter().map(|user| ("x-user", *user)).collect();
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, value.parse().unwrap());
            }
            access().caller(&headers, Some(peer.parse().unwrap()))
        };
        assert_eq!(of("10.0.0.1", &["ana"]).unwrap().role, Role::Act);
        assert_eq!(of("::ffff:10.0.0.1", &["ben"]).unwrap().role, Role::Read);
        assert_eq!(of("10.0.0.2", &["ana"]), Err(Denied::SignIn));
        assert_eq!(of("10.0.0.1", &["ben", "ana"]), Err(Denied::SignIn), "one of them was smuggled in");
        assert_eq!(of("10.0.0.1", &[""]), Err(Denied::SignIn));
    }

    #[test]
    fn tokens_do_not_show_up_in_a_log() {
        assert!(!format!("{:?}", access()).contains("aaaa"));
    }
}
