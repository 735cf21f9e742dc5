//! An HTTP server that behaves badly, as a test wants it: slow, wrong, or gone in the middle.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// A request that has arrived whole.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// When it was there.
    pub(crate) at: Instant,
    pub(crate) line: String,
    headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    /// A header that has to be there.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no header {name}: {self:#?}"))
    }

    /// The id of the event.
    #[track_caller]
    pub(crate) fn id(&self) -> &str {
        self.header("idempotency-key")
    }
}

/// What it does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Status(u16),
    /// With this status, and `Retry-After` in seconds.
    Later(u16, u64),
    /// With this status, and the line of the request as its text.
    Echo(u16),
    /// A redirect to itself, with another path.
    Redirect,
    /// Says nothing for this long, then all is well.
    After(Duration),
    /// Begins an answer and ends the connection in the middle of it.
    Cut,
}

type Behaviour = dyn Fn(&Request, usize) -> Reply + Send + Sync;

/// Listens on this machine until the test ends.
pub(crate) struct Endpoint {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    behaviour: Box<Behaviour>,
    requests: Mutex<Vec<Request>>,
}

impl Endpoint {
    /// The behaviour gets the request, and how often this event has arrived before.
    pub(crate) async fn start(behaviour: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State { behaviour: Box::new(behaviour), requests: Mutex::default() });
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&served);
                // A client that goes away is no concern of ours.
                tokio::spawn(async move { state.serve(stream).await.ok() });
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/hook", self.origin())
    }

    /// As much of it as may be shown.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far, in the order of their arrival.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.requests.lock().expect("no panic").clone()
    }

    /// The requests with this event.
    pub(crate) fn requests_of(&self, id: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.id() == id).collect()
    }
}

impl State {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufStream::new(stream);
        while let Some(request) = read(&mut stream).await? {
            let line = request.line.clone();
            let reply = self.reply(request);
            let (mut more, mut text) = (String::new(), "answer");
            let status = match reply {
                Reply::Status(status) => status,
                Reply::Later(status, seconds) => {
                    more = format!("retry-after: {seconds}\r\n");
                    status
                }
                Reply::Echo(status) => {
                    text = &line;
                    status
                }
                Reply::Redirect => {
                    more = "location: /elsewhere\r\n".to_owned();
                    307
                }
                Reply::After(delay) => {
                    tokio::time::sleep(delay).await;
                    200
                }
                Reply::Cut => {
                    stream.write_all(b"HTTP/1.1 200").await?;
                    return stream.shutdown().await;
                }
            };
            let length = text.len();
            let answer = format!("HTTP/1.1 {status} Test\r\n{more}content-length: {length}\r\n\r\n{text}");
            stream.write_all(answer.as_bytes()).await?;
            stream.flush().await?;
        }
        Ok(())
    }

    fn reply(&self, request: Request) -> Reply {
        let mut requests = self.requests.lock().expect("no panic");
        let before = requests.iter().filter(|other| other.id() == request.id()).count();
        let reply = (self.behaviour)(&request, before);
        requests.push(request);
        reply
    }
}

/// The next request of a connection; `None` at its end.
async fn read(stream: &mut BufStream<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await?;
        let Some((name, value)) = header.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Ok(Some(Request { at: Instant::now(), line: line.trim_end().to_owned(), headers, body }))
}
