//! Servers over real sockets: what each kind of connection sees of a stop.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::Sse;
use axum::response::sse::Event;
use axum::routing::get;
use futures_util::{StreamExt as _, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use wheelhouse_servicegroup::http::{HttpServer, Socket, Stopping, upgrade};
use wheelhouse_servicegroup::{
    Admin, GroupBuilder, GroupHandle, Member, Outcome, Preset, Report, ServiceContext,
    ServiceGroup, State,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn builder(total: u64) -> GroupBuilder {
    ServiceGroup::builder()
        .preset(Preset::Test)
        .total(ms(total))
        .without_signals()
}

/// A group that serves, and its end.
struct Serving {
    address: SocketAddr,
    handle: GroupHandle,
    run: tokio::task::JoinHandle<Report>,
}

impl Serving {
    async fn start(builder: GroupBuilder, router: Router) -> Self {
        Serving::start_with(builder, |listener| {
            HttpServer::from_listener(listener, router)
        })
        .await
    }

    async fn start_with(
        builder: GroupBuilder,
        server: impl FnOnce(TcpListener) -> HttpServer,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut group = builder.build().unwrap();
        group.add("api", server(listener)).unwrap();
        let handle = group.handle();
        let run = tokio::spawn(group.run());
        while !handle.is_ready() {
            sleep(ms(1)).await;
        }
        Serving {
            address,
            handle,
            run,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn ask(&self, path: &str) -> TcpStream {
        let mut stream = self.connect().await;
        ask(&mut stream, path, "").await;
        stream
    }

    async fn end(self) -> Report {
        timeout(ms(20_000), self.run).await.unwrap().unwrap()
    }
}

async fn ask(stream: &mut TcpStream, path: &str, headers: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

/// What comes until the server closes; an abrupt end is one as well.
async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    let _ = timeout(ms(20_000), stream.read_to_end(&mut all))
        .await
        .unwrap();
    String::from_utf8_lossy(&all).into_owned()
}

async fn until_contains(stream: &mut TcpStream, text: &str) -> String {
    let mut all = String::new();
    while !all.contains(text) {
        let mut some = [0; 1024];
        let count = stream.read(&mut some).await.unwrap();
        assert!(count > 0, "ended after {all}");
        all.push_str(&String::from_utf8_lossy(&some[..count]));
    }
    all
}

fn slow(time: Duration) -> Router {
    Router::new().route(
        "/",
        get(move || async move {
            sleep(time).await;
            "done"
        }),
    )
}

#[tokio::test]
async fn s7_a_long_request_is_answered_within_a_long_total() {
    let serving = Serving::start(builder(60_000), slow(ms(1500))).await;
    let mut client = serving.ask("/").await;
    sleep(ms(100)).await;
    serving.handle.stop();
    let answer = rest(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(
        answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    assert!(answer.ends_with("done"), "{answer}");
    assert_eq!(serving.end().await.outcome(), Outcome::Stopped);
}

#[tokio::test]
async fn s35_a_connection_that_has_sent_nothing_closes_at_once() {
    let serving = Serving::start(builder(60_000), slow(ms(0))).await;
    let mut silent = serving.connect().await;
    let mut kept_alive = serving.ask("/").await;
    until_contains(&mut kept_alive, "done").await;
    sleep(ms(150)).await;
    let begun = Instant::now();
    serving.handle.stop();
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(rest(&mut kept_alive).await, "");
    assert!(begun.elapsed() < ms(2000), "{:?}", begun.elapsed());
    let address = serving.address;
    let report = serving.end().await;
    assert_eq!((report.exit_code(), report.services()[0].cut), (0, 0));
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn s36_a_handler_that_takes_an_hour_is_cut_and_counted() {
    let router = slow(ms(3_600_000)).route("/fast", get(async || "fast"));
    let serving = Serving::start(builder(700), router).await;
    let mut hour = serving.ask("/").await;
    let mut fast = serving.ask("/fast").await;
    until_contains(&mut fast, "fast").await;
    serving.handle.stop();
    assert_eq!(rest(&mut hour).await, "");
    let report = serving.end().await;
    let service = &report.services()[0];
    assert_eq!((service.state, service.cut), (Some(State::Exited), 1));
    assert!(report.total() < ms(700 + 2000), "{:?}", report.total());
}

#[tokio::test]
async fn s38_a_websocket_is_told_and_then_cut() {
    let router = Router::new().route(
        "/",
        get(async |request: WebSocketUpgrade, stopping: Stopping| {
            upgrade(request, stopping, async |mut socket: Socket| {
                while let Some(Ok(_)) = socket.recv().await {}
            })
        }),
    );
    let serving = Serving::start(builder(800), router).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = serving.connect().await;
        let headers = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        ask(&mut client, "/", headers).await;
        until_contains(&mut client, "\r\n\r\n").await;
        clients.push(client);
    }
    serving.handle.stop();
    // A close frame of 12 bytes: code 1001, and the reason.
    let mut frame = [0; 14];
    for client in &mut clients {
        client.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame[..4], [0x88, 12, 0x03, 0xe9]);
        assert_eq!(&frame[4..], b"going away");
    }
    // One answers (masked, with a mask of zeroes), the other does not.
    let answer = [0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];
    clients[0].write_all(&answer).await.unwrap();
    assert_eq!(rest(&mut clients[0]).await, "");
    assert_eq!(rest(&mut clients[1]).await, "");
    assert_eq!(serving.end().await.services()[0].cut, 1);
}

#[tokio::test]
async fn s39_endless_events_end_between_two_of_them() {
    let router = Router::new().route(
        "/",
        get(async || {
            Sse::new(stream::unfold(0, async |count| {
                sleep(ms(5)).await;
                let event = Ok::<_, std::convert::Infallible>(Event::default().data("tick"));
                Some((event, count + 1))
            }))
        }),
    );
    let serving = Serving::start(builder(60_000), router).await;
    let mut client = serving.ask("/").await;
    until_contains(&mut client, "tick").await;
    serving.handle.stop();
    // The last chunk: the stream has ended, and was not cut.
    let last = rest(&mut client).await;
    assert!(last.ends_with("0\r\n\r\n"), "{last}");
    assert_eq!(serving.end().await.services()[0].cut, 0);
}

#[tokio::test]
async fn s41_handlers_hear_of_the_stop_before_they_are_waited_for() {
    let router = Router::new().route(
        "/",
        get(async |stopping: Stopping| {
            stopping.token().cancelled().await;
            "ask elsewhere"
        }),
    );
    let serving = Serving::start(builder(60_000), router).await;
    let mut client = serving.ask("/").await;
    sleep(ms(50)).await;
    serving.handle.stop();
    assert!(rest(&mut client).await.ends_with("ask elsewhere"));
    let report = serving.end().await;
    assert!(report.total() < ms(5000), "{:?}", report.total());
}

#[tokio::test]
async fn s18_s11_the_drain_serves_new_connections_and_is_not_ready() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut group = builder(60_000).drain(ms(600)).build().unwrap();
    let (bound, admin) = tokio::sync::oneshot::channel();
    let service = Admin::bind("127.0.0.1:0")
        .metrics(|| "orders_total 7\n".into())
        .on_bound(move |address| bound.send(address).unwrap());
    group.add("admin", service).unwrap();
    let server = HttpServer::from_listener(listener, slow(ms(0)));
    group.add_level(Member::new("api", server)).unwrap();
    let handle = group.handle();
    let run = tokio::spawn(group.run());
    let admin = admin.await.unwrap();
    let get = async |address: SocketAddr, path: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        ask(&mut stream, path, "Connection: close\r\n").await;
        rest(&mut stream).await
    };
    while !handle.is_ready() {
        sleep(ms(1)).await;
    }
    assert!(get(admin, "/readyz").await.starts_with("HTTP/1.1 200"));
    assert!(get(admin, "/healthz").await.starts_with("HTTP/1.1 200"));
    let metrics = get(admin, "/metrics").await;
    assert!(metrics.contains("wheelhouse_group_ready 1\n"), "{metrics}");
    assert!(
        metrics.contains("{service=\"api\",state=\"ready\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.ends_with("orders_total 7\n"), "{metrics}");
    let services = get(admin, "/services").await;
    assert!(services.contains("\"name\":\"api\""), "{services}");

    let begun = Instant::now();
    handle.stop();
    while begun.elapsed() < ms(300) {
        assert!(get(admin, "/readyz").await.starts_with("HTTP/1.1 503"));
        assert!(get(address, "/").await.ends_with("done"));
        sleep(ms(20)).await;
    }
    let report = run.await.unwrap();
    assert_eq!(report.exit_code(), 0);
    assert!(report.total() >= ms(600), "{:?}", report.total());
}

/// The server is above its client, and so is told to end while the client still waits for it.
#[tokio::test]
async fn s44_a_request_in_flight_between_two_levels_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut group = builder(60_000).build().unwrap();
    let (answered, answer) = tokio::sync::oneshot::channel();
    let client = async move |ctx: ServiceContext| {
        ctx.ready();
        let group = ctx.group();
        while !group.is_ready() {
            sleep(ms(1)).await;
        }
        let mut stream = TcpStream::connect(address).await?;
        ask(&mut stream, "/", "").await;
        sleep(ms(100)).await;
        group.stop();
        answered.send(rest(&mut stream).await).unwrap();
        ctx.stopping().await;
        Ok(())
    };
    group.add("client", client).unwrap();
    let server = HttpServer::from_listener(listener, slow(ms(400)));
    group.add("server", server).unwrap();
    let report = group.run().await;
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("done"), "{answer}");
    assert_eq!(report.outcome(), Outcome::Stopped);
    let stopped = |name: &str| report.service(name).unwrap().stopped_after.unwrap();
    assert!(stopped("server") <= stopped("client"));
}

#[tokio::test]
async fn a_port_in_use_is_a_failed_start() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut group = builder(1000).build().unwrap();
    group
        .add("api", HttpServer::bind(address.clone(), Router::new()))
        .unwrap();
    let report = group.run().await;
    assert_eq!(report.exit_code(), 1);
    let cause = report.failed()[0].1.to_string();
    assert!(
        cause.starts_with(&format!("cannot listen at {address}: ")),
        "{cause}"
    );
}

/// A request that the server has read is answered; so is one that waits in the backlog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_accepted_request_is_lost_under_load() {
    let begun = Arc::new(AtomicU64::new(0));
    let counted = begun.clone();
    let router = Router::new().route(
        "/",
        get(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            async {
                sleep(ms(50)).await;
                "done"
            }
        }),
    );
    let serving = Serving::start(builder(60_000), router).await;
    let address = serving.address;
    let clients: Vec<_> = (0..64)
        .map(|_| {
            tokio::spawn(async move {
                let mut answered = 0;
                while let Ok(mut stream) = TcpStream::connect(address).await {
                    let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                    if stream.write_all(request).await.is_err() {
                        break;
                    }
                    match rest(&mut stream).await {
                        answer if answer.ends_with("done") => answered += 1,
                        // Connected, but the server never got to see it.
                        answer if answer.is_empty() => break,
                        answer => panic!("half an answer: {answer}"),
                    }
                }
                answered
            })
        })
        .collect();
    sleep(ms(400)).await;
    serving.handle.stop();
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    let report = serving.end().await;
    assert_eq!((report.exit_code(), report.services()[0].cut), (0, 0));
    assert_eq!(answered, begun.load(Ordering::SeqCst));
    assert!(answered >= 64, "{answered}");
}

