//! The properties, with the names that librdkafka gives them.

use std::collections::BTreeMap;
use std::fmt;

use url::Url;

const URL: &str = "sasl.oauthbearer.token.endpoint.url";
const EXTENSIONS: &str = "sasl.oauthbearer.extensions";

/// The endpoint that gives tokens, and who we are there.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Oidc {
    pub(super) endpoint: Url,
    pub(super) client_id: String,
    pub(super) client_secret: String,
    pub(super) scope: Option<String>,
    /// What the broker is told beside the token.
    pub(super) extensions: Vec<(String, String)>,
    pub(super) trusted: Trusted,
}

/// Who may vouch for the endpoint.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Trusted {
    /// Whom this machine trusts.
    System,
    /// A file of certificates (`https.ca.location`).
    File(String),
    /// The certificates themselves (`https.ca.pem`).
    Pem(String),
}

impl Oidc {
    /// What has to be there, and why.
    pub(crate) const NEEDS: [(&str, &str); 4] = [
        ("sasl.oauthbearer.method", "it is missing; oidc is the only one that is supported"),
        (URL, "it is missing: somebody has to give us a token"),
        ("sasl.oauthbearer.client.id", "it is missing: the endpoint wants to know who asks"),
        ("sasl.oauthbearer.client.secret", "it is missing: the endpoint wants to know who asks"),
    ];

    /// Whether a property is for us, and librdkafka need not hear of it.
    pub(crate) fn is_ours(property: &str) -> bool {
        property.starts_with("sasl.oauthbearer.") || property.starts_with("https.ca.")
    }

    /// What is wrong with the value of such a property, and what to do.
    pub(crate) fn check(name: &str, value: &str) -> Option<(String, &'static str)> {
        match name {
            URL => {
                let fix = "write the whole URL, as in \"https://idp.example.com/oauth2/token\"";
                parse_url(value).err().map(|why| (why, fix))
            }
            EXTENSIONS => {
                let fix = "write \"logicalCluster=lkc-1,identityPoolId=pool-2\"";
                parse_extensions(value).err().map(|why| (why, fix))
            }
            "sasl.oauthbearer.client.id"
            | "sasl.oauthbearer.client.secret"
            | "sasl.oauthbearer.scope"
            | "https.ca.location"
            | "https.ca.pem" => None,
            _ if Self::is_ours(name) => {
                Some(("there is no such property, or it is not supported".to_owned(), "remove it"))
            }
            _ => None,
        }
    }

    /// What these properties say, if they say that a token is needed. They are complete: somebody has checked.
    pub(crate) fn of(properties: &BTreeMap<String, String>) -> Option<Self> {
        let get = |name: &str| properties.get(name).filter(|value| !value.is_empty()).cloned();
        let mechanism = get("sasl.mechanism").or_else(|| get("sasl.mechanisms"));
        if mechanism.as_deref() != Some("OAUTHBEARER") {
            return None;
        }
        let trusted = match (get("https.ca.pem"), get("https.ca.location")) {
            (Some(pem), _) => Trusted::Pem(pem),
            (None, Some(file)) if file != "probe" => Trusted::File(file),
            _ => Trusted::System,
        };
        Some(Self {
            endpoint: parse_url(&get(URL)?).ok()?,
            client_id: get("sasl.oauthbearer.client.id")?,
            client_secret: get("sasl.oauthbearer.client.secret")?,
            scope: get("sasl.oauthbearer.scope"),
            extensions: get(EXTENSIONS).map_or(Ok(Vec::new()), |text| parse_extensions(&text)).ok()?,
            trusted,
        })
    }

    /// The endpoint as it may be shown.
    pub(super) fn origin(&self) -> String {
        self.endpoint.origin().ascii_serialization()
    }
}

/// Never the URL itself, which may hold a password.
fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("this is no URL of http or https: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("this is no URL of http or https".to_owned());
    }
    Ok(url)
}

/// `name=value,name=value`. The names consist of letters.
fn parse_extensions(text: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |part: &str| {
        let (name, value) = part.trim().split_once('=')?;
        let good = !name.is_empty() && name != "auth" && name.chars().all(|c| c.is_ascii_alphabetic());
        let printable = value.chars().all(|c| c == ' ' || c.is_ascii_graphic());
        (good && printable).then(|| (name.to_owned(), value.to_owned()))
    };
    let pairs = text.split(',').map(pair).collect::<Option<Vec<_>>>();
    pairs.ok_or_else(|| {
        "this is no list of name=value, separated by commas, with names of letters (and not `auth`)"
            .to_owned()
    })
}

impl fmt::Debug for Oidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oidc").field("endpoint", &self.origin()).finish_non_exhaustive()
    }
}
