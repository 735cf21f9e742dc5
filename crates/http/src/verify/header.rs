//! Reading a header that must be there exactly once.

use http::{HeaderMap, HeaderName};

use super::error::NotVerified;

/// The value of a header that is there once, as printable ASCII.
pub(super) fn once<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<&'h str, NotVerified> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or_else(|| NotVerified::Missing(name.clone()))?;
    if values.next().is_some() {
        return Err(NotVerified::Repeated(name.clone()));
    }
    value.to_str().map(str::trim).map_err(|_| NotVerified::Unreadable(name.clone()))
}
