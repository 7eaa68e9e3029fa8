//! A timer of the scheduler's own wheel that wakes a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::sync::Mutex;

use super::inner::Inner;
use super::shard::Timed;

/// Not in the wheel.
const NOWHERE: u32 = u32::MAX;

/// What the wheel holds.
pub(super) struct Timeout {
    /// Where in the wheel. Under the shard's lock.
    node: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    elapsed: bool,
    waker: Option<Waker>,
}

impl Timeout {
    /// Under the shard's lock.
    pub(super) fn set_node(&self, node: u32) {
        // Relaxed: written and read under one lock.
        self.node.store(node, Relaxed);
    }

    /// The wheel has handed it out. Under the shard's lock.
    pub(super) fn leave_wheel(&self) {
        self.set_node(NOWHERE);
    }

    /// Its time has come. Returns whom to wake.
    #[must_use]
    pub(super) fn elapse(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.elapsed = true;
        state.waker.take()
    }
}

/// Is ready when the time is up. Dropping it takes it out of the wheel.
pub(super) struct Sleep {
    inner: Arc<Inner>,
    shard: usize,
    timeout: Arc<Timeout>,
}

impl Sleep {
    pub(super) fn new(inner: Arc<Inner>, shard: usize, duration: Duration) -> Self {
        let timeout = Arc::new(Timeout {
            node: AtomicU32::new(NOWHERE),
            state: Mutex::new(State::default()),
        });
        let tick = inner.ticks.deadline(inner.clock.now(), duration);
        {
            let shard = &inner.shards[shard];
            let mut state = shard.lock();
            let node = shard.insert_timeout(&mut state, tick, timeout.clone());
            timeout.set_node(node);
        }
        inner.alarm.ring(tick);
        Sleep {
            inner,
            shard,
            timeout,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Wakers are user code: cloned before the lock is taken, dropped after it is released.
        let waker = cx.waker().clone();
        let mut state = self.timeout.state.lock();
        if state.elapsed {
            return Poll::Ready(());
        }
        let old = state.waker.replace(waker);
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let mut state = self.inner.shards[self.shard].lock();
        let node = self.timeout.node.load(Relaxed);
        let timed = (node != NOWHERE).then(|| state.remove(node));
        drop(state);
        debug_assert!(matches!(timed, None | Some(Timed::Timeout(_))));
    }
}
