//! What is on the wire when a server stops, and clients that would hold it up if they could.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::server::{FEW, Kind, LARGE, Server, Shape, WORK};
use crate::trials::{assert_within, end};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames, and the flag of an answer.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// How long a client has to play along.
const UNANSWERED: Duration = Duration::from_secs(2);

fn shape(total: u64) -> Shape {
    Shape {
        drain: Duration::ZERO,
        total: Duration::from_millis(total),
        kind: Kind::Sound,
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("it listens")
}

async fn ask(address: SocketAddr, path: &str, headers: &str) -> TcpStream {
    let mut stream = connect(address).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
    stream
}

async fn until_contains(stream: &mut TcpStream, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let mut some = [0; 1024];
        let count = stream.read(&mut some).await.expect("it answers");
        assert!(count > 0, "ended after {all}");
        all.push_str(&String::from_utf8_lossy(&some[..count]));
    }
    all
}

/// What comes until the server closes; an abrupt end is one as well.
async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let read = stream.read_to_end(&mut all);
    let _ = timeout(Duration::from_secs(20), read)
        .await
        .expect("an end");
    String::from_utf8_lossy(&all).into_owned()
}

/// Connected and silent, kept alive after an answer, with an HTTP/2 or gRPC connection and no call.
pub(crate) async fn idle() {
    let mut server = Server::start(shape(60_000));
    let mut silent = [connect(server.http).await, connect(server.grpc).await];
    let mut kept = ask(server.http, "/", "").await;
    until_contains(&mut kept, "done").await;
    let mut http2 = Http2::connect(server.http).await;
    let endpoint = tonic::transport::Endpoint::new(format!("http://{}", server.grpc));
    let channel = endpoint
        .expect("an address")
        .connect()
        .await
        .expect("it listens");
    let mut rpc = HealthClient::new(channel);
    rpc.check(HealthCheckRequest::default())
        .await
        .expect("an answer");

    server.signal(Signal::SIGTERM);
    let signalled = server.signalled;
    for stream in &mut silent {
        assert_eq!(rest(stream).await, "");
    }
    assert_eq!(rest(&mut kept).await, "");
    http2.expect(GOAWAY, 0).await;
    // It never answers the ping that comes with that.
    let end = end(server).await;
    assert_within(signalled, UNANSWERED);
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
    assert!(!end.stderr.contains(" cut="), "{}", end.stderr);
}

/// A WebSocket that does not say goodbye, a body, events that a client does not read, an RPC stream.
pub(crate) async fn endless() {
    let mut server = Server::start(shape(1600));
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let mut socket = ask(server.http, "/socket", upgrade).await;
    until_contains(&mut socket, "\r\n\r\n").await;
    let mut endless = ask(server.http, "/endless", "").await;
    until_contains(&mut endless, "tick").await;
    let mut events = ask(server.http, "/events", "").await;
    until_contains(&mut events, "tick").await;
    let endpoint = tonic::transport::Endpoint::new(format!("http://{}", server.grpc));
    let channel = endpoint
        .expect("an address")
        .connect()
        .await
        .expect("it listens");
    let mut rpc = HealthClient::new(channel);
    let watch = rpc.watch(HealthCheckRequest::default()).await;
    let mut watch = watch.expect("a stream").into_inner();
    watch
        .message()
        .await
        .expect("a message")
        .expect("the first");

    server.signal(Signal::SIGTERM);
    let signalled = server.signalled;
    let end = end(server).await;
    // In time, with an order to its end: what is left at a level's deadline is cut, and counted.
    assert_within(signalled, Duration::from_millis(1600));
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
    assert!(end.stderr.contains("service=api cut=2\n"), "{}", end.stderr);
    assert!(end.stderr.contains("service=rpc cut=1\n"), "{}", end.stderr);
    assert!(rest(&mut events).await.ends_with("0\r\n\r\n"));
    assert!(!rest(&mut endless).await.ends_with("0\r\n\r\n"));
    // Code 1001, "going away".
    assert!(rest(&mut socket).await.ends_with("going away"));
    assert!(!matches!(watch.message().await, Ok(Some(_))));
}

pub(crate) async fn connection_close() {
    let mut server = Server::start(shape(60_000));
    let mut before = ask(server.http, "/", "").await;
    let answer = until_contains(&mut before, "done").await.to_lowercase();
    assert!(!answer.contains("connection: close"), "{answer}");
    let mut during = ask(server.http, "/", "").await;
    sleep(WORK / 2).await;
    server.signal(Signal::SIGTERM);
    let answer = rest(&mut during).await.to_lowercase();
    assert!(answer.starts_with("http/1.1 200 ok\r\n"), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("done"), "{answer}");
    assert_eq!(end(server).await.status.code(), Some(0));
}

/// The two steps of RFC 9113, 6.8: first of the last possible stream, then of the last that counts.
pub(crate) async fn goaway() {
    let mut server = Server::start(shape(60_000));
    let mut client = Http2::connect(server.http).await;
    client.get("/").await;
    sleep(WORK / 2).await;
    server.signal(Signal::SIGTERM);
    let first = client.expect(GOAWAY, 0).await;
    assert_eq!(first, [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], "no error");
    let ping = client.expect(PING, 0).await;
    client.send(PING, ACK, 0, &ping).await;
    let last = client.expect(GOAWAY, 0).await;
    assert_eq!(last[..8], [0, 0, 0, 1, 0, 0, 0, 0], "stream 1, no error");
    // 0x88 is `:status 200`.
    let headers = client.expect(HEADERS, 1).await;
    assert_eq!(headers[0], 0x88);
    assert_eq!(client.expect(DATA, 1).await, b"done");
    assert_eq!(rest(&mut client.0).await, "");
    assert_eq!(end(server).await.status.code(), Some(0));
}

