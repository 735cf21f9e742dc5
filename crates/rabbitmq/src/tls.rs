//! TLS to a node: the authorities of the machine or those of a file, and who we are.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::{Address, TlsFiles};
use crate::error::Error;

/// The handshake. Files are read anew each time: a certificate that was renewed is used by the next connection.
pub(crate) async fn handshake(
    address: &Address,
    files: &TlsFiles,
    socket: TcpStream,
) -> Result<TlsStream<TcpStream>, Error> {
    let name = files.server_name.as_ref().unwrap_or(&address.host);
    let name = ServerName::try_from(name.clone());
    let name =
        name.map_err(|e| Error::Tls(format!("the host of {address} cannot be in a certificate: {e}")))?;
    let files = files.clone();
    // The machine's authorities may be many files.
    let config = tokio::task::spawn_blocking(move || config(&files)).await;
    let config = config.map_err(|e| Error::Tls(e.to_string()))??;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, socket).await;
    connecting.map_err(|e| Error::Tls(e.to_string()))
}

fn config(files: &TlsFiles) -> Result<ClientConfig, Error> {
    // Named here, and not taken from the process: another crate may bring a second provider.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Tls(e.to_string()))?
        .with_root_certificates(authorities(files.ca.as_deref())?);
    let (Some(certificate), Some(key)) = (&files.certificate, &files.key) else {
        return Ok(config.with_no_client_auth());
    };
    let unreadable = |e| unreadable(key, &e);
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable)?;
    let certificates = certificates(certificate)?;
    config
        .with_client_auth_cert(certificates, private)
        .map_err(|e| Error::Tls(format!("{} and {} do not fit: {e}", certificate.display(), key.display())))
}

fn authorities(file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for authority in certificates(file)? {
                let unusable = |e| Error::Tls(format!("{} holds no authority: {e}", file.display()));
                roots.add(authority).map_err(unusable)?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            let (usable, _) = roots.add_parsable_certificates(found.certs);
            if usable == 0 {
                let errors: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
                return Err(Error::Tls(format!(
                    "the machine has no authorities to trust; install ca-certificates, or name a file as cacertfile {}",
                    errors.join("; ")
                )));
            }
        }
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|e| unreadable(file, &e))?;
    if certificates.is_empty() {
        return Err(Error::Tls(format!("{} holds no certificate in PEM form", file.display())));
    }
    Ok(certificates)
}

fn unreadable(file: &Path, error: &rustls::pki_types::pem::Error) -> Error {
    Error::Tls(format!("{} cannot be read: {error}", file.display()))
}
