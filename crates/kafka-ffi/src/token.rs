//! The token that a client signs in with (SASL OAUTHBEARER).
//!
//! The binding has a callback for it, which is served only by clients that are polled, and leaves out the extensions.
//! librdkafka takes a token at any time, from any thread.

use std::ffi::{CStr, CString, NulError, c_char};

use rdkafka::bindings as ffi;
use rdkafka::client::{Client, ClientContext};

/// A token with what librdkafka wants to know about it.
#[derive(Clone, Copy)]
pub struct Token<'a> {
    /// The token itself.
    pub value: &'a str,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: i64,
    /// Whom it is about.
    pub principal: &'a str,
    /// What is sent to the broker beside it: names of letters, with their values.
    pub extensions: &'a [(String, String)],
}

/// Without the token, which is a secret.
impl std::fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("expires_at_ms", &self.expires_at_ms)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// Gives a client its token: from now on it signs in with it. Says why librdkafka does not take it.
pub fn set_token<C: ClientContext>(client: &Client<C>, token: &Token<'_>) -> Result<(), String> {
    let no_zero = |_: NulError| "a token, its principal and its extensions hold no zero byte".to_owned();
    let value = CString::new(token.value).map_err(no_zero)?;
    let principal = CString::new(token.principal).map_err(no_zero)?;
    let flat = token.extensions.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    let extensions = flat.map(CString::new).collect::<Result<Vec<_>, _>>().map_err(no_zero)?;
    let mut pointers: Vec<*const c_char> = extensions.iter().map(|text| text.as_ptr()).collect();
    let mut reason: [c_char; 512] = [0; 512];
    // SAFETY: the client is borrowed, so its pointer is valid. All texts end with a zero and live until the end of this
    // function; librdkafka copies them. There are as many pointers as it is told, and it writes no more than the given size.
    let code = unsafe {
        ffi::rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            value.as_ptr(),
            token.expires_at_ms,
            principal.as_ptr(),
            pointers.as_mut_ptr(),
            pointers.len(),
            reason.as_mut_ptr(),
            reason.len(),
        )
    };
    if code == ffi::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    // SAFETY: librdkafka ends what it writes with a zero, and the last byte was zero before.
    Err(unsafe { CStr::from_ptr(reason.as_ptr()) }.to_string_lossy().into_owned())
}

/// Tells a client that there is no token for now, and why. Its error callback says so too, once for each reason.
pub fn set_token_failure<C: ClientContext>(client: &Client<C>, reason: &str) {
    let reason = reason.replace('\0', " ");
    let Ok(reason) = CString::new(if reason.is_empty() { "no reason was given" } else { &reason }) else {
        return;
    };
    // SAFETY: the client is borrowed, so its pointer is valid; the text ends with a zero and is copied. It is refused only
    // if the client does not sign in by token, and then nobody wants to know.
    unsafe { ffi::rd_kafka_oauthbearer_set_token_failure(client.native_ptr(), reason.as_ptr()) };
}
