//! A log of which run began when, in virtual time.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wheelhouse_wheel::Clock;

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Notes names, each with the time on a clock since the log was made.
#[derive(Clone)]
pub(crate) struct Runs {
    clock: Arc<dyn Clock>,
    start: Instant,
    lines: Arc<Mutex<Vec<(u128, &'static str)>>>,
}

impl Runs {
    pub(crate) fn new(clock: impl Clock) -> Self {
        Runs {
            start: clock.now(),
            clock: Arc::new(clock),
            lines: Arc::default(),
        }
    }

    pub(crate) fn note(&self, name: &'static str) {
        let elapsed = self.clock.now().saturating_duration_since(self.start);
        self.lines.lock().push((elapsed.as_millis(), name));
    }

    /// Work that notes when it begins, and is done.
    pub(crate) fn work(&self, name: &'static str) -> impl FnMut() -> Ready<()> + Send + 'static {
        let runs = self.clone();
        move || {
            runs.note(name);
            ready(())
        }
    }

    /// What has been noted since the last call: "100 a, 250 b", with milliseconds.
    pub(crate) fn taken(&self) -> String {
        let lines = std::mem::take(&mut *self.lines.lock());
        let lines = lines.iter().map(|(at, name)| format!("{at} {name}"));
        lines.collect::<Vec<_>>().join(", ")
    }
}
