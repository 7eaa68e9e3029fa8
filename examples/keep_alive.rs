//! A hundred thousand sessions that stay open as long as their clients are heard of.
//!
//! ```console
//! cargo run --release --example keep_alive -- --sessions 100000
//! ```
//!
//! Every message of a client moves its session's timer ahead. A move to a later deadline costs no
//! filing: however often a session is refreshed, its timer is filed anew at most once per span of
//! silence, when the tick under which it is filed is reached. Clients that fall silent are closed
//! on time.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wheelhouse::wheel::TimingWheel;

/// A session is closed when its client has been silent for this long.
const SILENCE: Duration = Duration::from_millis(500);
/// How often every client that is alive is heard of.
const ROUNDS: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let sessions = sessions()?;
    let closed = Arc::new(AtomicU64::new(0));

    let wheel = {
        let closed = closed.clone();
        TimingWheel::builder().build(move |_session: u64, _opened: Instant| {
            closed.fetch_add(1, Ordering::Relaxed);
        })?
    };
    for session in 0..sessions {
        wheel.set_timer(session, Instant::now(), SILENCE)?;
    }

    // Every tenth client is never heard of again; the others keep talking.
    let silent = sessions.div_ceil(10);
    let started = Instant::now();
    let mut spent = Duration::ZERO;
    for round in 1..=ROUNDS {
        let before = Instant::now();
        for session in (0..sessions).filter(|session| session % 10 != 0) {
            wheel.move_timer(session, SILENCE)?;
        }
        wheel.flush()?;
        spent += before.elapsed();
        let next = started + SILENCE / 10 * round;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let moves = u64::from(ROUNDS) * (sessions - silent);
    println!(
        "{moves} refreshes in {spent:.2?}, {:.0} ns each",
        spent.as_nanos() as f64 / moves.max(1) as f64
    );

    let open = wheel.len();
    println!(
        "{open} sessions open, {} closed",
        closed.load(Ordering::Relaxed)
    );

    // Silence: the rest is closed as well.
    while wheel.stats().pending > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    wheel.stop();
    let stats = wheel.stats();
    println!(
        "{} closed in the end; {} moves cost {} relocations",
        stats.fired, stats.moved, stats.relocations
    );
    if stats.fired != sessions {
        return Err(format!("{} of {sessions} sessions were closed", stats.fired).into());
    }
    Ok(())
}

/// The number after `--sessions`, a hundred thousand by default.
fn sessions() -> Result<u64, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (
        arguments.next().as_deref(),
        arguments.next(),
        arguments.next(),
    ) {
        (None, ..) => Ok(100_000),
        (Some("--sessions"), Some(number), None) => number
            .parse()
            .map_err(|error| format!("--sessions {number}: {error}").into()),
        _ => Err("usage: keep_alive [--sessions NUMBER]".into()),
    }
}
