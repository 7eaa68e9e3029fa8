//! `tokio_sleep`: one task per one-shot, `tokio::spawn` and `sleep_until`.
//!
//! Settings: none to be had beyond the runtime's. The scheduling task runs on a worker and yields
//! every so often, so that what it spawns goes to the worker's own queue and is polled while it is
//! in the cache, which is faster than spawning from a thread outside. The task is what one would
//! write: the sleep and two words, which is the least that tokio allocates for a sleep, and one
//! atomic that it bumps at its first poll, without which nobody could tell when all sleeps are
//! registered.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::time::sleep_until;

use super::oneshots::{Ledger, OneShotCaller, OneShots, runtime};

/// The adapter.
#[derive(Debug)]
pub struct OneShotsTokioSleep {
    runtime: Runtime,
    shared: &'static Shared,
}

/// Relaxed throughout: `flush` waits until the two counts agree, and nothing is read through them.
#[derive(Debug)]
struct Shared {
    ledger: &'static Ledger,
    spawned: AtomicUsize,
    polled: AtomicUsize,
}

impl OneShots for OneShotsTokioSleep {
    type Caller = Spawner;

    fn start(ledger: &'static Ledger) -> Self {
        Self {
            runtime: runtime(),
            shared: Box::leak(Box::new(Shared {
                ledger,
                spawned: AtomicUsize::new(0),
                polled: AtomicUsize::new(0),
            })),
        }
    }

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn caller(&self) -> Spawner {
        Spawner {
            shared: self.shared,
            spawned: 0,
        }
    }

    fn flush(&self) -> usize {
        let spawned = self.shared.spawned.load(Relaxed);
        let metrics = self.runtime.metrics();
        // The scheduling task has returned, but may not be gone yet.
        while self.shared.polled.load(Relaxed) < spawned || metrics.num_alive_tasks() > spawned {
            thread::sleep(Duration::from_micros(50));
        }
        metrics.num_alive_tasks()
    }

    fn stop(self) {
        drop(self.runtime);
    }
}

/// The scheduling task's side.
#[derive(Debug)]
pub struct Spawner {
    shared: &'static Shared,
    spawned: usize,
}

impl OneShotCaller for Spawner {
    #[inline]
    fn schedule(&mut self, _due: Instant, due_ns: u64) {
        let shared = self.shared;
        drop(tokio::spawn(async move {
            shared.polled.fetch_add(1, Relaxed);
            sleep_until(shared.ledger.instant(due_ns).into()).await;
            shared.ledger.ran(due_ns);
        }));
        self.spawned += 1;
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.shared.spawned.fetch_add(self.spawned, Relaxed);
    }
}
