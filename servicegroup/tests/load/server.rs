//! The server, from inside and from outside.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::response::Sse;
use axum::response::sse::Event;
use axum::routing::get;
use command_fds::{CommandFdExt as _, FdMapping};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use wheelhouse_servicegroup::http::{HttpServer, Socket, Stopping, upgrade};
use wheelhouse_servicegroup::{
    Admin, Member, Preset, ServiceContext, ServiceGroup, inherited_listener,
};

/// How long each answer takes.
pub(crate) const WORK: Duration = Duration::from_millis(50);

/// Bytes of the large answer: many times what HTTP/2 sends without being asked for more.
pub(crate) const LARGE: usize = 1 << 20;

/// Set in the process that is the server: drain and total in milliseconds, and a word.
const AS_SERVER: &str = "WHEELHOUSE_AS_SERVER";

/// What the server is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) drain: Duration,
    pub(crate) total: Duration,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sound,
    /// One of its services never ends.
    Stuck,
    /// It has few file descriptors.
    Poor,
}

/// How many file descriptors a poor server has.
pub(crate) const FEW: u64 = 64;

// --- Inside -----------------------------------------------------------------

/// Serves and exits, if this process is to be the server.
pub(crate) fn serve_if_asked() {
    let Ok(shape) = std::env::var(AS_SERVER) else {
        return;
    };
    let mut words = shape.split(' ');
    let mut millis = || {
        let number = words.next().and_then(|it| it.parse().ok());
        Duration::from_millis(number.expect("a number"))
    };
    let (drain, total) = (millis(), millis());
    let kind = words.next();
    if kind == Some("Poor") {
        setrlimit(Resource::RLIMIT_NOFILE, FEW, FEW).expect("fewer than there were");
    }
    let mut group = ServiceGroup::builder()
        .preset(Preset::Systemd)
        .drain(drain)
        .total(total)
        .build()
        .expect("it fits");

    let begun = Arc::new(AtomicU64::new(0));
    let (admin, http, grpc) = (listener(0), listener(1), listener(2));
    let addresses = [&admin, &http, &grpc].map(|it| it.local_addr().expect("an address"));
    let mut add = |member: Member| _ = group.add_level(member).expect("it can be added");
    add(Member::new("admin", Admin::from_listener(admin)));
    let api = HttpServer::from_listener(http, router(begun.clone()));
    add(Member::new("api", api));
    let health = HealthServer::new(Slow(begun.clone()));
    let rpc = HttpServer::grpc_from_listener(grpc, tonic::service::Routes::new(health));
    add(Member::new("rpc", rpc));
    if kind == Some("Stuck") {
        let stuck = async |ctx: ServiceContext| {
            ctx.ready();
            std::future::pending().await
        };
        add(Member::new("stuck", stuck));
    }
    let last = async move |ctx: ServiceContext| {
        ctx.ready();
        while !ctx.group().is_ready() && !ctx.draining_token().is_cancelled() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        println!("{} {} {}", addresses[0], addresses[1], addresses[2]);
        ctx.stopping().await;
        Ok(())
    };
    add(Member::new("last", last));
    let report = group.run_blocking();
    // A count of heads that were read: each handler raises it first of all.
    println!("{}", begun.load(Ordering::SeqCst));
    std::process::exit(report.exit_code())
}

/// The socket that was handed over, or a new one.
fn listener(index: usize) -> TcpListener {
    let inherited = inherited_listener(index).expect("a socket");
    inherited.unwrap_or_else(|| TcpListener::bind("127.0.0.1:0").expect("a port"))
}

fn router(begun: Arc<AtomicU64>) -> Router {
    let endless = || {
        stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((Ok::<_, std::convert::Infallible>(Bytes::from("tick")), ()))
        })
    };
    Router::new()
        .route(
            "/",
            get(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                async {
                    tokio::time::sleep(WORK).await;
                    "done"
                }
            }),
        )
        .route(
            "/events",
            get(async move || {
                Sse::new(endless().map(|_| Ok::<_, axum::Error>(Event::default().data("tick"))))
            }),
        )
        .route("/large", get(async || vec![b'x'; LARGE]))
        .route("/endless", get(async move || Body::from_stream(endless())))
        .route(
            "/socket",
            get(async |request: WebSocketUpgrade, stopping: Stopping| {
                upgrade(request, stopping, async |mut socket: Socket| {
                    while let Some(Ok(_)) = socket.recv().await {}
                })
            }),
        )
}

struct Slow(Arc<AtomicU64>);

fn serving() -> HealthCheckResponse {
    HealthCheckResponse {
        status: ServingStatus::Serving.into(),
    }
}

#[tonic::async_trait]
impl Health for Slow {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(WORK).await;
        Ok(Response::new(serving()))
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let first = stream::iter([Ok(serving())]);
        Ok(Response::new(first.chain(stream::pending()).boxed()))
    }
}

// --- Outside ----------------------------------------------------------------

/// Sockets that one server after the other serves on.
pub(crate) struct Sockets([TcpListener; 3]);

impl Sockets {
    pub(crate) fn new() -> Self {
        Sockets([0; 3].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")))
    }
}

/// A server that is ready, killed when a test fails.
pub(crate) struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) admin: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) grpc: SocketAddr,
    pub(crate) signalled: Instant,
}

/// How a server ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// From the last signal on.
    pub(crate) took: Duration,
    /// Requests that it has accepted, unless the process was ended by force.
    pub(crate) begun: Option<u64>,
    pub(crate) stderr: String,
}

impl Server {
    pub(crate) fn start(shape: Shape) -> Self {
        Server::spawn(shape, None)
    }

    pub(crate) fn start_on(sockets: &Sockets, shape: Shape) -> Self {
        Server::spawn(shape, Some(sockets))
    }

    fn spawn(shape: Shape, sockets: Option<&Sockets>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        let (drain, total) = (shape.drain.as_millis(), shape.total.as_millis());
        let kind = format!("{:?}", shape.kind);
        command
            .env(AS_SERVER, format!("{drain} {total} {kind}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(Sockets(sockets)) = sockets {
            let mappings = (3..).zip(sockets).map(|(child_fd, socket)| FdMapping {
                parent_fd: OwnedFd::from(socket.try_clone().expect("a copy")),
                child_fd,
            });
            command
                .env("LISTEN_FDS", sockets.len().to_string())
                .fd_mappings(mappings.collect())
                .expect("numbers that differ");
        }
        let mut child = command.spawn().expect("it can be called again");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let mut addresses = line
            .split_whitespace()
            .map(|it| it.parse().expect("an address"));
        let mut next = || addresses.next().expect("an address");
        Server {
            child,
            stdout,
            admin: next(),
            http: next(),
            grpc: next(),
            signalled: Instant::now(),
        }
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let id = i32::try_from(self.child.id()).expect("a process number");
        kill(Pid::from_raw(id), signal).expect("it lives");
        self.signalled = Instant::now();
    }

    /// Its end. More than 20 seconds after the last signal are a failure.
    pub(crate) fn end(mut self) -> End {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            let waited = self.signalled.elapsed();
            assert!(waited < Duration::from_secs(20), "it hangs");
            std::thread::sleep(Duration::from_millis(1));
        };
        let took = self.signalled.elapsed();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("text");
        let mut stderr = String::new();
        let mut pipe = self.child.stderr.take().expect("a pipe");
        pipe.read_to_string(&mut stderr).expect("text");
        End {
            status,
            took,
            begun: rest.trim().parse().ok(),
            stderr,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, or a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
