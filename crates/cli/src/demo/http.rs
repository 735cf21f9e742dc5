//! Messages that are requests: their sender waits for the answer, and sends again what got none.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::JoinHandle;

use super::PROCESSES;
use super::courier::Sections;
use super::producer::{Carrier, Order};
use crate::exit::Failure;

const PATH: &str = "/in/orders";
/// What an answer has that says: applied before.
const REPLAYED: &str = "idempotent-replayed";
/// How many senders there are. An article has one of them, who waits for each answer: so its order holds.
const SENDERS: usize = 20;
/// How many orders wait for a sender.
const WAITING: usize = 100;
/// How long a sender waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long before it sends again.
const PAUSE: Duration = Duration::from_millis(50);
/// How often. A process that was killed is back within some of them.
const MAX_TRIES: u32 = 1_200;

/// Where the consumer processes take requests.
pub(crate) struct Doors {
    addresses: Vec<SocketAddr>,
    /// How many answers said that the message was applied before. Processes that are killed take their own counts with them.
    replayed: Arc<AtomicI64>,
}

impl Doors {
    pub(crate) fn new() -> Result<Self, Failure> {
        // All at once, so that they are different.
        let free: Result<Vec<TcpListener>, _> =
            (0..PROCESSES).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
        let addresses: Result<Vec<SocketAddr>, _> = free?.iter().map(TcpListener::local_addr).collect();
        Ok(Self { addresses: addresses?, replayed: Arc::default() })
    }

    /// How many answers said that the message was applied before.
    pub(crate) fn replayed(&self) -> i64 {
        self.replayed.load(Ordering::SeqCst)
    }

    pub(crate) fn describe(&self) -> String {
        let addresses: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        format!("HTTP at {}", addresses.join(" and "))
    }

    pub(crate) fn sections(&self, process: usize) -> Sections {
        let address = self.addresses[process % self.addresses.len()];
        Sections {
            broker: format!("[http]\nlisten = \"{address}\"\n"),
            inbox: format!(
                "id = \"header:idempotency-key\"\nhttp = {{ path = \"{PATH}\", key = \"json:/sku\" }}"
            ),
        }
    }

    /// To be called inside of a runtime, on which the senders run.
    pub(crate) fn carrier(&self) -> impl Carrier + use<> {
        let (senders, tasks) = (0..SENDERS)
            .map(|nth| {
                let (sender, orders) = mpsc::channel(WAITING);
                let address = self.addresses[nth % self.addresses.len()];
                (sender, tokio::spawn(send_all(orders, address, Arc::clone(&self.replayed))))
            })
            .unzip();
        Senders { runtime: Handle::current(), senders, tasks }
    }
}

struct Senders {
    runtime: Handle,
    senders: Vec<Sender<(String, String)>>,
    tasks: Vec<JoinHandle<Result<(), String>>>,
}

impl Carrier for Senders {
    fn carry(&mut self, order: &Order) -> Result<(), String> {
        let sender = &self.senders[order.sku() as usize % self.senders.len()];
        let gone = |_| "a sender has given up".to_owned();
        sender.blocking_send((order.id().to_owned(), order.payload())).map_err(gone)
    }

    fn flush(&mut self) -> Result<(), String> {
        self.senders.clear();
        for task in self.tasks.drain(..) {
            self.runtime.block_on(task).map_err(|e| e.to_string())??;
        }
        Ok(())
    }

    /// Whoever waits for answers never runs ahead.
    fn most_unread(&self) -> i64 {
        i64::MAX
    }
}

/// Sends one order after another, each until it is answered.
async fn send_all(
    mut orders: Receiver<(String, String)>,
    address: SocketAddr,
    replayed: Arc<AtomicI64>,
) -> Result<(), String> {
    let client: Client<HttpConnector, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let uri: Uri =
        format!("http://{address}{PATH}").parse().map_err(|e: http::uri::InvalidUri| e.to_string())?;
    while let Some((id, payload)) = orders.recv().await {
        let mut tries = 0;
        let was_replayed = loop {
            match send(&client, &uri, &id, &payload).await {
                Ok(was_replayed) => break was_replayed,
                Err(problem) if tries + 1 >= MAX_TRIES => return Err(format!("{id}: {problem}")),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(PAUSE).await;
        };
        replayed.fetch_add(i64::from(was_replayed), Ordering::SeqCst);
    }
    Ok(())
}

/// Says whether the message was applied before.
async fn send(
    client: &Client<HttpConnector, Full<Bytes>>,
    uri: &Uri,
    id: &str,
    payload: &str,
) -> Result<bool, String> {
    let request = Request::post(uri.clone())
        .header("idempotency-key", format!("\"{id}\""))
        .header("content-type", "application/json")
        .body(Full::from(payload.to_owned()))
        .map_err(|e| e.to_string())?;
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, client.request(request));
    let answer = answer.await.map_err(|_| "no answer")?.map_err(|e| e.to_string())?;
    match answer.status() {
        status if status.is_success() => Ok(answer.headers().contains_key(REPLAYED)),
        status => Err(format!("the answer is {status}")),
    }
}
