//! One task: its state, and what may become of it.
//!
//! | phase | where the task is | who moves it on |
//! |---|---|---|
//! | `WAITING` | in the wheel of its shard, at `node` | the driver (`DUE`); cancel, shutdown (`ENDED`) |
//! | `DUE` | in the hands of a [`Claim`]: on its way through the gates, or about to begin; of a task that overlaps itself, in those of the run that is to begin | the run (`RUNNING`; `WAITING` when paused); a missed grace, cancel, shutdown (`ENDED`) |
//! | `RUNNING` | its work runs; of a task that overlaps itself, the last of its runs | the end of the run (`WAITING`, `ENDED`) |
//! | `ENDED` | nowhere: for ever | nobody |
//!
//! # Ground rules
//! - Locks are taken in this order: keys, wheel of a shard, task; runs of a shard, gate. The others
//!   (queue of ready runs, report, events, timeouts) are held while nothing else is taken. No user
//!   code runs under any of them.
//! - A task leaves `WAITING` only under the lock of its shard, and any other phase only under its
//!   own. So whoever holds both knows the phase, and `node` is right as long as it is `WAITING`.
//! - Whoever makes a task `ENDED` is the one who [buries](Entry::bury) it, after the locks are
//!   released: exactly once.
//!
//! Checked by the models in loom_tests.rs.

use std::any::Any;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Arc, Weak};
use std::task::Waker;

use tokio_util::sync::CancellationToken;

use crate::drive::worker::share_last_woken;
use crate::sync::atomic::{AtomicU8, AtomicU32};
use crate::sync::{Mutex, Projection, project};

use super::claim::Claim;
use super::error::TaskError;
use super::inner::Inner;
use super::options::Options;
use super::plan::Plan;
use super::run;
use super::shutdown::Ending;
use super::work::{Outcome, Work};

/// Where a task is, see above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Waiting,
    Due,
    Running,
    Ended,
}

/// Bits of [`Head::flags`]. None of them guards other memory.
pub(super) mod flag {
    /// Somebody holds the task's handle and may ask for its output.
    pub(in crate::scheduler) const HANDLE: u8 = 1;
    /// The run in progress is to end at its next step.
    pub(in crate::scheduler) const ABORT: u8 = 2;
    /// The wall clock decides when it is due.
    pub(in crate::scheduler) const CALENDAR: u8 = 4;
    /// It begins its runs as tasks of their own, which may overlap.
    pub(in crate::scheduler) const OVERLAP: u8 = 8;
    /// Either of these.
    pub(in crate::scheduler) const PLANNED: u8 = CALENDAR | OVERLAP;
    /// Its runs need a place at a gate of their own.
    pub(in crate::scheduler) const GATED: u8 = 16;
    /// It is a run of a task that overlaps itself.
    pub(in crate::scheduler) const CHILD: u8 = 32;
    /// Another task has its place among those that are live.
    pub(in crate::scheduler) const DISPLACED: u8 = 64;
}

/// What is known of a task without its lock. Eight bytes.
#[derive(Debug)]
pub(super) struct Head {
    /// Its index in the wheel of its shard while it waits there, and then in the list of runs.
    node: AtomicU32,
    phase: AtomicU8,
    flags: AtomicU8,
    shard: u8,
    priority: i8,
}

impl Head {
    pub(super) fn new(shard: usize, priority: i8, flags: u8) -> Self {
        Head {
            node: AtomicU32::new(u32::MAX),
            phase: AtomicU8::new(Phase::Due as u8),
            flags: AtomicU8::new(flags),
            shard: u8::try_from(shard).expect("there are at most 256 shards"),
            priority,
        }
    }

    pub(super) fn shard(&self) -> usize {
        usize::from(self.shard)
    }

    pub(super) fn priority(&self) -> i8 {
        self.priority
    }

    /// Under the lock of the wheel or that of the runs.
    pub(super) fn node(&self) -> u32 {
        // Relaxed: written and read under one lock, that of where the task is.
        self.node.load(Relaxed)
    }

