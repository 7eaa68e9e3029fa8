//! The life of one connection, and all of them.
//!
//! At a stop, a connection that is idle is given a moment before it is told: a request that the client
//! sent in time may be in the kernel, where nobody has read it. One whose client has only just
//! connected is given until it is [`FRESH`] old.
//!
//! Once it is told, a connection ends by itself, unless its client does not play along: it never ends the
//! head of a request, or does not answer the ping by which HTTP/2 learns that GOAWAY has arrived. One that
//! never had a request is closed when nothing has happened for [`QUIET`], others at the deadline.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::body::Answer;
use super::io::{Connection, Traffic};
use super::socket::Stopping;
use crate::context::BusyGuard;
use crate::{ServiceContext, trace};

/// How long what has been sent takes to be read.
const MOMENT: Duration = Duration::from_millis(10);

/// How long a connection may do nothing that has been told to end, and never had a request.
const QUIET: Duration = Duration::from_secs(2);

/// How long after it has connected a client may begin its first request.
const FRESH: Duration = Duration::from_millis(200);

pub(super) struct Connections {
    router: Router,
    ctx: ServiceContext,
    builder: Builder<TokioExecutor>,
    open: TaskTracker,
    cut: CancellationToken,
}

impl Connections {
    pub(super) fn new(router: Router, ctx: ServiceContext) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        // A client that has nothing more to say may still wait for its answer.
        builder.http1().timer(TokioTimer::new()).half_close(true);
        builder.http2().timer(TokioTimer::new());
        let open = TaskTracker::new();
        // A closed tracker still hands out tokens, and can be waited for.
        open.close();
        Connections {
            router,
            ctx,
            builder,
            open,
            cut: CancellationToken::new(),
        }
    }

    /// Serves a connection as a task of its own.
    pub(super) fn serve(&self, stream: TcpStream) {
        // It may be gone already; then the first read says so.
        let _ = stream.set_nodelay(true);
        let life = Life {
            accepted: Instant::now(),
            traffic: Arc::new(Traffic::default()),
            requests: Arc::new(Requests::default()),
            ctx: self.ctx.clone(),
            cut: self.cut.clone(),
        };
        let io = Connection::new(
            stream,
            self.cut.clone(),
            life.traffic.clone(),
            self.open.token(),
        );
        let (builder, router) = (self.builder.clone(), self.router.clone());
        let name = self.ctx.name().to_owned();
        tokio::spawn(
            async move { trace::connection(&name, life.serve(&builder, router, io)).await },
        );
    }

    /// Resolves at a moment when no connection is open.
    pub(super) async fn all_closed(&self) {
        self.open.wait().await;
    }

    /// Cuts what is open, and says how many.
    pub(super) fn cut(&self) -> u64 {
        let open = self.open.len() as u64;
        self.cut.cancel();
        open
    }
}

impl Drop for Connections {
    /// Nothing outlives the service, also when its future is dropped.
    fn drop(&mut self) {
        self.cut.cancel();
    }
}

struct Life {
    accepted: Instant,
    traffic: Arc<Traffic>,
    requests: Arc<Requests>,
    ctx: ServiceContext,
    cut: CancellationToken,
}

impl Life {
    async fn serve(self, builder: &Builder<TokioExecutor>, router: Router, io: Connection) {
        let (requests, ctx) = (self.requests.clone(), self.ctx.clone());
        let service = hyper::service::service_fn(move |request| {
            answer(
                router.clone(),
                request.map(axum::body::Body::new),
                &requests,
                &ctx,
            )
        });
        let mut connection =
            pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), service));
        // Its errors are those of the client or of the network: they concern nobody else.
        tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            () = self.ctx.stopping() => {}
            () = self.cut.cancelled() => return,
        }
        if self.requests.in_flight() == 0 {
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                () = self.requests.next() => {}
                () = sleep_until(self.patience()) => {}
                () = self.cut.cancelled() => return,
            }
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            _ = connection => {}
            () = self.cut.cancelled() => {}
            () = self.quiet() => {}
        }
    }

    /// Resolves when nothing has happened for a while on a connection that never had a request. What is
    /// read is no sign of life: of a request that counts its head would have ended. Where there was one,
    /// some of its answer may wait for the client's window, which only HTTP/2 itself knows.
    async fn quiet(&self) {
        loop {
            let before = self.traffic.written();
            sleep(QUIET).await;
            let idle = !self.requests.any() && !self.traffic.is_blocked();
            if idle && self.traffic.written() == before {
                return;
            }
        }
    }

    /// Until when an idle connection may begin a request.
    fn patience(&self) -> Instant {
        let moment = Instant::now() + MOMENT;
        match self.requests.any() {
            true => moment,
            false => moment.max(self.accepted + FRESH),
        }
    }
}

fn answer(
    router: Router,
    mut request: Request,
    requests: &Arc<Requests>,
    ctx: &ServiceContext,
) -> impl Future<Output = Result<Response<Answer>, Infallible>> + use<> {
    let in_flight = InFlight::new(requests.clone(), ctx.busy());
    let stopping = Stopping(ctx.stopping_token().clone());
    request.extensions_mut().insert(stopping.clone());
    async move {
        let response = router.oneshot(request).await?;
        let streams_events = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|it| it.as_bytes().starts_with(b"text/event-stream"));
        let stopping = streams_events.then(|| stopping.0.cancelled_owned());
        Ok(response.map(|body| Answer::new(body, stopping, in_flight)))
    }
}

/// The requests of one connection.
#[derive(Default)]
struct Requests {
    in_flight: AtomicU64,
    /// How many there have been.
    all: AtomicU64,
    begun: Notify,
}

impl Requests {
    /// Relaxed, here and below: the counts are written and read by the connection's task, and bodies
    /// that end elsewhere only lower them.
    fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Whether there has been one. Relaxed, as above.
    fn any(&self) -> bool {
        self.all.load(Ordering::Relaxed) > 0
    }

    async fn next(&self) {
        self.begun.notified().await;
        // A permit may be left of a request of before.
        if self.in_flight() == 0 {
            self.begun.notified().await;
        }
    }
}

/// A request that has been read and whose answer is not sent.
pub(super) struct InFlight {
    requests: Arc<Requests>,
    _busy: BusyGuard,
}

impl InFlight {
    fn new(requests: Arc<Requests>, busy: BusyGuard) -> Self {
        requests.in_flight.fetch_add(1, Ordering::Relaxed);
        requests.all.fetch_add(1, Ordering::Relaxed);
        requests.begun.notify_one();
        InFlight {
            requests,
            _busy: busy,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.requests.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
