//! What can be wrong with the settings of a webhook.

/// The webhook cannot be used as it is configured. Names no secret.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be read.
    #[error("the address of the webhook is not a URL: {0}")]
    Address(String),
    /// Neither http nor https.
    #[error("the address of the webhook must begin with http:// or https://")]
    Scheme,
    /// The secret is empty, or not the base64 it claims to be.
    #[error("the secret of the webhook {0}")]
    Secret(&'static str),
    /// The header cannot be sent.
    #[error("the webhook cannot send the header {name:?}: {why}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No answer that could say that an event is wrong has this status.
    #[error("the webhook cannot park events for the status {0}: write statuses from 300 to 599")]
    Status(u16),
    /// TLS cannot be used on this machine.
    #[error(
        "the webhook needs root certificates for https: {0}; install the package ca-certificates, or name a file with \
         them in SSL_CERT_FILE"
    )]
    Tls(String),
}
