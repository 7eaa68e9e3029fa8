//! The trials.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::clients::{self, Protocol};
use crate::server::{self, End, Kind, Server, Shape, Sockets};
use crate::wire;

/// What may pass between a deadline and the end of the process.
const GRACE: Duration = Duration::from_millis(200);

pub(crate) fn main() -> std::process::ExitCode {
    server::serve_if_asked();
    type Case = (&'static str, fn());
    let trials: [Case; 14] = [
        ("sigterm_loses_no_accepted_request_over_http1", || {
            block_on(sigterm_loses_nothing(Protocol::Http1));
        }),
        ("sigterm_loses_no_accepted_request_over_http2", || {
            block_on(sigterm_loses_nothing(Protocol::Http2));
        }),
        ("sigterm_loses_no_accepted_request_over_grpc", || {
            block_on(sigterm_loses_nothing(Protocol::Grpc));
        }),
        ("a_restart_on_inherited_sockets_fails_no_request", || {
            block_on(restarts_fail_nothing());
        }),
        ("a_stuck_service_holds_the_process_until_the_total", || {
            block_on(stuck());
        }),
        ("the_second_signal_ends_a_busy_process", || {
            block_on(second_signal());
        }),
        (
            "idle_connections_hold_up_nothing",
            || block_on(wire::idle()),
        ),
        ("endless_answers_are_cut_within_the_budget", || {
            block_on(wire::endless());
        }),
        ("http1_says_connection_close", || {
            block_on(wire::connection_close());
        }),
        ("a_client_may_take_its_time_to_read", || {
            block_on(wire::slow_reader())
        }),
        ("http2_says_goaway", || block_on(wire::goaway())),
        ("half_closed_and_slow_clients_hold_up_nothing", || {
            block_on(wire::awkward());
        }),
        ("ten_thousand_idle_connections_close_at_once", || {
            block_on(wire::crowd());
        }),
        ("the_backlog_is_served_when_descriptors_are_few", || {
            block_on(wire::poor());
        }),
    ];
    let trials = trials.map(|(name, test)| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.into()).exit_code()
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads");
    runtime.block_on(test);
    runtime.shutdown_background();
}

fn is_long() -> bool {
    std::env::var_os("WHEELHOUSE_LONG").is_some()
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn shape(drain: u64, total: u64) -> Shape {
    Shape {
        drain: ms(drain),
        total: ms(total),
        kind: Kind::Sound,
    }
}

/// Waits for the end beside the clients, whose tasks go on.
pub(crate) async fn end(server: Server) -> End {
    let end = tokio::task::spawn_blocking(|| server.end());
    end.await.expect("it ends")
}

async fn sigterm_loses_nothing(protocol: Protocol) {
    let (runs, drain) = if is_long() { (20, 5000) } else { (3, 200) };
    for run in 0..runs {
        let mut server = Server::start(shape(drain, drain + 10_000));
        let address = match protocol {
            Protocol::Grpc => server.grpc,
            _ => server.http,
        };
        let (ledger, clients) = clients::start(protocol, address);
        // A different point of the clients' 50 ms each time.
        sleep(ms(200 + 17 * run)).await;
        let admin = server.admin;
        assert_eq!(status(admin, "/readyz").await, Some(200));
        let before = ledger.answered();
        assert!(before > 64, "{before}");

        server.signal(Signal::SIGTERM);
        let signalled = server.signalled;
        // The signal's thread takes a moment to hear of it; from then on it is final.
        while status(admin, "/readyz").await == Some(200) {
            assert!(signalled.elapsed() < ms(100), "it is ready still");
        }
        let readiness = tokio::spawn(async move {
            let mut asked = 0;
            // The admin service stops last, and may be gone at any time after the drain.
            while let Some(status) = status(admin, "/readyz").await {
                assert_eq!(status, 503);
                asked += 1;
                sleep(ms(10)).await;
            }
            assert!(signalled.elapsed() >= ms(drain), "it is gone already");
            asked
        });
        let end = end(server).await;
        clients.join_all().await;
        assert!(readiness.await.expect("503 until the end") > 3);

        assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
        assert!(!end.stderr.contains(" cut="), "{}", end.stderr);
        assert!(end.took >= ms(drain), "{:?}", end.took);
        assert_eq!(end.begun, Some(ledger.answered()), "accepted, and answered");
        // The drain serves: half of it is enough of a margin for the clock of another process.
        for (begun, how) in ledger.failed() {
            assert!(begun >= signalled + ms(drain / 2), "{how}");
            assert!(!how.contains("midway"), "{how}");
        }
        assert!(ledger.answered() - before > 64, "the drain serves");
    }
}

async fn restarts_fail_nothing() {
    let sockets = Sockets::new();
    let restarts: u64 = if is_long() { 20 } else { 3 };
    let shape = shape(50, 10_000);
    let mut server = Server::start_on(&sockets, shape);
    let all = [
        clients::start(Protocol::Http1, server.http),
        clients::start(Protocol::Http2, server.http),
        clients::start(Protocol::Grpc, server.grpc),
    ];
    let mut begun = 0;
    for _ in 0..restarts {
        sleep(ms(150)).await;
        let new = tokio::task::block_in_place(|| Server::start_on(&sockets, shape));
        let mut old = std::mem::replace(&mut server, new);
        old.signal(Signal::SIGTERM);
        let end = end(old).await;
        assert_eq!(end.status.code(), Some(0), "{}", end.stderr);
        begun += end.begun.expect("a count");
    }
    let mut answered = 0;
    for (ledger, clients) in all {
        ledger.enough();
        clients.join_all().await;
        let failed = ledger.failed();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(ledger.answered() > 64 * restarts);
        answered += ledger.answered();
    }
    server.signal(Signal::SIGTERM);
    begun += end(server).await.begun.expect("a count");
    assert_eq!(begun, answered, "accepted, and answered");
}

/// The bound is one of real time. A machine that is busy otherwise may break it once, and not thrice.
async fn stuck() {
    let shape = Shape {
        kind: Kind::Stuck,
        ..shape(0, 700)
    };
    let mut tried = Vec::new();
    while tried.len() < 3 {
        let mut server = Server::start(shape);
        let (_ledger, _clients) = clients::start(Protocol::Http1, server.http);
        sleep(ms(100)).await;
        server.signal(Signal::SIGTERM);
        let end = end(server).await;
        assert_eq!(end.status.code(), Some(75), "{}", end.stderr);
        let last = end.stderr.lines().last().expect("a report");
        assert!(last.contains(" abandoned=stuck "), "{last}");
        if end.took <= shape.total + GRACE {
            return;
        }
        tried.push(end.took);
    }
    panic!("after {tried:?}");
}

async fn second_signal() {
    let mut tried = Vec::new();
    while tried.len() < 3 {
        let mut server = Server::start(shape(5000, 20_000));
        let (_ledger, _clients) = clients::start(Protocol::Http1, server.http);
        sleep(ms(100)).await;
        server.signal(Signal::SIGTERM);
        while status(server.admin, "/readyz").await == Some(200) {}
        server.signal(Signal::SIGTERM);
        let end = end(server).await;
        assert_eq!(end.status.code(), Some(143), "{}", end.stderr);
        if end.took < ms(100) {
            return;
        }
        tried.push(end.took);
    }
    panic!("after {tried:?}");
}

/// The status of an answer over a new connection; `None` when there is nobody to answer.
pub(crate) async fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8(answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// Asserts that something took at most as long as that, with what a busy machine adds.
pub(crate) fn assert_within(begun: Instant, time: Duration) {
    let took = begun.elapsed();
    assert!(took <= time + Duration::from_secs(2), "{took:?}");
}
