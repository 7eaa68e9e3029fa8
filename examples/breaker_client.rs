//! A client behind one circuit breaker for each host, while one of two hosts is down for a while.
//!
//! ```console
//! cargo run --release --example breaker_client
//! ```
//!
//! Two servers run in this process. Both are asked a hundred times a second for five seconds; one of
//! them answers 503 in the second and third. Each line says what became of the calls of half a second
//! and how many of them reached the server. The breaker of the host that is down opens after some
//! failures, lets a probe through every second, and closes over a ramp; the other host does not
//! notice.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::time::{MissedTickBehavior, interval};
use tower::{Service, ServiceBuilder, ServiceExt};
use wheelhouse::resilience::tower::{ByHost, HttpStatus, KeyedLayer, LayerError};
use wheelhouse::resilience::{Breaker, Registry, Rejected, Transition};

const HALF_SECONDS: u32 = 10;
const CALLS: u32 = 50;
/// The half seconds in which the flaky host is down.
const DOWN: std::ops::Range<u32> = 2..6;

/// A server that answers 503 when it is told to, and counts what reaches it.
struct Host {
    address: SocketAddr,
    is_down: AtomicBool,
    reached: AtomicU32,
}

/// What became of calls.
#[derive(Default)]
struct Tally {
    ok: u32,
    failed: u32,
    rejected: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let steady = Host::start().await?;
    let flaky = Host::start().await?;
    println!(
        "steady host at {}, flaky host at {}",
        steady.address, flaky.address
    );

    let registry = Registry::builder()
        .default_breaker(Breaker::builder().on_transition(report))
        .build()?;
    // Judged by the status, and by whether the body comes whole.
    let client = ServiceBuilder::new()
        .layer(
            KeyedLayer::by(registry.clone(), ByHost)
                .classify(HttpStatus)
                .until_body_ends(),
        )
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    let mut ticks = interval(Duration::from_millis(500) / CALLS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut of_steady, mut of_flaky) = (Tally::default(), Tally::default());
    for half_second in 0..HALF_SECONDS {
        // Relaxed, all in this file: the server may learn it a moment later.
        flaky
            .is_down
            .store(DOWN.contains(&half_second), Ordering::Relaxed);
        let (mut now_steady, mut now_flaky) = (Tally::default(), Tally::default());
        for _ in 0..CALLS {
            ticks.tick().await;
            now_steady.count(call(client.clone(), &steady).await);
            now_flaky.count(call(client.clone(), &flaky).await);
        }
        let reached = flaky.reached.swap(0, Ordering::Relaxed);
        println!(
            "{:>4.1} s  steady: {now_steady}   flaky: {now_flaky}, {reached:>2} reached it",
            f64::from(half_second) / 2.0,
        );
        of_steady.add(&now_steady);
        of_flaky.add(&now_flaky);
    }

    println!("steady: {of_steady}");
    println!("flaky:  {of_flaky}");
    for (name, stats) in registry.all() {
        println!(
            "{name}: {} transitions, now {:?}",
            stats.transitions, stats.state
        );
    }
    if of_steady.ok != HALF_SECONDS * CALLS {
        return Err("a breaker has rejected calls to the host that was always up".into());
    }
    if of_flaky.rejected == 0 || of_flaky.failed > 30 {
        return Err("the breaker of the flaky host did not open in time".into());
    }
    Ok(())
}

fn report(transition: &Transition) {
    println!(
        "        {}: {:?} -> {:?} ({:?})",
        transition.name, transition.from, transition.to, transition.cause
    );
}

/// Asks a host, and reads the answer to its end.
async fn call<S, B, E>(client: S, host: &Host) -> Result<StatusCode, LayerError<Rejected, ()>>
where
    S: Service<Request<Empty<Bytes>>, Response = Response<B>, Error = LayerError<Rejected, E>>,
    B: hyper::body::Body,
{
    let request = Request::get(format!("http://{}/", host.address))
        .body(Empty::new())
        .expect("an address makes a URI");
    match client.oneshot(request).await {
        Ok(response) => {
            let status = response.status();
            let body = response.into_body().collect().await;
            body.map(|_| status).map_err(|_| LayerError::Failed(()))
        }
        Err(LayerError::Rejected(rejected)) => Err(LayerError::Rejected(rejected)),
        Err(_) => Err(LayerError::Failed(())),
    }
}

impl Host {
    async fn start() -> Result<Arc<Host>, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let host = Arc::new(Host {
            address: listener.local_addr()?,
            is_down: AtomicBool::new(false),
            reached: AtomicU32::new(0),
        });
        tokio::spawn(host.clone().serve(listener));
        Ok(host)
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let host = self.clone();
            let service = service_fn(move |_: Request<Incoming>| {
                let answer = host.answer();
                async move { Ok::<_, Infallible>(answer) }
            });
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // A client that goes away is no concern of the server's.
                let _ = connection.await;
            });
        }
    }

    fn answer(&self) -> Response<Full<Bytes>> {
        self.reached.fetch_add(1, Ordering::Relaxed);
        let (status, text) = match self.is_down.load(Ordering::Relaxed) {
            true => (StatusCode::SERVICE_UNAVAILABLE, "down\n"),
            false => (StatusCode::OK, "here you are\n"),
        };
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    }
}

impl Tally {
    fn count(&mut self, result: Result<StatusCode, LayerError<Rejected, ()>>) {
        match result {
            Ok(status) if status.is_success() => self.ok += 1,
            Err(LayerError::Rejected(_)) => self.rejected += 1,
            _ => self.failed += 1,
        }
    }

    fn add(&mut self, other: &Tally) {
        self.ok += other.ok;
        self.failed += other.failed;
        self.rejected += other.rejected;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally {
            ok,
            failed,
            rejected,
        } = self;
        write!(f, "{ok:>3} ok, {failed:>2} failed, {rejected:>3} rejected")
    }
}