#[tokio::test]
async fn what_waits_in_the_backlog_is_served() {
    let serving = Serving::start(builder(60_000), slow(ms(20))).await;
    // On a runtime of one thread nobody accepts between these lines.
    let mut clients: Vec<_> = (0..50)
        .map(|_| std::net::TcpStream::connect(serving.address).unwrap())
        .collect();
    serving.handle.stop();
    for client in &mut clients {
        use std::io::Write as _;
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
    }
    for client in clients {
        client.set_nonblocking(true).unwrap();
        let mut client = TcpStream::from_std(client).unwrap();
        assert!(rest(&mut client).await.ends_with("done"));
    }
    assert_eq!(serving.end().await.exit_code(), 0);
}

/// S34 and S43: an endless stream over gRPC is cut at the deadline; S42: it has heard GOAWAY before.
#[tokio::test]
async fn s34_s42_s43_an_endless_grpc_stream_is_told_and_then_cut() {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let serving = Serving::start_with(builder(900), |listener| {
        HttpServer::grpc_from_listener(listener, tonic::service::Routes::new(health))
    })
    .await;
    let endpoint = format!("http://{}", serving.address);
    let channel = tonic::transport::Endpoint::new(endpoint)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = HealthClient::new(channel);
    let request = HealthCheckRequest {
        service: String::new(),
    };
    let mut watch = client.watch(request.clone()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    serving.handle.stop();
    sleep(ms(200)).await;
    // The connection takes no new streams, and the socket no new connections.
    assert!(client.check(request).await.is_err());
    // The stream goes on until it is cut.
    let begun = Instant::now();
    let end = timeout(ms(20_000), watch.next()).await.unwrap();
    assert!(matches!(end, Some(Err(_)) | None), "{end:?}");
    assert!(begun.elapsed() > ms(100), "{:?}", begun.elapsed());
    let report = serving.end().await;
    let service = &report.services()[0];
    assert_eq!((service.state, service.cut), (Some(State::Exited), 1));
}

#[tokio::test]
async fn a_grpc_connection_without_calls_closes_at_once() {
    let (_reporter, health) = tonic_health::server::health_reporter();
    let serving = Serving::start_with(builder(60_000), |listener| {
        HttpServer::grpc_from_listener(listener, tonic::service::Routes::new(health))
    })
    .await;
    let endpoint = format!("http://{}", serving.address);
    let channel = tonic::transport::Endpoint::new(endpoint)
        .unwrap()
        .connect()
        .await
        .unwrap();
    let mut client = HealthClient::new(channel);
    let request = HealthCheckRequest {
        service: String::new(),
    };
    client.check(request).await.unwrap();
    serving.handle.stop();
    let report = serving.end().await;
    assert!(report.total() < ms(5000), "{:?}", report.total());
    assert_eq!(report.services()[0].cut, 0);
}
