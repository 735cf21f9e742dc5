//! Whether the ids of an inbox can be read from requests.

use oncebox_core::inbox::{Identity, Selector};

use crate::inbox::HttpInbox;

/// The same identity with the names of headers in lower case, as they are in messages that came by HTTP, where `Idempotency-Key`
/// and `idempotency-key` are one header.
///
/// ```
/// use oncebox::Selector;
/// use oncebox::settings::Identity;
///
/// let identity = Identity::new("header:Idempotency-Key".parse()?, None);
/// let identity = oncebox::http::with_lower_case_headers(identity);
/// assert_eq!(identity.id, Selector::Header("idempotency-key".into()));
/// # Ok::<(), oncebox::BoxError>(())
/// ```
#[must_use]
pub fn with_lower_case_headers(mut identity: Identity) -> Identity {
    for selector in [Some(&mut identity.id), identity.tenant.as_mut()].into_iter().flatten() {
        if let Selector::Header(name) = selector {
            name.make_ascii_lowercase();
        }
    }
    identity
}

/// Refuses what no request could satisfy, and ids that are new in every copy.
pub(crate) fn check(identity: &Identity, inbox: &HttpInbox) -> Result<(), String> {
    let key = inbox.key.as_ref().map(|key| ("key", key));
    let tenant = identity.tenant.as_ref().map(|tenant| ("tenant", tenant));
    for (what, selector) in [Some(("id", &identity.id)), tenant, key].into_iter().flatten() {
        check_one(what, selector, inbox)?;
    }
    Ok(())
}

fn check_one(what: &str, selector: &Selector, inbox: &HttpInbox) -> Result<(), String> {
    match selector {
        Selector::Header(name) if name.bytes().any(|b| b.is_ascii_uppercase()) => Err(format!(
            "the {what} of a message is read from header:{name}; headers of requests have names in lower case here: \
             write header:{}",
            name.to_ascii_lowercase()
        )),
        Selector::Path(name) if !inbox.path.parameters().any(|parameter| parameter == name) => Err(format!(
            "the {what} of a message is read from path:{name}, and the path {} has no such parameter",
            inbox.path
        )),
        Selector::Property(name) => Err(format!(
            "the {what} of a message is read from property:{name}; requests have headers: write header:{name}"
        )),
        Selector::Key if what == "key" => Err("the key of a message cannot be read from its key".to_owned()),
        Selector::Key if inbox.key.is_none() => Err(format!(
            "the {what} of a message is read from its key, and requests have none: say where the key is, or read the \
             {what} from header:NAME or json:/POINTER"
        )),
        Selector::Coordinates => Err(format!(
            "the {what} of a message is read from its coordinates; a request that is sent again has others: use \
             header:NAME, json:/POINTER or cloudevents"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_that_no_request_satisfies_are_refused_with_the_way_out() {
        let inbox = HttpInbox::apply("/in/{tenant}/orders".parse().unwrap());
        let by_key = inbox.clone().key("header:oncebox-key".parse().unwrap());
        let check = |inbox: &HttpInbox, id: &str, tenant: Option<&str>| {
            let tenant = tenant.map(|tenant| tenant.parse().unwrap());
            check(&Identity::new(id.parse().unwrap(), tenant), inbox)
        };
        for (id, tenant, part) in [
            ("header:Idempotency-Key", None, "write header:idempotency-key"),
            ("header:a", Some("header:X-Tenant"), "the tenant of a message"),
            ("header:a", Some("path:shop"), "has no such parameter"),
            ("property:message_id", None, "write header:message_id"),
            ("key", None, "requests have none"),
            ("coordinates", None, "a request that is sent again has others"),
        ] {
            let error = check(&inbox, id, tenant).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        for (id, tenant) in
            [("header:idempotency-key", Some("path:tenant")), ("json:/Id", None), ("cloudevents", None)]
        {
            assert_eq!(check(&inbox, id, tenant), Ok(()));
        }
        assert_eq!(check(&by_key, "key", None), Ok(()));
        let circle = inbox.key(Selector::Key);
        assert!(check(&circle, "header:a", None).is_err());
    }
}
