//! A server offered three times what it can bear, with the load shedder and without.
//!
//! ```console
//! cargo run --release --example shedding_server -- --warm-up 15 --measured 20
//! ```
//!
//! `--short` stands for `--warm-up 3 --measured 4`.
//!
//! Each request burns 10 ms of processor time on a blocking pool of two threads. First four clients
//! in turn find out the capacity. Then requests are sent at three times that rate, evenly, whether or
//! not the ones before were answered, and clients give up half a second after a request was to be
//! sent. Without the shedder everybody waits in one line, until all are answered too late; the server
//! is as busy as can be, for nobody.
//!
//! The clients have to share the processors with the server, so they are made cheap: one thread
//! writes fixed bytes to kept-alive connections over loopback and looks for two fields of the answer.
//! A client that gives up resets its connection, which tells the server so. The figures still include
//! the clients' share of the processors, as does the capacity. On a machine where the server has no
//! control group of its own the usage is that of the whole machine: run it where nothing else is busy.

use std::cell::RefCell;
use std::error::Error;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_blocking, spawn_local};
use tokio::time::{Instant, sleep_until, timeout_at};
use wheelhouse::resilience::{CpuMeter, Priority, Shedder};

/// Threads that burn, and so the processors that the server can use.
const THREADS: usize = 2;
const WORK: Duration = Duration::from_millis(10);
const OVERLOAD: f64 = 3.0;
/// When a client gives up.
const PATIENCE: Duration = Duration::from_millis(500);
/// Clients that find out the capacity: enough that no thread of the server waits for one.
const CLIENTS: usize = 4;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn main() -> Result<(), Box<dyn Error>> {
    let plan = Plan::from_arguments()?;
    let rounds = rounds_of_work();
    let client = Builder::new_current_thread().enable_all().build()?;

    let server = Server::start(rounds, None)?;
    let tally = LocalSet::new().block_on(&client, ask_in_turn(server.address, &plan));
    let capacity = tally.answered_a_second(&plan);
    server.stop();
    println!(
        "capacity  {capacity:.0} requests a second, {}",
        tally.latencies()
    );
    let at_capacity = tally.quantile(0.99);

    let mut goodputs = Vec::new();
    for shedder in [Some(shedder()?), None] {
        let name = if shedder.is_some() { "with" } else { "without" };
        let server = Server::start(rounds, shedder.clone())?;
        let rate = capacity * OVERLOAD;
        let tally = LocalSet::new().block_on(&client, ask_at(server.address, rate, &plan));
        server.stop();
        let goodput = tally.answered_a_second(&plan) / capacity;
        println!(
            "{name:<9} goodput {:.1} % of the capacity, {}, p99 {:.1} times that at capacity",
            goodput * 100.0,
            tally.latencies(),
            tally.quantile(0.99).as_secs_f64() / at_capacity.as_secs_f64(),
        );
        println!(
            "          {} answered, {} shed, {} given up, {} broken",
            tally.answered.len(),
            tally.shed,
            tally.given_up,
            tally.broken,
        );
        if let Some(shedder) = shedder {
            let stats = shedder.stats();
            println!(
                "          shedder: cpu {:.0} of 1000, {:.1} in flight on average, {:.1} at most",
                stats.cpu, stats.average_in_flight, stats.max_in_flight
            );
        }
        goodputs.push(goodput);
    }
    match goodputs[..] {
        [with, without] if with > without => Ok(()),
        _ => Err("the shedder was of no use".into()),
    }
}

/// The default shedder, but that the server cannot use more processors than it has threads.
fn shedder() -> Result<Shedder, Box<dyn Error>> {
    let meter = CpuMeter::new();
    let processors = meter.limit().min(THREADS as f64);
    Ok(Shedder::builder()
        .cpu(meter.with_limit(processors)?)
        .build()?)
}

/// How long everything takes.
struct Plan {
    warm_up: Duration,
    measured: Duration,
}

impl Plan {
    fn from_arguments() -> Result<Self, Box<dyn Error>> {
        let seconds = Duration::from_secs;
        let mut plan = Plan {
            warm_up: seconds(15),
            measured: seconds(20),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || match arguments.next().and_then(|value| value.parse().ok()) {
                Some(value @ 1..=3600) => Ok(seconds(value)),
                _ => Err(format!("{argument} needs whole seconds, 1 to 3600")),
            };
            match argument.as_str() {
                "--warm-up" => plan.warm_up = value()?,
                "--measured" => plan.measured = value()?,
                "--short" => {
                    plan = Plan {
                        warm_up: seconds(3),
                        measured: seconds(4),
                    }
                }
                other => {
                    return Err(format!("{other} is none of --warm-up, --measured, --short").into());
                }
            }
        }
        Ok(plan)
    }
}

// --- The server -------------------------------------------------------------

struct Server {
    runtime: Runtime,
    address: SocketAddr,
}

