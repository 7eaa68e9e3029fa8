//! The HTTP API and targets over HTTP, over real connections on loopback.

mod api;
mod bad;
mod batch;
mod delivery;
mod fuzz;
mod limits;
mod openapi;
mod slow;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use wheelhouse_server::engine::{Engine, InProcess};
use wheelhouse_server::http::{Server, Settings};
use wheelhouse_servicegroup::{GroupHandle, Report, ServiceGroup};

/// What no answer takes that comes.
const HANG: Duration = Duration::from_secs(30);

/// An API in a group of its own.
struct Running {
    address: SocketAddr,
    engine: Engine,
    handle: GroupHandle,
    group: JoinHandle<Report>,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Running {
    async fn start(settings: Settings) -> Running {
        let engine = Engine::builder(InProcess::new()).build().unwrap();
        Running::with(engine, settings).await
    }

    async fn with(engine: Engine, settings: Settings) -> Running {
        let (bound, address) = oneshot::channel();
        let server = Server::bind("127.0.0.1:0", engine.clone(), settings)
            .on_bound(|address| bound.send(address).unwrap());
        let mut group = ServiceGroup::builder()
            .without_signals()
            .log_to_stderr(false)
            .exit_at_deadline(false)
            .total(Duration::from_secs(20))
            .drain(Duration::ZERO)
            .build()
            .unwrap();
        group.add("api", server).unwrap();
        let handle = group.handle();
        let group = tokio::spawn(group.run());
        Running {
            address: address.await.unwrap(),
            engine,
            handle,
            group,
        }
    }

    async fn stop(self) {
        self.handle.stop();
        let report = self.group.await.unwrap();
        assert_eq!(report.exit_code(), 0, "{report:?}");
        self.engine.stop().await;
    }

    /// One request on a connection of its own.
    async fn ask(&self, method: &str, path: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        request += headers;
        if !body.is_empty() {
            request += &format!("content-length: {}\r\n", body.len());
        }
        request += "\r\n";
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes).await
    }

    async fn json(&self, method: &str, path: &str, body: &str) -> Answer {
        let kind = "content-type: application/json\r\n";
        self.ask(method, path, kind, body).await
    }

    /// Sends bytes as they are, and reads to the end.
    async fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        // A server that has answered already may not read to the end.
        let _ = stream.write_all(bytes).await;
        read(&mut stream).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

impl Answer {
    fn value(&self) -> serde_json::Value {
        let body = &self.body;
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body:?}"))
    }

    /// The type of the problem, without what is common to all.
    fn problem(&self) -> String {
        let value = self.value();
        assert_eq!(value["status"], self.status, "{}", self.body);
        assert!(self.has("content-type: application/problem+json"));
        assert!(value["title"].is_string() && value["detail"].is_string());
        let kind = value["type"].as_str().unwrap();
        kind.strip_prefix("urn:wheelhouse:problem:")
            .unwrap()
            .to_owned()
    }

    fn has(&self, header: &str) -> bool {
        self.head.lines().any(|line| line == header)
    }
}

/// Reads an answer to the end of its connection.
async fn read(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let reading = tokio::time::timeout(HANG, stream.read_to_end(&mut bytes));
    let _ = reading.await.expect("no answer");
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
    let chunked = head
        .lines()
        .any(|line| line == "transfer-encoding: chunked");
    Answer {
        status: status.unwrap_or_else(|| panic!("no answer: {head:?}")),
        head: head.to_owned(),
        body: if chunked {
            unchunk(body)
        } else {
            body.to_owned()
        },
    }
}

fn unchunk(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        whole += &rest[..length];
        text = &rest[length + 2..];
    }
    whole
}
