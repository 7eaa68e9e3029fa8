//! The way of a due task from the driver to its run: it is registered as in progress, passes the
//! gate of its key and that of the scheduler, begins, and gives all of it back when it is
//! dropped, however the run ended.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::context::Run;
use super::entry::{Entry, Phase, flag};
use super::gate::Gate;
use super::inner::Inner;

/// A due task's right to run, and what it holds for that.
pub(super) struct Claim {
    /// Its task, its scheduler, and what user code may know of its run. While that code runs it is
    /// the thread's current run, and here is what was that before.
    run: Option<Run>,
    /// When it came due.
    pub(super) tick: u64,
    /// Where it is registered.
    slot: usize,
    stage: Stage,
    /// The gate of its key, once it has a place there or stands in its queue.
    own: Option<Arc<Gate>>,
    /// Whether the task has been moved on, so that dropping this need not end it.
    pub(super) settled: bool,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    OwnGate,
    /// Has a place there, or waits for it.
    Overall,
    /// Has a place there too, or waits for it.
    Run,
}

impl Claim {
    /// Registers a task that is due since `tick`.
    pub(super) fn new(inner: Arc<Inner>, entry: Arc<dyn Entry>, tick: u64) -> Self {
        let slot = inner.shards[entry.head().shard()].register(entry.clone());
        let run = Run {
            attempt: 0,
            due: inner.ticks.start(),
            entry,
            inner,
            #[cfg(feature = "tracing")]
            span: tracing::Span::none(),
        };
        Claim {
            run: Some(run),
            tick,
            slot,
            stage: Stage::OwnGate,
            own: None,
            settled: false,
        }
    }

    fn run(&self) -> &Run {
        self.run.as_ref().expect("no user code runs")
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.run().inner
    }

    fn entry(&self) -> &Arc<dyn Entry> {
        &self.run().entry
    }

    /// Notes what user code may know of its run.
    pub(super) fn change_run(&mut self, change: impl FnOnce(&mut Run)) {
        change(self.run.as_mut().expect("no user code runs"));
    }

    /// Runs user code as part of the run.
    pub(super) fn scope<R>(&mut self, code: impl FnOnce() -> R) -> R {
        Run::scope_of(&mut self.run, code)
    }

    /// The run has to wait: whoever cuts it off finds whom to wake.
    pub(super) fn wait(&self, waker: &Waker) {
        let clone = waker.clone();
        let shard = self.inner().shard_of(&**self.entry());
        if let Some(run) = shard.runs.lock().slab.get_mut(self.slot) {
            run.waker = Some(clone);
        }
        // Whoever cuts it off raises the flag first and looks for the waker then.
        if self.entry().head().has(flag::ABORT) {
            waker.wake_by_ref();
        }
    }

    /// Whether it is of no use any more: the task was cancelled on the way.
    pub(super) fn is_dead(&self) -> bool {
        self.entry().head().phase() != Phase::Due
    }

    /// Goes through the gates and returns to begin the run, or waits in a queue, from which it goes
    /// on by itself.
    #[must_use]
    pub(super) fn advance(mut self, inner: &Arc<Inner>) -> Option<Self> {
        let head = self.entry().head();
        let (priority, gated, tick) = (head.priority(), head.has(flag::GATED), self.tick);
        if self.stage == Stage::OwnGate && !self.is_dead() {
            self.stage = Stage::Overall;
            if gated && let Some(gate) = inner.gate_of(&**self.entry()) {
                self.own = Some(gate.clone());
                match gate.enter(priority, tick, self) {
                    Some(claim) => self = claim,
                    None => {
                        // Whoever closes does so before it empties the queues.
                        if inner.is_closed() {
                            Claim::leave_own_queue(gate.drain());
                        }
                        return None;
                    }
                }
            }
        }
        if self.stage == Stage::Overall && !self.is_dead() {
            self.stage = Stage::Run;
            if let Some(gate) = &inner.gate {
                match gate.enter(priority, tick, self) {
                    Some(claim) => self = claim,
                    None => {
                        if inner.is_closed() {
                            Claim::leave_queue(gate.drain());
                        }
                        return None;
                    }
                }
            }
        }
        if self.is_dead() || inner.is_closed() {
            self.settled = self.is_dead();
            return None;
        }
        Some(self)
    }

