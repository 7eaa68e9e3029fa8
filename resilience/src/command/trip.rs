//! When the breaker of a command opens: [`ErrorPercent`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use wheelhouse_collection::{ErrorCount, Outcome, RollingWindow};
use wheelhouse_wheel::{Clock, TokioClock};

use crate::TripPolicy;

use super::event::{WINDOW, WINDOW_BUCKETS};

/// At so many per cent of errors among the calls of the window, once there are enough of them.
///
/// Unlike [`ErrorRate`](crate::ErrorRate) it looks after every call and not only after errors, as
/// hystrix-go does: a success can be the call that makes the volume, and one that leaves the window
/// raises the rate.
#[derive(Debug)]
pub(super) struct ErrorPercent {
    percent: f64,
    volume: u64,
    window: RollingWindow<ErrorCount>,
    /// Nanoseconds of the window at which the last error has left it: until then calls look. Relaxed:
    /// a call that misses an error which comes at the same time leaves the look to that one, or to
    /// the next call.
    errors_until: AtomicU64,
}

impl ErrorPercent {
    pub(super) fn new(percent: f64, volume: u64) -> Self {
        let length = WINDOW / WINDOW_BUCKETS as u32;
        let window = RollingWindow::starting_at(TokioClock.now(), WINDOW_BUCKETS, length);
        ErrorPercent {
            percent,
            volume,
            window: window.expect("the constants are in range"),
            errors_until: AtomicU64::new(0),
        }
    }
}

impl TripPolicy for ErrorPercent {
    fn record(&self, outcome: Outcome, now: Instant) -> bool {
        let nanos = self.window.nanos_at(now);
        self.window.add_at_nanos(nanos, outcome);
        if outcome.is_error() {
            let until = nanos.saturating_add(WINDOW.as_nanos() as u64);
            self.errors_until.fetch_max(until, Ordering::Relaxed);
        } else if nanos >= self.errors_until.load(Ordering::Relaxed) {
            // Without an error in the window no number of calls is too many.
            return false;
        }
        let seen = self.window.snapshot_at(now);
        seen.requests >= self.volume
            && seen.errors as f64 * 100.0 >= self.percent * seen.requests as f64
    }

    fn reset(&self) {
        self.window.clear();
    }
}
