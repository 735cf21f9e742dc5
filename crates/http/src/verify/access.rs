//! Whose requests an inbox takes.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName};

use super::{Claim, NotVerified, Verifier};

/// Whose requests an inbox takes.
#[derive(Debug, Clone, Default)]
pub enum Access {
    /// Everybody's: right behind something that verifies, or on a loopback address.
    #[default]
    Open,
    /// Those of senders who know a secret.
    Verified(Verifier),
    /// Each value of a path parameter has secrets of its own: who knows those of one tenant cannot write for another.
    ByParameter {
        /// The parameter, such as `tenant` in `/in/{tenant}/orders`.
        parameter: String,
        /// The verifier of each value. Other values are refused.
        verifiers: BTreeMap<String, Verifier>,
    },
}

impl Access {
    /// Who verifies a request with these path parameters; `None` where nobody does.
    pub(crate) fn claim(
        &self,
        parameters: &[(&str, &str)],
        headers: &HeaderMap,
        now_s: i64,
    ) -> Result<Option<Claim<'_>>, NotVerified> {
        self.verifier(parameters)?.map(|verifier| verifier.claim(headers, now_s)).transpose()
    }

    /// The verifier of a request with these path parameters.
    pub(crate) fn verifier(&self, parameters: &[(&str, &str)]) -> Result<Option<&Verifier>, NotVerified> {
        match self {
            Self::Open => Ok(None),
            Self::Verified(verifier) => Ok(Some(verifier)),
            Self::ByParameter { parameter, verifiers } => {
                let value = parameters.iter().find(|(name, _)| name == parameter).map(|(_, value)| *value);
                let verifier = value.and_then(|value| verifiers.get(value));
                verifier.map(Some).ok_or_else(|| NotVerified::Stranger(parameter.clone()))
            }
        }
    }

    /// The headers that prove where a request comes from.
    pub(crate) fn proof_headers(&self) -> Vec<HeaderName> {
        self.verifiers().map(Verifier::proof_header).collect()
    }

    /// What a `401` asks for.
    pub(crate) fn challenge(&self) -> &'static str {
        self.verifiers().next().map_or(super::SIGNATURE_CHALLENGE, Verifier::challenge)
    }

    fn verifiers(&self) -> impl Iterator<Item = &Verifier> {
        let (one, many) = match self {
            Self::Open => (None, None),
            Self::Verified(verifier) => (Some(verifier), None),
            Self::ByParameter { verifiers, .. } => (None, Some(verifiers.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use oncebox_core::secret::Secret;

    use super::*;

    #[test]
    fn a_tenant_cannot_write_for_another() {
        let token = |token: &str| Verifier::bearer([Secret::new(token)]).unwrap();
        let verifiers = [("acme".to_owned(), token("of-acme")), ("zenith".to_owned(), token("of-zenith"))];
        let access = Access::ByParameter { parameter: "tenant".to_owned(), verifiers: verifiers.into() };
        let verify = |tenant: &str, token: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
            access.claim(&[("shop", "zenith"), ("tenant", tenant)], &headers, 0).map(|claim| claim.is_some())
        };
        assert_eq!(verify("acme", "of-acme"), Ok(true));
        assert_eq!(verify("zenith", "of-zenith"), Ok(true));
        assert!(matches!(verify("zenith", "of-acme"), Err(NotVerified::NoMatch(_))));
        assert_eq!(verify("nobody", "of-acme"), Err(NotVerified::Stranger("tenant".to_owned())));
        assert_eq!(access.proof_headers(), ["authorization", "authorization"]);
        assert!(access.challenge().starts_with("Bearer"));
    }
}
