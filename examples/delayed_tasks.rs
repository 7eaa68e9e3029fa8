//! A million reminders, a third of which are cancelled before they are due.
//!
//! ```console
//! cargo run --release --example delayed_tasks -- --tasks 1000000
//! ```
//!
//! Each reminder is due somewhere in the next seconds. While they wait, every third is cancelled;
//! the answer of `take_timer` says who won, the cancellation or the reminder. At the end every
//! reminder was either sent or cancelled, exactly once, and none early.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wheelhouse::wheel::TimingWheel;

/// The reminders become due within this time, after a first pause of as long.
const SPAN: Duration = Duration::from_secs(2);

struct Reminder {
    due: Instant,
    text: &'static str,
}

fn main() -> Result<(), Box<dyn Error>> {
    let tasks = tasks()?;
    let sent = Arc::new(AtomicU64::new(0));
    let early = Arc::new(AtomicU64::new(0));

    let wheel = {
        let (sent, early) = (sent.clone(), early.clone());
        TimingWheel::builder().build(move |_id: u64, reminder: Reminder| {
            if Instant::now() < reminder.due {
                early.fetch_add(1, Ordering::Relaxed);
            }
            // Here a real program would send the text somewhere.
            std::hint::black_box(reminder.text);
            sent.fetch_add(1, Ordering::Relaxed);
        })?
    };

    let started = Instant::now();
    for id in 0..tasks {
        let delay = SPAN + SPAN.mul_f64(id as f64 / tasks as f64);
        let reminder = Reminder {
            due: Instant::now() + delay,
            text: "stand up and stretch",
        };
        wheel.set_timer(id, reminder, delay)?;
    }
    println!("{tasks} reminders scheduled in {:.2?}", started.elapsed());

    let mut cancelled = 0;
    for id in (0..tasks).step_by(3) {
        if wheel.take_timer(&id)?.is_some() {
            cancelled += 1;
        }
    }
    println!("{cancelled} cancelled, {} pending", wheel.len());

    // The driver needs nobody to watch it; this program only waits for the end.
    while wheel.stats().pending > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    wheel.stop();

    let (sent, early) = (sent.load(Ordering::Relaxed), early.load(Ordering::Relaxed));
    let lateness = wheel.stats().lateness;
    println!(
        "{sent} sent, {early} early, lateness p50 {:.2?}, p99 {:.2?}, max {:.2?}",
        lateness.quantile(0.5),
        lateness.quantile(0.99),
        lateness.max()
    );
    if sent + cancelled != tasks || early != 0 {
        return Err(
            format!("{sent} sent and {cancelled} cancelled of {tasks}, {early} early").into(),
        );
    }
    Ok(())
}

/// The number after `--tasks`, a million by default.
fn tasks() -> Result<u64, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (
        arguments.next().as_deref(),
        arguments.next(),
        arguments.next(),
    ) {
        (None, ..) => Ok(1_000_000),
        (Some("--tasks"), Some(number), None) => number
            .parse()
            .map_err(|error| format!("--tasks {number}: {error}").into()),
        _ => Err("usage: delayed_tasks [--tasks NUMBER]".into()),
    }
}
