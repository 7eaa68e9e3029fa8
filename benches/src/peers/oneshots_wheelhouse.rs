//! `wheelhouse`: `wheelhouse_wheel::Scheduler`.
//!
//! Settings: the defaults, written out: tokio's clock, 1 ms interval, at most 16 777 216 pending,
//! 1024 events held for listeners, of which there are none; no retry, timeout, jitter or limit of
//! runs. A one-shot is `at`, the counterpart of `sleep_until`; its handle is dropped at once, as the
//! join handle of a spawned task is.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use wheelhouse_wheel::scheduler::{Grace, Scheduler};

use super::oneshots::{Ledger, OneShotCaller, OneShots, runtime};

/// The adapter.
#[derive(Debug)]
pub struct OneShotsWheelhouse {
    runtime: Runtime,
    scheduler: Scheduler,
    ledger: &'static Ledger,
}

impl OneShots for OneShotsWheelhouse {
    type Caller = Handle;

    fn start(ledger: &'static Ledger) -> Self {
        let runtime = runtime();
        let built = Scheduler::builder()
            .runtime(runtime.handle().clone())
            .interval(Duration::from_millis(1))
            .max_pending(16_777_216)
            .events(1024)
            .build();
        Self {
            runtime,
            scheduler: built.expect("the default settings are accepted"),
            ledger,
        }
    }

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn caller(&self) -> Handle {
        Handle {
            scheduler: self.scheduler.clone(),
            ledger: self.ledger,
        }
    }

    /// A one-shot is in the wheel when `at` returns.
    fn flush(&self) -> usize {
        self.scheduler.len()
    }

    fn stop(self) {
        self.runtime
            .block_on(self.scheduler.shutdown(Grace::cancel_pending()));
    }
}

/// The scheduling task's side.
#[derive(Debug)]
pub struct Handle {
    scheduler: Scheduler,
    ledger: &'static Ledger,
}

impl OneShotCaller for Handle {
    #[inline]
    fn schedule(&mut self, due: Instant, due_ns: u64) {
        let ledger = self.ledger;
        let task = self
            .scheduler
            .at(due, move || async move { ledger.ran(due_ns) });
        drop(task.expect("the scheduler takes tasks until it is shut down"));
    }
}
