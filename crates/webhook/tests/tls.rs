//! https: the certificate of the receiver is checked against what the machine trusts.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod receiver;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oncebox_core::outbox::Deliver;
use oncebox_webhook::{Error, Webhook};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use receiver::{Receiver, Reply, event};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// What the machine trusts is read from the environment, which a test must not change for its own process. The test starts
/// itself as the sender.
const URL: &str = "ONCEBOX_TEST_WEBHOOK";

#[tokio::test]
async fn certificates_are_checked() {
    if let Ok(url) = std::env::var(URL) {
        return send(&url).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let (trusted, tls) = certificate(dir.path(), "trusted");
    let (stranger, _) = certificate(dir.path(), "stranger");
    let receiver = Receiver::start_with(Some(tls), |_| Reply::status("200 OK")).await;
    let port = receiver.url.rsplit_once(':').unwrap().1.to_owned();
    let localhost = format!("https://localhost:{port}/in");

    assert_eq!(sender(&localhost, &trusted).await, "delivered");
    assert_eq!(receiver.received()[0].line, "POST /in HTTP/1.1");

    let unknown = sender(&localhost, &stranger).await;
    assert!(unknown.contains("no connection") && unknown.contains("invalid peer certificate"), "{unknown}");
    // The certificate is for the name, not for the address.
    let other_name = sender(&format!("https://127.0.0.1:{port}/in"), &trusted).await;
    assert!(
        other_name.contains("no connection") && other_name.contains("not valid for name"),
        "{other_name}"
    );
    // Plain HTTP to a port with TLS, and the other way round.
    let plain = sender(&receiver.url, &trusted).await;
    assert!(plain.contains("the connection broke"), "{plain}");
    let without_tls = Receiver::start(|_| Reply::status("200 OK")).await;
    let tls = sender(&without_tls.url.replace("http:", "https:"), &trusted).await;
    assert!(tls.contains("no connection"), "{tls}");
    assert_eq!(receiver.received().len(), 1);

    std::fs::write(dir.path().join("empty"), "").unwrap();
    let none = sender(&localhost, &dir.path().join("empty")).await;
    assert!(none.contains("install the package ca-certificates"), "{none}");
}

async fn send(url: &str) {
    let said = match Webhook::to(url) {
        Err(error @ Error::Tls(_)) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(webhook) => match webhook.deliver(&event(None, Some("{}"), &[])).await {
            Ok(()) => "delivered".to_owned(),
            Err(error) => error.to_string(),
        },
    };
    println!("\nsaid: {said}");
}

/// Sends an event from a process that trusts these certificates, and returns what came of it.
async fn sender(url: &str, trusted: &Path) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "certificates_are_checked", "--nocapture"])
        .env(URL, url)
        .env("SSL_CERT_FILE", trusted)
        .env_remove("SSL_CERT_DIR");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = text.lines().find_map(|line| line.strip_prefix("said: "));
    said.unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// A certificate for `localhost`, in a file, and a server that has its key.
fn certificate(dir: &Path, name: &str) -> (PathBuf, TlsAcceptor) {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let file = dir.join(name);
    std::fs::write(&file, cert.pem()).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (file, TlsAcceptor::from(Arc::new(config)))
}
