//! A clock that shows a wild time for one reading of the driver, far ahead or far back: what is due
//! afterwards still comes in time.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::within::within_a_minute;
use tokio::runtime::Builder;
use wheelhouse_wheel::scheduler::{Scheduler, TaskError};
use wheelhouse_wheel::{Clock, SystemClock};

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Shows a wild time to the driver, and to nobody else, at one of its readings.
#[derive(Clone)]
struct Wild {
    readings: Arc<AtomicU64>,
    which: u64,
    ahead: bool,
}

impl Clock for Wild {
    fn now(&self) -> Instant {
        let now = SystemClock.now();
        if thread::current().name() != Some("wild") {
            return now;
        }
        match self.readings.fetch_add(1, SeqCst) == self.which {
            true if self.ahead => now + DAY,
            true => now.checked_sub(DAY).unwrap_or(now),
            false => now,
        }
    }
}

#[test]
fn one_wild_reading_puts_nothing_off() {
    within_a_minute(|| {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let worlds: Vec<_> = (0..60)
            .map(|n| {
                let clock = Wild {
                    readings: Arc::default(),
                    which: n / 2,
                    ahead: n % 2 == 0,
                };
                let builder = Scheduler::builder().name("wild").clock(clock.clone());
                let builder = builder.runtime(runtime.handle().clone());
                (builder.build().unwrap(), clock)
            })
            .collect();
        runtime.block_on(async {
            for round in 0..4 {
                let mut handles = Vec::new();
                for (scheduler, _) in &worlds {
                    let once = scheduler.after(5 * MS, || async {}).unwrap();
                    // Its timeout is filed when the driver may be back from where it was.
                    let options = scheduler.task().timeout(5 * MS);
                    let hangs = options.after(2 * MS, pending::<()>).unwrap();
                    let options = scheduler.task().run_limit(3);
                    let rate = options.every(2 * MS, || async {}).unwrap();
                    handles.push((once, hangs, rate));
                }
                for (n, (once, hangs, rate)) in handles.into_iter().enumerate() {
                    assert_eq!(once.await, Ok(()), "{n} in round {round}");
                    assert_eq!(hangs.await, Err(TaskError::TimedOut(5 * MS)), "{n}");
                    assert_eq!(rate.await, Ok(()), "{n} in round {round}");
                }
            }
        });
        // Each of the readings that were to be wild has been.
        let wild = worlds
            .iter()
            .filter(|(_, clock)| clock.readings.load(SeqCst) > clock.which);
        assert_eq!(wild.count(), worlds.len());
    });
}