    /// Begins the run.
    pub(super) fn begin(self, inner: &Inner) {
        let entry = self.entry().clone();
        entry.begin(inner, self);
    }

    /// Drops claims that were taken out of a queue of the key's gate, where they had no place.
    pub(super) fn leave_own_queue(claims: Vec<Claim>) {
        for claim in claims {
            claim.withdraw(Stage::OwnGate);
        }
    }

    /// The same for the queue of the scheduler's gate.
    pub(super) fn leave_queue(claims: Vec<Claim>) {
        for claim in claims {
            claim.withdraw(Stage::Overall);
        }
    }

    /// Dropped at an earlier stage, since it has no place at the one it waits for.
    fn withdraw(mut self, stage: Stage) {
        if stage == Stage::OwnGate {
            self.own = None;
        }
        self.stage = stage;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let (inner, entry) = (self.inner(), self.entry());
        if !self.settled {
            inner.cut(&**entry);
        }
        let leaves = inner.unregister(&**entry, self.slot);
        let own = self.own.as_ref().filter(|_| leaves);
        let next_of_key = own.and_then(|gate| gate.leave());
        if self.own.is_some() {
            inner.key_left(&**entry);
        }
        let has_place = leaves && self.stage == Stage::Run;
        let overall = inner.gate.as_ref().filter(|_| has_place);
        let next = overall.and_then(|gate| gate.leave());
        advance_all(next_of_key.into_iter().chain(next));
    }
}

crate::sync::local! {
    /// Claims to be advanced by the outermost [`advance_all`] of this thread: one that ends at once
    /// makes room for the next, and so on, which as recursion would have no bound.
    static NEXT: RefCell<Option<VecDeque<Claim>>> = RefCell::new(None);
}

/// Advances claims that were given a place.
pub(super) fn advance_all(claims: impl IntoIterator<Item = Claim>) {
    let mut claims = claims.into_iter().peekable();
    if claims.peek().is_none() {
        return;
    }
    let outermost = NEXT.try_with(|next| {
        let mut next = next.borrow_mut();
        let outermost = next.is_none();
        next.get_or_insert_default().extend(claims.by_ref());
        outermost
    });
    match outermost {
        Ok(true) => Outermost.advance(),
        Ok(false) => {}
        Err(_) => claims.for_each(pass_on),
    }
}

/// The first on the stack of this thread to advance claims.
struct Outermost;

impl Outermost {
    fn advance(self) {
        while let Some(claim) =
            NEXT.with(|next| next.borrow_mut().as_mut().and_then(VecDeque::pop_front))
        {
            let inner = claim.inner().clone();
            if let Some(run) = claim.advance(&inner) {
                inner.make_ready([run]);
            }
        }
    }
}

impl Drop for Outermost {
    fn drop(&mut self) {
        let left = NEXT.with(|next| next.take());
        drop(left);
    }
}

/// This thread is about to end, and has no list any more for those that the claim would make room
/// for in turn. So another advances it.
fn pass_on(claim: Claim) {
    let inner = claim.inner().clone();
    let mut passed = Passed(Some(claim));
    drop(
        inner
            .runtime
            .spawn(async move { advance_all(passed.0.take()) }),
    );
}

/// A claim on its way to another thread.
struct Passed(Option<Claim>);

impl Drop for Passed {
    /// A runtime that ends drops it at once. The queues are emptied before the claim is, so that it makes
    /// room for nobody.
    fn drop(&mut self) {
        if let Some(claim) = &self.0 {
            claim.inner().runtime_has_gone();
        }
    }
}
