//! Runs that may begin, and the tokio tasks that begin them.
//!
//! A tokio task for every run would cost more than all the rest of the scheduler. So a few of them,
//! the runners, take runs out of a common queue and give each its first step. One that is over by
//! then, as many are, has cost no task; one that has to wait becomes a task of its own. A runner
//! that is held up by a step that takes long holds up nothing else: the other runners go on with
//! the queue, and there are as many as the runtime has workers.
//!
//! Invariant: while the queue is not empty a runner is on its way to it. Whoever puts a run in
//! starts runners under the same lock under which the last of them finds the queue empty.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;

use super::claim::Claim;
use super::inner::Inner;

/// How many runs a runner begins before it lets other tasks of the runtime go on.
const TURN: u32 = 32;

/// The queue.
pub(super) struct Ready {
    state: Mutex<State>,
    /// How many runners there are at most.
    limit: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Claim>,
    runners: usize,
}

impl Ready {
    /// For a runtime with so many workers.
    pub(super) fn new(workers: usize) -> Self {
        Ready {
            state: Mutex::default(),
            limit: workers.max(1),
        }
    }

    /// The next run, or the end of a runner.
    fn next(&self) -> Option<Claim> {
        let mut state = self.state.lock();
        let next = state.queue.pop_front();
        if next.is_none() {
            state.runners -= 1;
        }
        next
    }
}

impl Inner {
    /// Puts runs into the queue that have their places.
    pub(super) fn make_ready(self: &Arc<Self>, claims: impl IntoIterator<Item = Claim>) {
        let more = {
            let mut state = self.ready.state.lock();
            state.queue.extend(claims);
            let wanted = state.queue.len().min(self.ready.limit);
            let more = wanted.saturating_sub(state.runners);
            state.runners += more;
            more
        };
        for _ in 0..more {
            let runner = Runner {
                inner: self.clone(),
                ends: false,
            };
            // A runtime that has shut down drops it.
            drop(self.runtime.spawn(runner.run()));
        }
    }

    /// Gives a run its first step. If it has to wait it becomes a task, whose first step is the
    /// second of the run, so nobody is to be woken by this one.
    pub(super) fn first_step(&self, mut run: Pin<Box<impl Future<Output = ()> + Send + 'static>>) {
        let mut nobody = Context::from_waker(Waker::noop());
        if run.as_mut().poll(&mut nobody).is_pending() {
            drop(self.runtime.spawn(run));
        }
    }
}

/// Takes runs out of the queue until it is empty.
struct Runner {
    inner: Arc<Inner>,
    ends: bool,
}

impl Runner {
    async fn run(mut self) {
        let mut begun = 0;
        while let Some(claim) = self.inner.ready.next() {
            claim.begin(&self.inner);
            begun += 1;
            if begun == TURN {
                begun = 0;
                tokio::task::yield_now().await;
            }
        }
        self.ends = true;
    }
}

impl Drop for Runner {
    /// A runner that is dropped with its runtime leaves runs that will not begin.
    fn drop(&mut self) {
        if self.ends {
            return;
        }
        let left = {
            let mut state = self.inner.ready.state.lock();
            state.runners -= 1;
            std::mem::take(&mut state.queue)
        };
        drop(left);
    }
}