impl Server {
    fn start(rounds: u64, shedder: Option<Shedder>) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(THREADS)
            .enable_all()
            .build()?;
        let mut router = Router::new().route("/", routing::get(move || work(rounds)));
        if let Some(shedder) = shedder {
            router = router.layer(middleware::from_fn_with_state(shedder, shed));
        }
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        runtime.spawn(async move { axum::serve(listener, router).await });
        Ok(Server { runtime, address })
    }

    /// What is still in line is dropped.
    fn stop(self) {
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

async fn work(rounds: u64) -> Result<&'static str, StatusCode> {
    let burnt = spawn_blocking(move || black_box(burn(rounds))).await;
    burnt
        .map(|_| "done")
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn shed(State(shedder): State<Shedder>, request: Request, next: Next) -> Response {
    let promise = match shedder.try_acquire(Priority::Normal) {
        Ok(promise) => promise,
        Err(_) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
    };
    // A client that gives up drops this, and with it the promise.
    let response = next.run(request).await;
    if response.status().is_success() {
        promise.success();
    } else {
        promise.failure();
    }
    response
}

fn burn(rounds: u64) -> u64 {
    let mut state = 1_u64;
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    state
}

/// As many rounds as take the time of the work, by the best of several tries. From here on the work
/// is an amount and not a time, so that a crowded processor does not make it smaller.
fn rounds_of_work() -> u64 {
    const TRY: u64 = 2_000_000;
    let tries = (0..20).map(|_| {
        let start = Instant::now();
        black_box(burn(black_box(TRY)));
        start.elapsed()
    });
    let best = tries.min().unwrap_or(WORK).max(Duration::from_nanos(1));
    (TRY as f64 * WORK.as_secs_f64() / best.as_secs_f64()) as u64
}

// --- The clients ------------------------------------------------------------

/// What became of the requests that were to be sent in the measured time.
#[derive(Default)]
struct Tally {
    answered: Vec<Duration>,
    shed: u64,
    given_up: u64,
    broken: u64,
}

enum Answer {
    Done,
    Shed,
    GivenUp,
    Broken,
}

impl Tally {
    fn count(&mut self, answer: &Answer, latency: Duration) {
        match answer {
            Answer::Done => self.answered.push(latency),
            Answer::Shed => self.shed += 1,
            Answer::GivenUp => self.given_up += 1,
            Answer::Broken => self.broken += 1,
        }
    }

    fn answered_a_second(&self, plan: &Plan) -> f64 {
        self.answered.len() as f64 / plan.measured.as_secs_f64()
    }

    /// Of those that were not shed. Who gave up has waited for as long as that at least.
    fn quantile(&self, quantile: f64) -> Duration {
        let mut latencies = self.answered.clone();
        latencies.extend((0..self.given_up).map(|_| PATIENCE));
        latencies.sort_unstable();
        let rank = (latencies.len() as f64 * quantile).ceil() as usize;
        latencies
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or_default()
    }

    fn latencies(&self) -> String {
        let ms = |quantile| match self.quantile(quantile) {
            PATIENCE => format!("over {} ms", PATIENCE.as_millis()),
            latency => format!("{:.1} ms", latency.as_secs_f64() * 1e3),
        };
        format!("p50 {}, p99 {}", ms(0.5), ms(0.99))
    }
}

/// A few clients, each of which sends a request when its last one was answered.
async fn ask_in_turn(address: SocketAddr, plan: &Plan) -> Tally {
    let from = Instant::now() + plan.warm_up.min(Duration::from_secs(2));
    let until = from + plan.measured;
    let tally = Rc::new(RefCell::new(Tally::default()));
    let clients = (0..CLIENTS).map(|_| {
        let tally = tally.clone();
        spawn_local(async move {
            let pool = Pool::default();
            while Instant::now() < until {
                let start = Instant::now();
                let answer = ask(address, &pool, start).await;
                if (from..until).contains(&Instant::now()) {
                    tally.borrow_mut().count(&answer, start.elapsed());
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        // A client ends by itself; one that panicked would show in the figures.
        let _ = client.await;
    }
    tally.take()
}

/// Requests at this rate. Latencies are from when a request was to be sent.
async fn ask_at(address: SocketAddr, rate: f64, plan: &Plan) -> Tally {
    let start = Instant::now();
    let from = start + plan.warm_up;
    let until = from + plan.measured;
    let tally = Rc::new(RefCell::new(Tally::default()));
    let pool = Rc::new(Pool::default());
    for number in 0_u32.. {
        let due = start + Duration::from_secs_f64(f64::from(number) / rate);
        if due >= until {
            break;
        }
        sleep_until(due).await;
        let (tally, pool) = (tally.clone(), pool.clone());
        spawn_local(async move {
            let answer = ask(address, &pool, due).await;
            if due >= from {
                tally.borrow_mut().count(&answer, due.elapsed());
            }
        });
    }
    sleep_until(until + PATIENCE + Duration::from_millis(100)).await;
    tally.take()
}

/// Connections that nobody uses.
#[derive(Default)]
struct Pool(RefCell<Vec<TcpStream>>);

async fn ask(address: SocketAddr, pool: &Pool, due: Instant) -> Answer {
    let idle = pool.0.borrow_mut().pop();
    let asked = async {
        let mut connection = match idle {
            Some(connection) => connection,
            None => {
                let connection = TcpStream::connect(address).await?;
                connection.set_nodelay(true)?;
                // Dropped before the answer it is reset, and leaves no port behind that waits.
                connection.set_zero_linger()?;
                connection
            }
        };
        connection.write_all(REQUEST).await?;
        let status = status_of_answer(&mut connection).await?;
        io::Result::Ok((connection, status))
    };
    match timeout_at(due + PATIENCE, asked).await {
        Ok(Ok((connection, status))) => {
            pool.0.borrow_mut().push(connection);
            match status {
                200 => Answer::Done,
                503 => Answer::Shed,
                _ => Answer::Broken,
            }
        }
        Ok(Err(_)) => Answer::Broken,
        Err(_) => Answer::GivenUp,
    }
}

/// Reads an answer to its end.
async fn status_of_answer(connection: &mut TcpStream) -> io::Result<u16> {
    let mut buffer = [0; 1024];
    let mut filled = 0;
    loop {
        match connection.read(&mut buffer[filled..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
        let text = String::from_utf8_lossy(&buffer[..filled]);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        if body.len() >= length {
            let status = head
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok());
            return status.ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
}
