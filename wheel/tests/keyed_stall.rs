//! A driver under load whose process is stopped for a while: nothing lost, doubled or early.
//!
//! The load runs in a process of its own, which is this test called again. How late timers are
//! under load is for the benches to show; the bound here is generous.

#![cfg(unix)]

mod support {
    pub(crate) mod ledger;
}

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wheelhouse_wheel::TimingWheel;

use support::ledger::{Ledger, Token};

const CHILD: &str = "WHEELHOUSE_TEST_STALL";
const MS: Duration = Duration::from_millis(1);

/// Operations per second offered: half refreshes, a quarter sets, a quarter removals.
const RATE: f64 = 1_500_000.0;

/// Keys that are refreshed, apart from those that are set and removed.
const KEPT_ALIVE: u64 = 10_000;

/// How late timers may be that come due when the stall is over.
const LATE: Duration = Duration::from_secs(2);

/// How long the process is stopped: `WHEELHOUSE_STALL_SECONDS`, 1 without it.
fn stall() -> Duration {
    let seconds = std::env::var("WHEELHOUSE_STALL_SECONDS");
    let seconds = seconds.map_or(1.0, |s| s.parse().expect("a number of seconds"));
    Duration::from_secs_f64(seconds)
}

#[test]
fn a_process_that_is_stopped_and_continued_under_load() {
    if std::env::var_os(CHILD).is_some() {
        carry_load();
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_process_that_is_stopped_and_continued_under_load",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let under_load = lines
        .by_ref()
        .any(|line| line.unwrap().contains("under load"));
    assert!(under_load, "the child ended before");
    thread::sleep(200 * MS);
    let pid = Pid::from_raw(child.id().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    thread::sleep(stall());
    kill(pid, Signal::SIGCONT).unwrap();
    for line in lines {
        println!("{}", line.unwrap());
    }
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
}

enum Value {
    /// Refreshed, due in a minute after each.
    Session,
    Once {
        token: Token,
        due: Instant,
    },
}

/// What the callback saw. Relaxed: read when the driver has ended.
#[derive(Default)]
struct Seen {
    fired: AtomicU64,
    early: AtomicU64,
    sessions: AtomicU64,
    /// Values that fired under another's key.
    mixed_up: AtomicU64,
    /// Due instant and lateness.
    lateness: Mutex<Vec<(Instant, Duration)>>,
}

/// Offers load for as long as it takes to see a stall and a second more.
fn carry_load() {
    let ledger = Ledger::new(8_000_000);
    let seen = Arc::new(Seen::default());
    let wheel = TimingWheel::builder()
        .build({
            let seen = seen.clone();
            move |key: u64, value: Value| match value {
                Value::Session => {
                    seen.sessions.fetch_add(1, Relaxed);
                }
                Value::Once { token, due } => {
                    let now = Instant::now();
                    seen.fired.fetch_add(1, Relaxed);
                    let mixed_up = key != KEPT_ALIVE + token.id as u64;
                    seen.mixed_up.fetch_add(mixed_up.into(), Relaxed);
                    if now < due {
                        seen.early.fetch_add(1, Relaxed);
                    }
                    let lateness = now.saturating_duration_since(due);
                    seen.lateness.lock().unwrap().push((due, lateness));
                }
            }
        })
        .unwrap();
    for key in 0..KEPT_ALIVE {
        wheel
            .set_timer(key, Value::Session, Duration::from_secs(60))
            .unwrap();
    }
    let stall = stall();
    println!("under load");
    let mut rng = SmallRng::seed_from_u64(3);
    let start = Instant::now();
    let (mut done, mut set) = (0u64, 0u64);
    let mut last = start;
    let mut resumed = None;
    loop {
        let now = Instant::now();
        if now - last >= stall * 3 / 4 {
            resumed = Some(now);
        }
        last = now;
        let over = match resumed {
            Some(resumed) => now - resumed >= Duration::from_secs(1),
            None => now - start >= Duration::from_secs(20),
        };
        if over {
            break;
        }
        let offered = ((now - start).as_secs_f64() * RATE) as u64;
        // What a slow machine cannot do is not made up for at once.
        done = done.max(offered.saturating_sub(4000));
        while done < offered {
            done += 1;
            match done % 4 {
                0 => {
                    let token = ledger.issue().expect("the ledger holds them all");
                    let delay = rng.random_range(100..1000) * MS;
                    let key = KEPT_ALIVE + token.id as u64;
                    let due = Instant::now() + delay;
                    wheel
                        .set_timer(key, Value::Once { token, due }, delay)
                        .unwrap();
                    set += 1;
                }
                1 if set > 0 => {
                    let key = KEPT_ALIVE + rng.random_range(set.saturating_sub(50_000)..set);
                    wheel.remove_timer(key).unwrap();
                }
                _ => {
                    let key = rng.random_range(0..KEPT_ALIVE);
                    wheel.move_timer(key, Duration::from_secs(60)).unwrap();
                }
            }
        }
        thread::yield_now();
    }
    let resumed = resumed.expect("it was stopped");
    let took = start.elapsed();

    let left = wheel.stop();
    let stats = wheel.stats();
    let sessions = left
        .iter()
        .filter(|(_, value)| matches!(value, Value::Session))
        .count() as u64;
    let returned = left.len() as u64 - sessions;
    drop(left);
    let fired = seen.fired.load(Relaxed);
    assert_eq!(seen.early.load(Relaxed), 0, "early");
    assert_eq!(seen.mixed_up.load(Relaxed), 0, "under another's key");
    assert_eq!((sessions, seen.sessions.load(Relaxed)), (KEPT_ALIVE, 0));
    assert_eq!(stats.set, KEPT_ALIVE + set);
    assert_eq!(stats.fired, fired);
    assert_eq!(fired + stats.removed + returned, set, "lost or doubled");
    assert_eq!(ledger.close() as u64, set);

    let lateness = seen.lateness.lock().unwrap();
    let mut after: Vec<Duration> = lateness
        .iter()
        .filter(|(due, _)| *due >= resumed + 100 * MS)
        .map(|(_, lateness)| *lateness)
        .collect();
    after.sort_unstable();
    let p99 = after[after.len() * 99 / 100];
    println!(
        "{:.0} operations/s, {set} set, {fired} fired, {} removed, {returned} returned; \
         {} due after the stall, p99 {p99:?} late",
        done as f64 / took.as_secs_f64(),
        stats.removed,
        after.len(),
    );
    assert!(p99 <= LATE, "p99 is {p99:?}");
}