    /// Under the lock of the wheel or that of the runs.
    pub(super) fn set_node(&self, node: u32) {
        self.node.store(node, Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        // Pairs with `set_phase`. Only a look without the locks relies on it.
        match self.phase.load(Acquire) {
            0 => Phase::Waiting,
            1 => Phase::Due,
            2 => Phase::Running,
            _ => Phase::Ended,
        }
    }

    /// Under the locks that the phase at hand asks for.
    pub(super) fn set_phase(&self, phase: Phase) {
        // Publishes what the caller has done to the task to who looks without the locks.
        self.phase.store(phase as u8, Release);
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags.load(Acquire) & flag != 0
    }

    pub(super) fn raise(&self, flag: u8) {
        self.flags.fetch_or(flag, AcqRel);
    }

    pub(super) fn lower(&self, flag: u8) {
        self.flags.fetch_and(!flag, AcqRel);
    }
}

/// A task of any kind of work.
pub(super) trait Entry: Send + Sync {
    fn head(&self) -> &Head;

    /// The task's lock, and what most tasks do without.
    fn lock(&self) -> Projection<'_, Option<Box<Extra>>>;

    /// Begins a run for which there is a place.
    fn begin(self: Arc<Self>, inner: &Inner, claim: Claim);

    /// Drops the work of a task that has ended without an outcome, and tells who waits for it.
    fn bury(&self, inner: &Inner, why: TaskError);

    /// A task that does one run of this one.
    fn child(self: Arc<Self>) -> Option<Arc<dyn Entry>>;
}

/// What a task needs that is more than a closure to be run once. Made when it is needed.
#[derive(Default)]
pub(super) struct Extra {
    /// `None`: the scheduler's own.
    pub(super) options: Option<Arc<Options>>,
    pub(super) plan: Option<Plan>,
    /// How many more runs it may have, this one included.
    pub(super) runs_left: Option<u64>,
    /// Attempts of the run at hand that have failed.
    pub(super) failed: u32,
    /// While it is paused: the tick at which it would have been due.
    pub(super) paused: Option<u64>,
    /// It is not to run again.
    pub(super) cancelled: bool,
    pub(super) token: Option<CancellationToken>,
    pub(super) waker: Option<Waker>,
    /// `Result<Value, TaskError<Error>>` of the task's work, or of the last run by now of one that
    /// overlaps itself.
    pub(super) output: Option<Box<dyn Any + Send>>,
    /// The outcome is final, whether it was asked for by now or not.
    pub(super) delivered: bool,
    /// The runs of a task that overlaps itself, those that have ended among them; how many have not;
    /// and the task of such a run.
    pub(super) children: Vec<Weak<dyn Entry>>,
    pub(super) overlapping: u32,
    pub(super) parent: Option<Arc<dyn Entry>>,
    /// The run's task has its parent in hand, which is due, until the run begins or will not.
    pub(super) holds_parent: bool,
    /// Runs of it have been cut off.
    pub(super) cut_off: Option<Ending>,
}

impl Extra {
    /// Whether the task may run more than once.
    pub(super) fn recurs(&self) -> bool {
        self.plan.as_ref().is_some_and(Plan::recurs)
    }
}

/// A task of one kind of work.
pub(super) struct Task<W: Work> {
    pub(super) head: Head,
    pub(super) cell: Mutex<Cell<W>>,
}

pub(super) struct Cell<W> {
    pub(super) extra: Option<Box<Extra>>,
    /// Taken out while an attempt begins, and for good with the last.
    pub(super) work: Option<W>,
}

/// How a task of this work ends.
pub(super) type Output<W> = Result<
    <<W as Work>::Outcome as Outcome>::Value,
    TaskError<<<W as Work>::Outcome as Outcome>::Error>,
>;

impl<W: Work> Task<W> {
    pub(super) fn new(head: Head, extra: Option<Box<Extra>>, work: W) -> Arc<Self> {
        Arc::new(Task {
            head,
            cell: Mutex::new(Cell {
                extra,
                work: Some(work),
            }),
        })
    }

