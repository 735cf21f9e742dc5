//! A network between a daemon and Kafka that can be taken away, for one test alone: all tests share the broker.
//!
//! Clients go where the broker says it is, so the proxy writes its own port into the answers. Nothing else is changed.

use std::net::SocketAddr;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::service;

/// What becomes of connections, those that are open included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// All is well.
    Up,
    /// They end, and new ones end at once: the broker is not there.
    Down,
    /// Nothing arrives and nobody is told: the broker stands still, or a cable is out.
    Silent,
}

/// Forwards connections as long as the network is up.
pub(crate) struct KafkaProxy {
    pub(crate) address: SocketAddr,
    network: watch::Sender<Network>,
}

impl KafkaProxy {
    /// A proxy in front of the broker of all tests.
    pub(crate) async fn start() -> Self {
        let brokers = service("ONCEBOX_TEST_KAFKA");
        let client: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", &brokers).create().expect("a client");
        let metadata = client.fetch_metadata(None, Duration::from_secs(30)).expect("metadata");
        let [broker] = metadata.brokers() else { panic!("the tests expect one broker, not a cluster") };
        let advertised = (broker.host().to_owned(), broker.port());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let network = watch::Sender::new(Network::Up);
        tokio::spawn(accept(listener, Advertised::new(&advertised, address.port()), network.subscribe()));
        Self { address, network }
    }

    /// As it stands in `kafka.brokers`.
    pub(crate) fn brokers(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

/// Where the broker says it is, as bytes of an answer, and what clients are told instead.
#[derive(Clone)]
struct Advertised {
    broker: String,
    real: Vec<u8>,
    told: Vec<u8>,
}

impl Advertised {
    fn new((host, port): &(String, i32), proxy: u16) -> Self {
        let place = |port: i32| [host.as_bytes(), &port.to_be_bytes()].concat();
        Self { broker: format!("{host}:{port}"), real: place(*port), told: place(i32::from(proxy)) }
    }

    /// The host is the same, so lengths stay as they are.
    fn replace_in(&self, answer: &mut [u8]) {
        let mut at = 0;
        while let Some(found) = answer[at..].windows(self.real.len()).position(|window| window == self.real) {
            at += found;
            answer[at..at + self.told.len()].copy_from_slice(&self.told);
        }
    }
}

async fn accept(listener: TcpListener, advertised: Advertised, network: watch::Receiver<Network>) {
    while let Ok((client, _)) = listener.accept().await {
        if *network.borrow() == Network::Down {
            continue;
        }
        let (advertised, mut network) = (advertised.clone(), network.clone());
        tokio::spawn(async move {
            let Ok(broker) = TcpStream::connect(&advertised.broker).await else { return };
            let (from_client, to_client) = client.into_split();
            let (from_broker, to_broker) = broker.into_split();
            let (up, up_too) = (network.clone(), network.clone());
            tokio::select! {
                () = requests(from_client, to_broker, up) => {}
                () = answers(from_broker, to_client, &advertised, up_too) => {}
                _ = network.wait_for(|network| *network == Network::Down) => {}
            }
        });
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut network: watch::Receiver<Network>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        is_up(&mut network).await;
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Answer by answer: each begins with its length.
async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    advertised: &Advertised,
    mut network: watch::Receiver<Network>,
) {
    while let Ok(length) = from.read_u32().await {
        let mut answer = vec![0; usize::try_from(length).expect("a length")];
        if from.read_exact(&mut answer).await.is_err() {
            return;
        }
        advertised.replace_in(&mut answer);
        is_up(&mut network).await;
        if to.write_u32(length).await.is_err() || to.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn is_up(network: &mut watch::Receiver<Network>) {
    // The sender goes with the test.
    network.wait_for(|network| *network == Network::Up).await.ok();
}
