//! Which ways to sign in there are, and what each of them needs. What cannot work is refused before anything is tried: a client
//! that is told half of it would only say that no broker answers.

use std::collections::BTreeMap;

use crate::oauth::Oidc;
use crate::properties::RefusedProperty;

const MECHANISMS: [&str; 4] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"];
const KNOWN: &str = "use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER";

/// The two names of one property.
const MECHANISM: [&str; 2] = ["sasl.mechanism", "sasl.mechanisms"];

/// Why a property about signing in may not have this value, if it may not.
pub(crate) fn refused(name: &str, value: &str) -> Option<RefusedProperty> {
    let refused = |why: &str, fix: &str| Some(RefusedProperty::new(why, fix));
    if MECHANISM.contains(&name) {
        return match value {
            "GSSAPI" => refused("Kerberos (GSSAPI) is not built in", KNOWN),
            known if MECHANISMS.contains(&known) => None,
            _ => refused("this is no mechanism that is supported, in capital letters", KNOWN),
        };
    }
    if name.starts_with("sasl.kerberos.") {
        return refused("Kerberos (GSSAPI) is not built in", "remove it, and choose another sasl.mechanism");
    }
    let tokens = "use sasl.oauthbearer.method = \"oidc\", which asks for a token with client credentials";
    match (name, value) {
        ("sasl.oauthbearer.method", "oidc" | "OIDC") => None,
        ("sasl.oauthbearer.method", _) => refused("the only method that is supported is oidc", tokens),
        ("sasl.oauthbearer.grant.type", "client_credentials") => None,
        ("sasl.oauthbearer.grant.type", _) => {
            refused("the only grant that is supported is client_credentials", "remove it")
        }
        ("sasl.oauthbearer.metadata.authentication.type", "none") => None,
        ("sasl.oauthbearer.metadata.authentication.type", _) => {
            refused("tokens of the machine (such as Azure IMDS) are not supported", tokens)
        }
        ("sasl.oauthbearer.config" | "enable.sasl.oauthbearer.unsecure.jwt", _) => {
            refused("tokens that nobody has signed are not supported", tokens)
        }
        _ if name.starts_with("sasl.oauthbearer.assertion.") => {
            refused("signing in with an assertion is not supported", tokens)
        }
        _ => Oidc::check(name, value).map(|(why, fix)| RefusedProperty::new(why, fix)),
    }
}

/// What is missing, or does not go together: the property, what is wrong, and what to do.
pub(crate) fn incomplete(properties: &BTreeMap<String, String>) -> Option<(&'static str, String, String)> {
    let get = |name: &str| properties.get(name).map(|value| value.as_str());
    let protocol = get("security.protocol").unwrap_or("plaintext").to_ascii_lowercase();
    let mechanism = MECHANISM.iter().find_map(|name| get(name));
    let signs_in = protocol.starts_with("sasl_");
    let missing = |name: &'static str, why: String| {
        let absent = get(name).is_none_or(|value| value.trim().is_empty());
        absent.then(|| (name, why, format!("add \"{name}\"")))
    };
    match mechanism {
        None if signs_in => {
            let why = format!("security.protocol = {protocol} signs in, and nothing says how");
            Some(("sasl.mechanism", why, KNOWN.to_owned()))
        }
        None => None,
        Some(mechanism) if !signs_in => Some((
            "security.protocol",
            format!("it is {protocol}, so nobody signs in, although sasl.mechanism says {mechanism}"),
            "write sasl_ssl, or sasl_plaintext without TLS".to_owned(),
        )),
        Some("OAUTHBEARER") => Oidc::NEEDS.into_iter().find_map(|(name, why)| missing(name, why.to_owned())),
        Some(mechanism) => ["sasl.username", "sasl.password"]
            .into_iter()
            .find_map(|name| missing(name, format!("it is missing, and {mechanism} needs it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (name, value, word) in [
            ("sasl.mechanism", "GSSAPI", "Kerberos"),
            ("sasl.mechanisms", "GSSAPI", "Kerberos"),
            ("sasl.mechanism", "plain", "capital"),
            ("sasl.kerberos.keytab", "/etc/keytab", "Kerberos"),
            ("sasl.oauthbearer.method", "default", "oidc"),
            ("sasl.oauthbearer.config", "principal=x", "signed"),
            ("enable.sasl.oauthbearer.unsecure.jwt", "true", "signed"),
            ("sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer", "grant"),
            ("sasl.oauthbearer.assertion.file", "/x", "assertion"),
            ("sasl.oauthbearer.metadata.authentication.type", "azure_imds", "IMDS"),
            ("sasl.oauthbearer.token.endpoint.url", "idp/token", "http"),
            ("sasl.oauthbearer.extensions", "logicalCluster", "name=value"),
        ] {
            let refused = refused(name, value).unwrap_or_else(|| panic!("{name} = {value} is taken"));
            assert!(refused.why.contains(word), "{name}: {}", refused.why);
        }
        for (name, value) in [
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.extensions", "logicalCluster=lkc-1,identityPoolId=pool-2"),
            ("sasl.oauthbearer.token.endpoint.url", "https://idp.example.com/token"),
        ] {
            assert_eq!(refused(name, value), None, "{name}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = |given: &[(&str, &str)]| {
            let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            incomplete(&given).map(|(name, ..)| name)
        };
        let (protocol, scram) = (("security.protocol", "SASL_SSL"), ("sasl.mechanism", "SCRAM-SHA-256"));
        assert_eq!(missing(&[]), None);
        assert_eq!(missing(&[("security.protocol", "ssl")]), None);
        assert_eq!(missing(&[protocol]), Some("sasl.mechanism"));
        assert_eq!(missing(&[scram]), Some("security.protocol"));
        assert_eq!(missing(&[protocol, scram]), Some("sasl.username"));
        assert_eq!(missing(&[protocol, scram, ("sasl.username", "erp")]), Some("sasl.password"));
        let who = [protocol, scram, ("sasl.username", "erp"), ("sasl.password", "x")];
        assert_eq!(missing(&who), None);
        let token = ("sasl.mechanism", "OAUTHBEARER");
        assert_eq!(missing(&[protocol, token]), Some("sasl.oauthbearer.method"));
        let method = ("sasl.oauthbearer.method", "oidc");
        assert_eq!(missing(&[protocol, token, method]), Some("sasl.oauthbearer.token.endpoint.url"));
    }
}
