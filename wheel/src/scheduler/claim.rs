//! The way of a due task from the driver to its run: it is registered as in progress, passes the
//! gate of its key and that of the scheduler, is spawned, and gives all of it back when it is
//! dropped, however the run ended.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use super::entry::{Entry, Phase};
use super::gate::Gate;
use super::inner::Inner;

/// A due task's right to run, and what it holds for that.
pub(super) struct Claim {
    inner: Arc<Inner>,
    entry: Arc<dyn Entry>,
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
        Claim {
            inner,
            entry,
            tick,
            slot,
            stage: Stage::OwnGate,
            own: None,
            settled: false,
        }
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Whether it is of no use any more: the task was cancelled on the way.
    pub(super) fn is_dead(&self) -> bool {
        self.entry.head().phase() != Phase::Due
    }

    /// Goes through the gates and starts the run, or waits in a queue, from which it goes on by
    /// itself.
    pub(super) fn advance(mut self) {
        let (priority, tick) = (self.entry.head().priority(), self.tick);
        if self.stage == Stage::OwnGate && !self.is_dead() {
            self.stage = Stage::Overall;
            if let Some(gate) = self.inner.gate_of(&*self.entry) {
                self.own = Some(gate.clone());
                match gate.enter(priority, tick, self) {
                    Some(claim) => self = claim,
                    None => return,
                }
            }
        }
        if self.stage == Stage::Overall && !self.is_dead() {
            self.stage = Stage::Run;
            let inner = self.inner.clone();
            if let Some(gate) = &inner.gate {
                match gate.enter(priority, tick, self) {
                    Some(claim) => self = claim,
                    None => return,
                }
            }
        }
        if self.is_dead() || self.inner.is_closed() {
            self.settled = self.is_dead();
            return;
        }
        let entry = self.entry.clone();
        entry.spawn(self);
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
        if !self.settled {
            self.inner.cut(&*self.entry);
        }
        self.inner.unregister(&*self.entry, self.slot);
        let own = self.own.take();
        let next_of_key = own.as_ref().and_then(|gate| gate.leave());
        if own.is_some() {
            self.inner.key_left(&*self.entry);
        }
        let overall = self
            .inner
            .gate
            .as_ref()
            .filter(|_| self.stage == Stage::Run);
        let next = overall.and_then(|gate| gate.leave());
        advance_all(next_of_key.into_iter().chain(next));
    }
}

thread_local! {
    /// Claims to be advanced by the outermost [`advance_all`] of this thread: one that ends at once
    /// makes room for the next, and so on, which as recursion would have no bound.
    static NEXT: RefCell<Option<VecDeque<Claim>>> = const { RefCell::new(None) };
}

/// Advances claims that were given a place.
pub(super) fn advance_all(claims: impl IntoIterator<Item = Claim>) {
    let mut claims = claims.into_iter().peekable();
    if claims.peek().is_none() {
        return;
    }
    let outermost = NEXT.with(|next| {
        let mut next = next.borrow_mut();
        let outermost = next.is_none();
        next.get_or_insert_default().extend(claims);
        outermost
    });
    if outermost {
        while let Some(claim) =
            NEXT.with(|next| next.borrow_mut().as_mut().and_then(VecDeque::pop_front))
        {
            claim.advance();
        }
        NEXT.set(None);
    }
}