    /// Keeps the outcome of a task that has ended for its handle, and tells who waits for it.
    pub(super) fn deliver(&self, inner: &Inner, output: Output<W>) {
        let mut cell = self.cell.lock();
        let parent = cell.extra.as_ref().and_then(|extra| extra.parent.clone());
        let first = !cell.extra.as_ref().is_some_and(|extra| extra.delivered);
        let wanted = first && self.head.has(flag::HANDLE);
        if !wanted && parent.is_none() {
            drop(cell);
            inner.contain("drop of an outcome", || drop(output));
            return;
        }
        let ending = match &output {
            Err(TaskError::Cancelled) => Ending::Cancelled,
            Err(TaskError::Missed(_)) => Ending::NeverStarted,
            Err(TaskError::Aborted) => Ending::Aborted,
            Err(TaskError::Abandoned) => Ending::Abandoned,
            _ => Ending::Completed,
        };
        let mut output: Option<Box<dyn Any + Send>> = Some(Box::new(output));
        let mut waker = None;
        if wanted {
            let extra = cell.extra.get_or_insert_default();
            extra.delivered = true;
            waker = extra.waker.take();
            // The outcome of a run, of one that overlaps itself, is worth more than that no other
            // will begin.
            if extra.output.is_none() {
                extra.output = output.take();
            }
        }
        drop(cell);
        match (parent, output) {
            (Some(parent), Some(output)) => inner.child_ended(self, &parent, ending, output),
            (_, unwanted) => {
                inner.contain("drop of an outcome", || drop(unwanted));
            }
        }
        if let Some(waker) = waker {
            inner.contain("waker", || waker.wake());
            // A runner may go on with another run.
            share_last_woken();
        }
    }
}

impl<W: Work> Entry for Task<W> {
    fn head(&self) -> &Head {
        &self.head
    }

    fn lock(&self) -> Projection<'_, Option<Box<Extra>>> {
        project(self.cell.lock(), |cell| &cell.extra, |cell| &mut cell.extra)
    }

    fn begin(self: Arc<Self>, inner: &Inner, claim: Claim) {
        // A runtime that has shut down drops the run, and with it the claim, which then ends the
        // task.
        inner.first_step(Box::pin(run::run(self, claim)));
    }

    fn bury(&self, inner: &Inner, why: TaskError) {
        let work = self.cell.lock().work.take();
        inner.contain("drop of a task's work", || drop(work));
        let why = match why {
            TaskError::Missed(late) => TaskError::Missed(late),
            TaskError::Aborted => TaskError::Aborted,
            TaskError::Abandoned => TaskError::Abandoned,
            _ => TaskError::Cancelled,
        };
        inner.ended(self);
        self.deliver(inner, Err(why));
    }

    fn child(self: Arc<Self>) -> Option<Arc<dyn Entry>> {
        let mut cell = self.cell.lock();
        if self.head.phase() != Phase::Due {
            return None;
        }
        let work = cell.work.as_ref()?.share()?;
        let extra = cell.extra.as_mut()?;
        let flags = flag::GATED | flag::CHILD;
        let head = Head::new(self.head.shard(), self.head.priority(), flags);
        let child_extra = Extra {
            options: extra.options.clone(),
            // Held back in the meantime, it is let go with the rest.
            paused: extra.paused.map(|_| 0),
            parent: Some(self.clone()),
            holds_parent: true,
            ..Extra::default()
        };
        let child: Arc<dyn Entry> = Task::new(head, Some(Box::new(child_extra)), work);
        // Now and then, so that each costs no more than another look at it.
        if extra.children.len() > 16 + 2 * extra.overlapping as usize {
            extra.children.retain(|child| child.strong_count() > 0);
        }
        extra.children.push(Arc::downgrade(&child));
        extra.overlapping += 1;
        Some(child)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::super::work::Async;
    use super::*;

    #[test]
    fn a_task_is_forty_bytes_and_its_closure() {
        fn size<F, A>(_: &F) -> usize
        where
            F: FnMut() -> A + Send + 'static,
            A: Future<Output = ()> + Send + 'static,
        {
            size_of::<Task<Async<F>>>()
        }
        let counter = Arc::new(0_u64);
        let work = move || {
            drop(counter.clone());
            std::future::ready(())
        };
        assert_eq!(size_of::<Head>(), 8);
        assert_eq!(size(&work), 24 + size_of_val(&work));
    }
}
