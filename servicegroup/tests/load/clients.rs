//! Clients that ask without a pause, and keep a ledger of what became of each request.
//!
//! A client sends one request per connection, or it uses its connection again; then it repeats a
//! request whose connection has closed before the first byte of the answer. Everything else that is
//! not an answer has failed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Half of them use their connection again.
const CLIENTS: usize = 64;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    Grpc,
}

/// What became of the requests.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    answered: AtomicU64,
    repeated: AtomicU64,
    failed: Mutex<Vec<(Instant, String)>>,
    enough: AtomicBool,
}

impl Ledger {
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// When each request was begun that failed, and how it did.
    pub(crate) fn failed(&self) -> Vec<(Instant, String)> {
        self.failed.lock().expect("no panic").clone()
    }

    fn fail(&self, begun: Instant, how: String) {
        self.failed.lock().expect("no panic").push((begun, how));
    }

    /// Has the clients end after their present request.
    pub(crate) fn enough(&self) {
        self.enough.store(true, Ordering::SeqCst);
    }
}

/// Clients that run until their first failure, or until it is enough.
pub(crate) fn start(protocol: Protocol, address: SocketAddr) -> (Arc<Ledger>, JoinSet<()>) {
    let ledger = Arc::new(Ledger::default());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(ask(protocol, address, number % 2 == 0, ledger.clone()));
    }
    (ledger, clients)
}

async fn ask(protocol: Protocol, address: SocketAddr, again: bool, ledger: Arc<Ledger>) {
    let mut kept: Option<Connection> = None;
    while !ledger.enough.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let used_before = kept.is_some();
        let asked = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => Connection::open(protocol, address).await?,
            };
            connection.ask().await?;
            Ok::<_, Lost>(connection)
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(connection)) => {
                ledger.answered.fetch_add(1, Ordering::SeqCst);
                kept = again.then_some(connection);
            }
            Ok(Err(lost)) if used_before && !lost.midway => {
                ledger.repeated.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Err(lost)) => return ledger.fail(begun, lost.how),
            Err(_) => return ledger.fail(begun, "no answer".into()),
        }
    }
}

/// A request without an answer.
struct Lost {
    /// Whether some of the answer has come.
    midway: bool,
    how: String,
}

impl Lost {
    fn before(error: impl std::fmt::Debug) -> Self {
        Lost {
            midway: false,
            how: format!("{error:?}"),
        }
    }

    fn midway(error: impl std::fmt::Debug) -> Self {
        Lost {
            midway: true,
            how: format!("midway: {error:?}"),
        }
    }
}

enum Connection {
    Http1(http1::SendRequest<Empty<Bytes>>),
    Http2(http2::SendRequest<Empty<Bytes>>),
    Grpc(HealthClient<Channel>),
}

impl Connection {
    async fn open(protocol: Protocol, address: SocketAddr) -> Result<Self, Lost> {
        if protocol == Protocol::Grpc {
            let endpoint = Endpoint::new(format!("http://{address}")).map_err(Lost::before)?;
            let channel = endpoint.connect().await.map_err(Lost::before)?;
            return Ok(Connection::Grpc(HealthClient::new(channel)));
        }
        let stream = TcpStream::connect(address).await.map_err(Lost::before)?;
        let io = TokioIo::new(stream);
        // What the connections' tasks return, their requests return as well.
        Ok(match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(io).await.map_err(Lost::before)?;
                tokio::spawn(connection);
                Connection::Http1(sender)
            }
            _ => {
                let handshake = http2::handshake(TokioExecutor::new(), io).await;
                let (sender, connection) = handshake.map_err(Lost::before)?;
                tokio::spawn(connection);
                Connection::Http2(sender)
            }
        })
    }

    /// Asks, and reads all of the answer.
    async fn ask(&mut self) -> Result<(), Lost> {
        let response = match self {
            Connection::Http1(sender) => {
                let request = hyper::Request::get("/").header("host", "localhost");
                let request = request.body(Empty::new()).map_err(Lost::before)?;
                sender.ready().await.map_err(Lost::before)?;
                sender.send_request(request).await.map_err(Lost::before)?
            }
            Connection::Http2(sender) => {
                let request = hyper::Request::get("http://localhost/");
                let request = request.body(Empty::new()).map_err(Lost::before)?;
                sender.ready().await.map_err(Lost::before)?;
                sender.send_request(request).await.map_err(Lost::before)?
            }
            Connection::Grpc(client) => {
                let request = HealthCheckRequest::default();
                client.check(request).await.map_err(Lost::before)?;
                return Ok(());
            }
        };
        if response.status() != 200 {
            return Err(Lost::midway(response.status()));
        }
        let body = response.into_body().collect().await.map_err(Lost::midway)?;
        match &*body.to_bytes() {
            b"done" => Ok(()),
            other => Err(Lost::midway(other)),
        }
    }
}
