//! `${VAR}` inside of a URL: a variable holds a plain value, and is encoded for the part of the URL in which it stands. So a password
//! may have any character, and none of it ever becomes part of the host.
//!
//! A value that is nothing but a variable is a whole URL, and stays as it is; so does a variable in front of `://`.

use super::expand::ExpandError;

/// Where in a URL a variable stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    UserInfo,
    Host,
    /// One segment, such as the name of a database.
    Segment,
    /// A path of its own, such as that of a file.
    Path,
    Query,
}

/// What stands in a URL for the variable whose `${` is at this byte of it. Several URLs are separated by commas.
pub(super) fn fit(
    urls: &str,
    several: bool,
    at: usize,
    name: &str,
    value: String,
) -> Result<String, ExpandError> {
    let start = urls[..at].rfind(',').filter(|_| several).map_or(0, |comma| comma + 1);
    let end = urls[at..].find(',').filter(|_| several).map_or(urls.len(), |comma| at + comma);
    let kept: &[u8] = match part(&urls[start..end], at - start) {
        Part::Whole => return Ok(value),
        Part::Host
            if value.contains(|c: char| "/?#@\\".contains(c) || c.is_whitespace() || c.is_control()) =>
        {
            return Err(ExpandError::NotAHost(name.to_owned()));
        }
        Part::Host => return Ok(value),
        Part::UserInfo | Part::Segment => b"",
        Part::Path => b"/:@!$'()*,;",
        Part::Query => b"/:@!$'()*,;?",
    };
    Ok(encoded(&value, kept))
}

fn part(url: &str, at: usize) -> Part {
    let Some((scheme, rest)) = url.split_once("://") else { return Part::Whole };
    let Some(at) = at.checked_sub(scheme.len() + 3) else { return Part::Whole };
    // A file has no host.
    let authority = if scheme == "sqlite" { 0 } else { rest.find(['/', '?', '#']).unwrap_or(rest.len()) };
    if at < authority {
        let in_front = rest[..authority].rfind('@').is_some_and(|sign| at < sign);
        return if in_front { Part::UserInfo } else { Part::Host };
    }
    match rest.find(['?', '#']) {
        Some(query) if at > query => Part::Query,
        _ if matches!(scheme, "http" | "https" | "sqlite") => Part::Path,
        _ => Part::Segment,
    }
}

/// Every byte that is neither unreserved nor kept as `%` and two digits.
pub(super) fn encoded(value: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::expand;

    const NASTY: &str = "p@ss/w?rd#%41:é ,";

    fn expanded(url: &str, several: bool) -> Result<String, ExpandError> {
        let env = |name: &str| match name {
            "PW" => Some(NASTY.to_owned()),
            "HOST" => Some("db.internal".to_owned()),
            "URL" => Some("postgres://erp:s%40cret@db/erp".to_owned()),
            "DIR" => Some("/var/lib/50% off?".to_owned()),
            _ => None,
        };
        expand(url, &env, &|at, name, value| fit(url, several, at, name, value)).map(|text| text.into_owned())
    }

    #[test]
    fn a_variable_is_encoded_for_its_place() {
        let pw = "p%40ss%2Fw%3Frd%23%2541%3A%C3%A9%20%2C";
        for (written, expected) in [
            ("postgres://erp:${PW}@${HOST}:5432/erp", format!("postgres://erp:{pw}@db.internal:5432/erp")),
            ("postgres://${PW}@db/erp", format!("postgres://{pw}@db/erp")),
            ("mysql://erp@db/${PW}", format!("mysql://erp@db/{pw}")),
            (
                "mongodb://u:${PW}@a,b/erp?x=${PW}",
                format!("mongodb://u:{pw}@a,b/erp?x=p@ss/w?rd%23%2541:%C3%A9%20,"),
            ),
            ("https://host/${PW}", "https://host/p@ss/w%3Frd%23%2541:%C3%A9%20,".to_owned()),
            ("sqlite://${DIR}/stock.db", "sqlite:///var/lib/50%25%20off%3F/stock.db".to_owned()),
            ("${URL}", "postgres://erp:s%40cret@db/erp".to_owned()),
            ("${URL}?sslmode=require", "postgres://erp:s%40cret@db/erp?sslmode=require".to_owned()),
            ("postgres://a:$${PW}@db/erp", "postgres://a:${PW}@db/erp".to_owned()),
        ] {
            assert_eq!(expanded(written, false).as_deref(), Ok(expected.as_str()), "{written}");
        }
    }

    #[test]
    fn several_urls_are_told_apart() {
        let two = expanded("amqp://u:${PW}@a/%2f,amqp://u:${PW}@${HOST}/%2f", true).expect("two URLs");
        assert_eq!(two.split(',').count(), 2, "{two}");
        assert!(two.ends_with("@db.internal/%2f"), "{two}");
    }

    #[test]
    fn what_ends_a_host_is_refused_in_its_place() {
        let refused = expanded("postgres://erp@${PW}/erp", false);
        assert_eq!(refused, Err(ExpandError::NotAHost("PW".to_owned())));
    }
}
