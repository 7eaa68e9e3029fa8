//! `delayqueue`: tokio-util's `DelayQueue<u64>`, one tick = 1 ms, its resolution.
//!
//! Settings: it lives in a current-thread runtime whose clock is paused, and is polled directly,
//! without a task around it and without a task's budget. Before it fires, the clock jumps past the
//! last deadline once, outside the timed part: the queue then hands out its timers in the order of
//! their ticks from a plain loop over `poll_expired`, each of its own sleeps being over when it is
//! first polled. Advancing the clock tick by tick instead, with a turn of the runtime for each, took
//! as long or a little longer. Deadlines are given as `Instant`, which is what it computes with.

use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use tokio_util::time::delay_queue::{self, Key};

use super::{Remove, Reschedule, TimerStructure};

static PAUSED: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the system")
});

/// The adapter.
#[derive(Debug)]
pub struct DelayQueue {
    queue: delay_queue::DelayQueue<u64>,
    /// When the queue was made: its own zero, because the clock is paused.
    start: Instant,
}

impl TimerStructure for DelayQueue {
    type Deadline = Instant;
    type Key = Key;

    fn within<R>(work: impl FnOnce() -> R) -> R {
        let _context = PAUSED.enter();
        work()
    }

    fn new() -> Self {
        Self {
            queue: delay_queue::DelayQueue::new(),
            start: Instant::now(),
        }
    }

    #[inline]
    fn deadline(&self, tick: u64) -> Instant {
        self.start + Duration::from_millis(tick)
    }

    #[inline]
    fn insert(&mut self, deadline: Instant, value: u64) -> Key {
        self.queue.insert_at(value, deadline)
    }

    fn pending(&self) -> usize {
        self.queue.len()
    }

    fn before_fire(&mut self, through: u64) {
        PAUSED.block_on(tokio::time::advance(Duration::from_millis(through + 1)));
    }

    #[inline]
    fn fire(&mut self, _through: u64, mut fired: impl FnMut(u64, u64)) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(expired)) = self.queue.poll_expired(&mut context) {
            let tick = (expired.deadline() - self.start).as_millis() as u64;
            fired(tick, expired.into_inner());
        }
    }
}

impl Remove for DelayQueue {
    #[inline]
    fn remove(&mut self, key: Key) -> Option<u64> {
        Some(self.queue.remove(&key).into_inner())
    }
}

impl Reschedule for DelayQueue {
    #[inline]
    fn reschedule(&mut self, key: Key, deadline: Instant) -> bool {
        self.queue.reset_at(&key, deadline);
        true
    }
}
