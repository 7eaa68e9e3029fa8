//! An HTTP API, a gRPC service and a message consumer in one process, on a store that closes last.
//!
//! ```console
//! cargo run --release --example api_rpc_mq
//! ```
//!
//! The API takes orders, writes them to the store and publishes them; the consumer ships them; over gRPC
//! others ask whether the shop is open. A client of its own drives all three for a second (`--for 10s`)
//! and then sends the process a SIGTERM, as a supervisor would. The services end in reverse: the client
//! before the API, the API before the consumer that it feeds, the store last. No order is lost: each is
//! shipped, or still in the queue and named.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use wheelhouse::servicegroup::consume::{Consume, Queue};
use wheelhouse::servicegroup::http::HttpServer;
use wheelhouse::servicegroup::{
    Error as Failure, Member, Preset, ServiceContext, ServiceGroup, start_stop,
};

/// What gRPC clients know the shop by.
const SHOP: &str = "shop";

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(code) => std::process::exit(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Runs until the client has had the process stopped; the exit code of the group.
fn run() -> Result<i32, Box<dyn Error>> {
    let driven = driven_for(std::env::args().skip(1))?;
    let (http, grpc) = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let (api_at, rpc_at) = (http.local_addr()?, grpc.local_addr()?);
    let (store, orders) = (Store::default(), Queue::new());

    // What its services need is taken before them, and let go after them.
    let mut group = ServiceGroup::builder()
        .preset(Preset::Systemd)
        .drain(Duration::from_millis(200))
        .total(Duration::from_secs(10))
        .build()?;
    let (opened, closed) = (store.clone(), store.clone());
    group.add(
        "store",
        start_stop(async move || opened.open(), async move |()| closed.close()),
    )?;
    group.add_level([
        Member::new("mq", consumer(&store, &orders)),
        Member::new("rpc", rpc(grpc)),
    ])?;
    let shop = Shop {
        store: store.clone(),
        orders: orders.clone(),
    };
    let router = Router::new().route("/orders", post(order)).with_state(shop);
    group.add("api", HttpServer::from_listener(http, router))?;
    group.add("client", async move |ctx: ServiceContext| {
        drive(ctx, api_at, rpc_at, driven).await
    })?;

    let report = group.run_blocking();
    let stats = orders.stats();
    println!(
        "orders={} shipped={} pending={}",
        stats.published, stats.acknowledged, stats.pending
    );
    for service in report.services() {
        println!(
            "{:<7} level {}, ready after {:?}, ended {:?} after the signal",
            service.name,
            service.level,
            service.ready_after.unwrap_or_default(),
            service.stopped_after.unwrap_or_default(),
        );
    }
    println!("{report}");
    Ok(report.exit_code())
}

fn driven_for(mut arguments: impl Iterator<Item = String>) -> Result<Duration, Box<dyn Error>> {
    match (
        arguments.next().as_deref(),
        arguments.next(),
        arguments.next(),
    ) {
        (None, ..) => Ok(Duration::from_secs(1)),
        (Some("--for"), Some(time), None) => {
            Ok(humantime::parse_duration(&time)
                .map_err(|error| format!("--for {time}: {error}"))?)
        }
        _ => Err("usage: api_rpc_mq [--for DURATION]".into()),
    }
}

// --- The store --------------------------------------------------------------

/// Orders, and whether they are shipped. Refuses whoever comes before it is open or after it is closed.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Option<BTreeMap<u64, bool>>>>);

impl Store {
    fn open(&self) -> Result<(), Failure> {
        *self.0.lock().map_err(|_| "the store is broken")? = Some(BTreeMap::new());
        Ok(())
    }

    fn close(&self) -> Result<(), Failure> {
        let orders = self.0.lock().map_err(|_| "the store is broken")?.take();
        let orders = orders.ok_or("the store is closed already")?;
        let shipped = orders.values().filter(|&&shipped| shipped).count();
        println!("store closed: {} orders, {shipped} shipped", orders.len());
        Ok(())
    }

    /// A new order's number.
    fn place(&self) -> Result<u64, Failure> {
        let mut orders = self.0.lock().map_err(|_| "the store is broken")?;
        let orders = orders.as_mut().ok_or("the store is closed")?;
        let number = orders.len() as u64 + 1;
        orders.insert(number, false);
        Ok(number)
    }

    fn ship(&self, order: u64) -> Result<(), Failure> {
        let mut orders = self.0.lock().map_err(|_| "the store is broken")?;
        let orders = orders.as_mut().ok_or("the store is closed")?;
        orders.insert(order, true);
        Ok(())
    }
}

// --- What is on it ----------------------------------------------------------

#[derive(Clone)]
struct Shop {
    store: Store,
    orders: Queue<u64>,
}

/// 202 once the order is stored and on its way.
async fn order(State(shop): State<Shop>) -> StatusCode {
    match shop.store.place() {
        Ok(order) if shop.orders.publish(order).is_ok() => StatusCode::ACCEPTED,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Ships orders, also those that the API takes while the group drains.
fn consumer(store: &Store, orders: &Queue<u64>) -> impl wheelhouse::servicegroup::Service + use<> {
    let store = store.clone();
    let ship = move |order: Arc<u64>| {
        let store = store.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(2)).await;
            store.ship(*order)
        }
    };
    Consume::new(orders.consumer(), ship)
        .concurrency(32)
        .pulls_while_draining(true)
}

/// Says that the shop is open until its readiness is false.
fn rpc(listener: TcpListener) -> impl wheelhouse::servicegroup::Service {
    async move |ctx: ServiceContext| {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter
            .set_service_status(SHOP, ServingStatus::Serving)
            .await;
        let draining = ctx.draining();
        let closes = async move {
            draining.await;
            reporter
                .set_service_status(SHOP, ServingStatus::NotServing)
                .await;
            std::future::pending().await
        };
        let server = HttpServer::grpc_from_listener(listener, Routes::new(health));
        tokio::select! {
            ended = wheelhouse::servicegroup::Service::run(server, ctx) => ended,
            () = closes => Ok(()),
        }
    }
}

// --- The client -------------------------------------------------------------

/// Orders, looks whether the shop is open, and has the process stopped when its time is up.
async fn drive(
    ctx: ServiceContext,
    api: SocketAddr,
    rpc: SocketAddr,
    time: Duration,
) -> Result<(), Failure> {
    ctx.ready();
    let stream = TcpStream::connect(api).await?;
    let (mut http, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let channel = tonic::transport::Endpoint::new(format!("http://{rpc}"))?;
    let mut health = HealthClient::new(channel.connect().await?);

    let until = Instant::now() + time;
    let mut told = false;
    // It goes on through the drain, and is served.
    while !ctx.stopping_token().is_cancelled() {
        let request = hyper::Request::post("/orders").header("host", "shop");
        let answer = http
            .send_request(request.body(Empty::<Bytes>::new())?)
            .await?;
        if answer.status() != StatusCode::ACCEPTED {
            return Err(format!("the order was answered with {}", answer.status()).into());
        }
        http.ready().await?;
        let asked = HealthCheckRequest {
            service: SHOP.into(),
        };
        let open = health.check(asked).await?.into_inner().status();
        if !told && Instant::now() >= until {
            println!(
                "the client asks for the end; to gRPC the shop was {}",
                open.as_str_name()
            );
            terminate(&ctx)?;
            told = true;
        }
    }
    Ok(())
}

/// A SIGTERM to this process, through the system.
#[cfg(unix)]
fn terminate(_: &ServiceContext) -> Result<(), Failure> {
    use nix::sys::signal::{Signal, kill};
    Ok(kill(nix::unistd::Pid::this(), Signal::SIGTERM)?)
}

#[cfg(not(unix))]
fn terminate(ctx: &ServiceContext) -> Result<(), Failure> {
    ctx.group().stop();
    Ok(())
}