/// It reads nothing for longer than a client without a request has, and then all.
pub(crate) async fn slow_reader() {
    let mut server = Server::start(shape(60_000));
    let io = TokioIo::new(connect(server.http).await);
    let handshake = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .handshake(io);
    let (mut sender, connection) = handshake.await.expect("a connection");
    tokio::spawn(connection);
    let request = hyper::Request::get("http://localhost/large").body(Empty::<Bytes>::new());
    let answer = sender.send_request(request.expect("a request")).await;
    let answer = answer.expect("an answer");
    let mut http1 = ask(server.http, "/large", "").await;
    server.signal(Signal::SIGTERM);
    sleep(UNANSWERED * 5 / 2).await;
    let body = answer.into_body().collect().await.expect("all of it");
    assert_eq!(body.to_bytes().len(), LARGE);
    let answer = rest(&mut http1).await;
    assert_eq!(answer.matches('x').count(), LARGE);
    let end = end(server).await;
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
}

/// Clients that have closed their half, that never end a head, and that never end a body.
pub(crate) async fn awkward() {
    let mut server = Server::start(shape(60_000));
    let mut half = ask(server.http, "/", "").await;
    half.shutdown().await.expect("its own half");
    let mut head = connect(server.http).await;
    head.write_all(b"GET / HTTP/1.1\r\nHos")
        .await
        .expect("it reads");
    let body = "Content-Length: 1000000\r\n";
    let mut body = ask(server.http, "/", body).await;
    let mut preface = connect(server.http).await;
    preface.write_all(&PREFACE[..7]).await.expect("it reads");
    sleep(WORK / 2).await;
    server.signal(Signal::SIGTERM);
    let signalled = server.signalled;
    assert!(rest(&mut half).await.ends_with("done"));
    assert!(rest(&mut body).await.contains("done"));
    rest(&mut preface).await;
    // It goes on, a byte at a time, for as long as it is let.
    while head.write_all(b"t").await.is_ok() {
        assert_within(signalled, UNANSWERED);
        sleep(WORK).await;
    }
    let end = end(server).await;
    assert_within(signalled, UNANSWERED);
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
}

/// As many idle connections as the system lets two processes have, at most ten thousand.
pub(crate) async fn crowd() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("what is allowed");
    // The other tests have some as well.
    let many = most.saturating_sub(1500).clamp(500, 10_000);
    let mut server = Server::start(shape(60_000));
    let mut all = Vec::new();
    for number in 0..many {
        all.push(match number % 10 {
            0 => ask(server.http, "/", "").await,
            _ => connect(server.http).await,
        });
    }
    for kept in all.iter_mut().step_by(10) {
        until_contains(kept, "done").await;
    }
    server.signal(Signal::SIGTERM);
    let signalled = server.signalled;
    for mut stream in all {
        assert_eq!(rest(&mut stream).await, "");
    }
    let end = end(server).await;
    assert_within(signalled, UNANSWERED);
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
    assert!(!end.stderr.contains(" cut="), "{}", end.stderr);
}

/// Idle connections have all descriptors. At the stop they make room for those that wait.
pub(crate) async fn poor() {
    let mut server = Server::start(Shape {
        kind: Kind::Poor,
        ..shape(60_000)
    });
    let mut idle = Vec::new();
    for _ in 0..FEW {
        idle.push(connect(server.http).await);
    }
    let mut waiting = Vec::new();
    // As many as a backlog holds for sure.
    for _ in 0..FEW {
        waiting.push(ask(server.http, "/", "").await);
    }
    sleep(2 * WORK).await;
    server.signal(Signal::SIGTERM);
    for mut stream in waiting {
        let answer = rest(&mut stream).await;
        assert!(answer.ends_with("done"), "{answer}");
    }
    let end = end(server).await;
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
    assert_eq!(end.begun, Some(FEW));
}

/// A client that knows as little of HTTP/2 as a server lets it.
struct Http2(TcpStream);

impl Http2 {
    async fn connect(address: SocketAddr) -> Self {
        let mut client = Http2(connect(address).await);
        client.0.write_all(PREFACE).await.expect("it reads");
        client.send(SETTINGS, 0, 0, &[]).await;
        client.expect(SETTINGS, 0).await;
        client.send(SETTINGS, ACK, 0, &[]).await;
        client
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a short frame");
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.expect("it reads");
    }

    /// Begins stream 1: headers from HPACK's static table, and a literal authority.
    async fn get(&mut self, path: &str) {
        assert_eq!(path, "/", "the path in the static table");
        let mut headers = vec![0x82, 0x86, 0x84, 0x41, 9];
        headers.extend(b"localhost");
        // End of headers, end of the stream.
        self.send(HEADERS, 0x4 | 0x1, 1, &headers).await;
    }

    /// The payload of the next frame of this type and stream; others are skipped.
    async fn expect(&mut self, kind: u8, stream: u32) -> Vec<u8> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).await.expect("a frame");
            let of = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            if (head[3], of) == (kind, stream) && (kind != SETTINGS || head[4] != ACK) {
                return payload;
            }
        }
    }
}
