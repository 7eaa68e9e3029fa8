//! What the workloads of the part `lifecycle` ask of a subject.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Trivial services that run until they are told to stop, side by side unless the adapter says otherwise.
pub trait Lifecycle: Sized + Send {
    /// Starts as many as the tally is for, each with a name of its own, and returns when all have begun
    /// and the subject knows it.
    fn start(tally: Arc<Tally>) -> impl Future<Output = Self> + Send;

    /// Tells them to stop, and returns when the subject says that all have ended.
    fn stop(self) -> impl Future<Output = ()> + Send;

    /// Whether they end one after the other, the last first.
    const REVERSED: bool = false;
}

/// How many services have begun and ended. Every subject's services do the same for it.
#[derive(Debug)]
pub struct Tally {
    of: usize,
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Services that have ended though one after them had not.
    early: AtomicUsize,
    all_begun: Notify,
}

impl Tally {
    /// For this many services.
    #[must_use]
    pub fn new(of: usize) -> Arc<Self> {
        Arc::new(Tally {
            of,
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            early: AtomicUsize::new(0),
            all_begun: Notify::new(),
        })
    }

    /// How many there are to be.
    #[must_use]
    pub fn services(&self) -> usize {
        self.of
    }

    /// A service has begun.
    pub fn begin(&self) {
        // AcqRel: who sees the last one begun sees what all did before.
        if self.begun.fetch_add(1, Ordering::AcqRel) + 1 == self.of {
            self.all_begun.notify_one();
        }
    }

    /// The service with this number has ended.
    pub fn end(&self, number: usize) {
        // AcqRel, as in `begin`.
        let before = self.ended.fetch_add(1, Ordering::AcqRel);
        if self.of - 1 - before != number {
            // Relaxed: read when all has ended.
            self.early.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Resolves when all have begun; for one who waits.
    pub async fn all_begun(&self) {
        self.all_begun.notified().await;
    }

    /// How many have ended, and how many of them not in the reverse of their start.
    #[must_use]
    pub fn ended(&self) -> (usize, usize) {
        let ended = self.ended.load(Ordering::Acquire);
        (ended, self.early.load(Ordering::Relaxed))
    }
}
