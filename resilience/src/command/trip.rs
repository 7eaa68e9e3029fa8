//! When the breaker of a command opens: [`ErrorPercent`].

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
}

impl ErrorPercent {
    pub(super) fn new(percent: f64, volume: u64) -> Self {
        let length = WINDOW / WINDOW_BUCKETS as u32;
        let window = RollingWindow::starting_at(TokioClock.now(), WINDOW_BUCKETS, length);
        ErrorPercent {
            percent,
            volume,
            window: window.expect("the constants are in range"),
        }
    }
}

impl TripPolicy for ErrorPercent {
    fn record(&self, outcome: Outcome, now: Instant) -> bool {
        self.window.add_at(now, outcome);
        let seen = self.window.snapshot_at(now);
        seen.requests >= self.volume
            && seen.errors as f64 * 100.0 >= self.percent * seen.requests as f64
    }

    fn reset(&self) {
        self.window.clear();
    }
}
