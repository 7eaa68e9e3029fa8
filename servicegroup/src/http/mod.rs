//! HTTP and gRPC servers that own their connections.
//!
//! `axum::serve` and tonic's server wait for their connections without an end, and know nothing of
//! upgraded ones. This one accepts itself, so that at a stop:
//!
//! 1. what waits in the listening socket's backlog is accepted and served, then the socket closes;
//! 2. connections without a request close at once, the others after their answer, which says
//!    `Connection: close` over HTTP/1; HTTP/2 connections get GOAWAY; a client that does not play along
//!    and never had a request has two seconds;
//! 3. server-sent events end after the present event, and a [`Socket`] says goodbye;
//! 4. what is there at the deadline is cut, counted and reported.

mod body;
mod connection;
mod io;
mod socket;

use std::fmt;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{Error, Service, ServiceContext};

use connection::Connections;
pub use socket::{Socket, Stopping, upgrade};

/// What an adapter leaves of its time to end its tasks after it has cut what remains: a twentieth, at
/// most this.
const MARGIN: Duration = Duration::from_millis(100);

/// As many connections as a socket's backlog holds. Another process may share the socket, so that
/// there would be no end of them.
const BACKLOG: usize = 4096;

/// How long to wait when the system has no file descriptors left.
const EXHAUSTED: Duration = Duration::from_millis(20);

/// How often to try again at a stop.
const TRIES: u32 = 50;

/// A service that serves a `Router` over HTTP/1 and HTTP/2, WebSockets and server-sent events
/// included.
///
/// Each request is [busy](ServiceContext::busy) until its answer's body is sent. Handlers hear of the
/// stop through [`Stopping`]. Over HTTP/1 a client may close its half of the connection and is answered
/// all the same; so a handler goes on when its client has left, until it writes.
///
/// ```
/// use axum::{Router, routing::get};
/// use wheelhouse_servicegroup::http::HttpServer;
/// use wheelhouse_servicegroup::ServiceGroup;
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let router = Router::new().route("/", get(async || "good morning"));
/// let mut group = ServiceGroup::builder().build()?;
/// group.add("api", HttpServer::bind("127.0.0.1:0", router))?;
/// # Ok(()) }
/// ```
#[must_use = "a server does nothing until it runs in a group"]
pub struct HttpServer {
    source: Source,
    router: Router,
    on_bound: Option<Box<dyn FnOnce(SocketAddr) + Send>>,
}

/// Where a server listens.
#[derive(Debug)]
pub(crate) enum Source {
    Address(String),
    Listener(StdListener),
}

impl HttpServer {
    /// A server that binds `address`, `host:port`, when it is started. That it cannot is a failed
    /// start.
    pub fn bind(address: impl Into<String>, router: Router) -> Self {
        HttpServer::with(Source::Address(address.into()), router)
    }

    /// A server on a socket that listens already: an inherited one, say.
    pub fn from_listener(listener: StdListener, router: Router) -> Self {
        HttpServer::with(Source::Listener(listener), router)
    }

    /// The services of a gRPC server. HTTP/2 is told from HTTP/1 by its first bytes.
    #[cfg(feature = "tonic")]
    pub fn bind_grpc(address: impl Into<String>, routes: tonic::service::Routes) -> Self {
        HttpServer::bind(address, routes.prepare().into_axum_router())
    }

    /// The same on a socket that listens already.
    #[cfg(feature = "tonic")]
    pub fn grpc_from_listener(listener: StdListener, routes: tonic::service::Routes) -> Self {
        HttpServer::from_listener(listener, routes.prepare().into_axum_router())
    }

    pub(crate) fn with(source: Source, router: Router) -> Self {
        HttpServer {
            source,
            router,
            on_bound: None,
        }
    }

    /// Calls `hook` with the address once the socket listens: for port 0.
    pub fn on_bound(mut self, hook: impl FnOnce(SocketAddr) + Send + 'static) -> Self {
        self.on_bound = Some(Box::new(hook));
        self
    }

    async fn listen(source: Source) -> Result<TcpListener, Error> {
        match source {
            Source::Address(address) => TcpListener::bind(&address)
                .await
                .map_err(|error| format!("cannot listen at {address}: {error}").into()),
            Source::Listener(listener) => {
                listener.set_nonblocking(true)?;
                Ok(TcpListener::from_std(listener)?)
            }
        }
    }
}

impl Service for HttpServer {
    async fn run(self, ctx: ServiceContext) -> Result<(), Error> {
        let listener = tokio::select! {
            biased;
            listener = HttpServer::listen(self.source) => listener?,
            // A name may take its time to be resolved.
            () = ctx.stopping() => return Ok(()),
        };
        if let Some(hook) = self.on_bound {
            hook(listener.local_addr()?);
        }
        let connections = Connections::new(self.router, ctx.clone());
        ctx.ready();
        accept(&listener, &connections, &ctx).await;

        let cut_at = cut_at(&ctx);
        accept_backlog(listener, &connections, cut_at).await?;

        tokio::select! {
            biased;
            () = connections.all_closed() => {}
            () = sleep_until(cut_at) => {
                ctx.cut(connections.cut());
                // Tasks that hold an upgraded connection see it at their next read or write.
                tokio::select! {
                    () = connections.all_closed() => {}
                    () = sleep(MARGIN / 2) => {}
                }
            }
        }
        Ok(())
    }
}

/// Accepts until it is time to stop. Errors are those of single connections, or pass.
async fn accept(listener: &TcpListener, connections: &Connections, ctx: &ServiceContext) {
    loop {
        tokio::select! {
            biased;
            () = ctx.stopping() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => connections.serve(stream),
                Err(error) if is_of_one_connection(&error) => {}
                Err(_) => sleep(EXHAUSTED).await,
            },
        }
    }
}

/// Accepts what waits in the socket's backlog, and closes the socket.
async fn accept_backlog(
    listener: TcpListener,
    connections: &Connections,
    until: Instant,
) -> Result<(), Error> {
    // Off the reactor, so that the system itself says when nobody is left.
    let listener = listener.into_std()?;
    let mut tries = TRIES;
    for _ in 0..BACKLOG {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                connections.serve(TcpStream::from_std(stream)?);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if is_of_one_connection(&error) => {}
            // Connections that are idle make room for those that wait. If they are another service's, they
            // do not, and whether anybody waits is not to be known.
            Err(_) if tries > 0 && Instant::now() < until => {
                tries -= 1;
                sleep(EXHAUSTED).await;
            }
            Err(_) => break,
        }
    }
    Ok(())
}

fn is_of_one_connection(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::Interrupted
    )
}

/// When what remains is cut, so that the service itself still ends in time.
pub(crate) fn cut_at(ctx: &ServiceContext) -> Instant {
    let now = Instant::now();
    let deadline = ctx.deadline().unwrap_or(now);
    let left = deadline.saturating_duration_since(now);
    deadline - (left / 20).min(MARGIN)
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpServer").finish_non_exhaustive()
    }
}
