//! TLS to a real broker that wants to know who we are.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;

use oncebox_core::outbox::Sink;
use oncebox_rabbitmq::Rabbitmq;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use support::broker::Broker;
use support::events::{all_delivered, numbered};
use support::node::{Node, free_port};

/// Writes an authority and, signed by it, a certificate for a name, each with its key.
fn certificates(folder: &Path) {
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();
    // Erlang takes a certificate whose issuer has the same name for one that signed itself.
    let named = |name: &str, for_names: Vec<String>| {
        let mut params = CertificateParams::new(for_names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut params = named("authority", Vec::new());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    write("ca.pem", params.self_signed(&key).unwrap().pem());
    let authority = Issuer::new(params, key);
    for name in ["localhost", "client"] {
        let key = KeyPair::generate().unwrap();
        let signed = named(name, vec![name.to_owned()]).signed_by(&key, &authority).unwrap();
        write(&format!("{name}.pem"), signed.pem());
        write(&format!("{name}.key"), key.serialize_pem());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_show_who_they_are() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let (port, at) = (free_port(), |name: &str| folder.path().join(name).display().to_string());
    let node = Node::start(&format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {}\nssl_options.certfile = {}\n\
         ssl_options.keyfile = {}\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n",
        at("ca.pem"),
        at("localhost.pem"),
        at("localhost.key")
    ))
    .await;
    let broker = Broker::connect(&node.url()).await;
    broker.exchange_with_queue("q").await;

    let (ca, certificate, key) = (at("ca.pem"), at("client.pem"), at("client.key"));
    let trusting = format!("cacertfile={ca}");
    let known = format!("certfile={certificate}&keyfile={key}");
    let deliver = async |scheme: &str, host: &str, parameters: &str| {
        let url = format!("{scheme}://guest:guest@{host}:{port}/%2f?{parameters}");
        let sink = Rabbitmq::nodes(url).unwrap().sink("q").unwrap();
        sink.deliver(&numbered("t", 0..10)).await.map_err(|e| e.to_string())
    };
    all_delivered(&deliver("amqps", "localhost", &format!("{trusting}&{known}")).await.unwrap(), 10);
    let renamed = format!("{trusting}&{known}&server_name_indication=localhost");
    all_delivered(&deliver("amqps", "127.0.0.1", &renamed).await.unwrap(), 10);

    let stranger = deliver("amqps", "localhost", &known).await.unwrap_err();
    assert!(stranger.contains("no TLS") && stranger.contains("UnknownIssuer"), "{stranger}");
    let misnamed = deliver("amqps", "127.0.0.1", &format!("{trusting}&{known}")).await.unwrap_err();
    assert!(misnamed.contains("no TLS") && misnamed.contains("not valid for name"), "{misnamed}");
    assert!(deliver("amqps", "localhost", &trusting).await.is_err(), "the broker wants a certificate");
    assert!(deliver("amqp", "localhost", "").await.is_err(), "the port is for TLS");
    let nowhere = deliver("amqps", "localhost", "cacertfile=/no/such/file").await.unwrap_err();
    assert!(nowhere.contains("/no/such/file cannot be read"), "{nowhere}");
    assert_eq!(broker.count("q").await, 20);
}
