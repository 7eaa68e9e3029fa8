//! Runs that may begin, and the tokio tasks that begin them.
//!
//! A tokio task for every run would cost more than all the rest of the scheduler. So a few of them,
//! the runners, take runs out of a common queue and give each its first step. One that is over by
//! then, as many are, has cost no task; one that has to wait becomes a task of its own.
//!
//! A first step may take long, and with `block_in_place` it may do so without holding up the other
//! tasks of the runtime. So a runner in the middle of a step counts for nothing, and leaves behind
//! nothing that only its own worker could go on with (see drive/worker.rs).
//!
//! Invariant: while the queue is not empty a runner is on its way to it, as a task that the runtime
//! has been given, that is in no step, and that any worker may take. Whoever leaves the queue filled,
//! because it put runs in or because it took one of several out, starts a runner under the same lock
//! if there is none.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::drive::worker::share_last_woken;
use crate::sync::Mutex;

use super::claim::Claim;
use super::driver::KEPT;
use super::inner::Inner;

/// How many runs a runner begins before it lets other tasks of the runtime go on.
const TURN: u32 = 32;

/// The queue.
pub(super) struct Ready {
    state: Mutex<State>,
    /// How many runners are sent at most.
    limit: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Claim>,
    /// Runners that have not come to the queue yet, or not again.
    on_way: usize,
}

impl State {
    /// Keeps the invariant. How many runners the caller has to start.
    fn send(&mut self, wanted: usize) -> usize {
        let more = wanted.min(self.queue.len()).saturating_sub(self.on_way);
        self.on_way += more;
        more
    }
}

impl Ready {
    /// For a runtime with so many workers.
    pub(super) fn new(workers: usize) -> Self {
        Ready {
            state: Mutex::default(),
            limit: workers.max(1),
        }
    }

    /// Empties the queue.
    #[must_use]
    pub(super) fn drain(&self) -> VecDeque<Claim> {
        std::mem::take(&mut self.state.lock().queue)
    }
}

impl Inner {
    /// Puts runs into the queue that have their places.
    pub(super) fn make_ready(self: &Arc<Self>, claims: impl IntoIterator<Item = Claim>) {
        let more = {
            let mut state = self.ready.state.lock();
            state.queue.extend(claims);
            state.send(self.ready.limit)
        };
        self.start_runners(more);
    }

    fn start_runners(self: &Arc<Self>, count: usize) {
        for _ in 0..count {
            let runner = Runner {
                inner: self.clone(),
                on_way: true,
                ends: false,
            };
            // A runtime that ends drops it at once.
            drop(self.runtime.spawn(runner.run()));
        }
        if count > 0 {
            share_last_woken();
        }
    }

    /// Gives a run its first step. If it has to wait it becomes a task, whose first step is the
    /// second of the run, so nobody is to be woken by this one.
    pub(super) fn first_step(&self, mut run: Pin<Box<impl Future<Output = ()> + Send + 'static>>) {
        let mut nobody = Context::from_waker(Waker::noop());
        if run.as_mut().poll(&mut nobody).is_pending() {
            drop(self.runtime.spawn(run));
            share_last_woken();
        }
    }
}

/// Has the allocator put together what ended tasks have freed.
///
/// The one of glibc sets small blocks aside as they are freed, and joins all of them when a thread
/// next asks for more than a kilobyte. After hundreds of thousands of tasks that takes a tenth of a
/// second, under a lock; often, it takes no longer than joining each as it is freed. Elsewhere this is
/// an allocation and no more.
fn tidy_heap() {
    const LARGE: usize = 4096;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE)));
}

/// Takes runs out of the queue until it is empty.
struct Runner {
    inner: Arc<Inner>,
    /// Counted as that.
    on_way: bool,
    ends: bool,
}

impl Runner {
    async fn run(mut self) {
        let mut begun = 0;
        while let Some(claim) = self.next() {
            let inner = &self.inner;
            // The clock is user code too. A run that it has not let begin is cut off.
            inner.contain("clock", || claim.begin(inner));
            begun += 1;
            if begun == TURN {
                begun = 0;
                tidy_heap();
                self.turn_back();
                tokio::task::yield_now().await;
            }
        }
        tidy_heap();
        self.ends = true;
    }

    /// The next run.
    fn next(&mut self) -> Option<Claim> {
        let (next, more) = {
            let mut state = self.inner.ready.state.lock();
            if self.on_way {
                state.on_way -= 1;
            } else if (1..=state.on_way).contains(&state.queue.len()) {
                // Those come for what is left: what the last step woke goes first on this worker.
                return None;
            }
            let next = state.queue.pop_front();
            if next.is_none() {
                state.queue.shrink_to(KEPT);
            }
            (next, state.send(1))
        };
        self.on_way = false;
        self.inner.start_runners(more);
        next
    }

    /// It will come to the queue again.
    fn turn_back(&mut self) {
        self.inner.ready.state.lock().on_way += 1;
        self.on_way = true;
    }
}

impl Drop for Runner {
    /// A runner is dropped before its end only where its runtime ends, or has ended.
    fn drop(&mut self) {
        if self.ends {
            return;
        }
        if self.on_way {
            self.inner.ready.state.lock().on_way -= 1;
        }
        self.inner.runtime_has_gone();
    }
}
