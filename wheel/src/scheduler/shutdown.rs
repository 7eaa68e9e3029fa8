//! How a scheduler ends: what becomes of the pending and the running, and the report of it.
//!
//! 1. New tasks are refused. Draining: what recurs is cancelled, the rest runs when it is due, until
//!    the deadline.
//! 2. What is pending is cancelled, what is due and has not begun too; what runs is told.
//! 3. The runs in progress are waited for, until shortly before the deadline.
//! 4. Those that are left are cut off at their next step, and waited for until the deadline.
//! 5. The driver ends.
//!
//! The steps are a task of their own, so that a caller who stops waiting does not stop them. A run
//! that waits for them itself is neither waited for nor cut off.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::watch;

use crate::sync::Mutex;

use super::claim::{Claim, advance_all};
use super::entry::{Entry, Phase, flag};
use super::error::TaskError;
use super::gate::Gate;
use super::inner::{CLOSED, DRAINING, Inner};
use super::plan::Plan;
use super::shard::InProgress;
use super::timeout::Sleep;

/// What a shutdown does with pending tasks, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Grace {
    run_pending: bool,
    timeout: Duration,
}

impl Grace {
    /// Pending tasks are cancelled; runs in progress have 30 s to end.
    pub fn cancel_pending() -> Self {
        Grace {
            run_pending: false,
            timeout: Duration::from_secs(30),
        }
    }

    /// Pending one-shots run when they are due, if that is within 30 s; the rest is cancelled, and
    /// what recurs at once. Retries take place within that time.
    pub fn run_pending() -> Self {
        Grace {
            run_pending: true,
            timeout: Duration::from_secs(30),
        }
    }

    /// How long the shutdown may take in all, on the scheduler's clock. Runs are cut off a tenth of
    /// it before that, at most 500 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// How the tasks ended that had not ended when a shutdown began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Endings {
    /// Ran to an end of their own, well or not.
    pub completed: u64,
    /// Were waiting for their time, or for a next attempt.
    pub cancelled: u64,
    /// Were running, and were cut off.
    pub aborted: u64,
    /// Were due, and had not begun: in a queue, or without a free worker. Of a drain also those that
    /// would have been too late.
    pub never_started: u64,
    /// Could not be cut off: blocking work, or work that does not return to its executor. They go
    /// on, and nothing waits for them.
    pub abandoned: u64,
}

impl Endings {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.completed + self.cancelled + self.aborted + self.never_started + self.abandoned
    }

    fn count(&mut self, ending: Ending) {
        *match ending {
            Ending::Completed => &mut self.completed,
            Ending::Cancelled => &mut self.cancelled,
            Ending::Aborted => &mut self.aborted,
            Ending::NeverStarted => &mut self.never_started,
            Ending::Abandoned => &mut self.abandoned,
        } += 1;
    }
}

/// What a shutdown found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Of all tasks.
    pub all: Endings,
    /// By name of task; those without one are called "task".
    pub by_name: BTreeMap<Arc<str>, Endings>,
    /// How long it took, on the scheduler's clock.
    pub took: Duration,
}

/// How a task ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    Completed,
    Cancelled,
    Aborted,
    NeverStarted,
    Abandoned,
}

/// Counts endings from the beginning of a shutdown on.
pub(super) struct Tally {
    open: AtomicBool,
    report: Mutex<Report>,
    begun: AtomicBool,
    done: watch::Sender<bool>,
    /// How many runs in progress wait for the shutdown themselves. Written under the lock of the
    /// run's shard, together with `InProgress::inside`.
    inside: AtomicUsize,
}

#[derive(Default)]
struct Report {
    so_far: ShutdownReport,
    /// The shutdown is over. What ends now, of a run that waited for it, was not a part of it.
    is_final: bool,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            open: AtomicBool::new(false),
            report: Mutex::default(),
            begun: AtomicBool::new(false),
            done: watch::Sender::new(false),
            inside: AtomicUsize::new(0),
        }
    }
}

impl Tally {
    /// From now on endings are counted.
    pub(super) fn opens(&self) {
        // Pairs with the load in `ended`.
        self.open.store(true, Release);
    }

    pub(super) fn so_far(&self) -> ShutdownReport {
        self.report.lock().so_far.clone()
    }

    /// A run does not wait any more.
    pub(super) fn leaves(&self) {
        self.inside.fetch_sub(1, SeqCst);
    }

    pub(super) fn ended(&self, ending: Ending, name: impl FnOnce() -> Arc<str>) {
        // Pairs with the store when a shutdown begins: what it finds alive is counted.
        if self.open.load(Acquire) {
            let name = name();
            let mut report = self.report.lock();
            if !report.is_final {
                report.so_far.all.count(ending);
                let of_name = report.so_far.by_name.entry(name).or_default();
                of_name.count(ending);
            }
        }
    }
}

impl Inner {
    /// Shuts down, or waits for the shutdown that has begun.
    pub(super) async fn shutdown(self: &Arc<Self>, grace: Grace) -> ShutdownReport {
        // Relaxed: it only chooses who begins; the others wait for `done`.
        let first = !self.tally.begun.swap(true, Relaxed);
        let _inside = super::Run::current_of(self).and_then(|entry| Inside::new(self, entry));
        if first {
            self.tally.opens();
            let steps = Steps {
                inner: self.clone(),
                all_done: false,
            };
            drop(self.runtime.spawn(steps.go(grace)));
        }
        let mut done = self.tally.done.subscribe();
        // The sender lives as long as `self`.
        let _ = done.wait_for(|done| *done).await;
        self.tally.so_far()
    }

    async fn steps(self: &Arc<Self>, grace: Grace) {
        let began = self.clock.now();
        let margin = (grace.timeout / 10).min(Duration::from_millis(500));
        let mut deadline = pin!(Sleep::new(self.clone(), 0, grace.timeout - margin));
        let mut end = pin!(Sleep::new(self.clone(), 0, grace.timeout));
        if grace.run_pending {
            self.drain(self.ticks.deadline(began, grace.timeout - margin));
            let is_drained = || self.live() <= self.held_up() || self.is_closed();
            first_of(self.until(is_drained), deadline.as_mut()).await;
        }
        self.close();
        let is_over = || self.in_progress() <= self.inside();
        if !first_of(self.until(is_over), deadline.as_mut()).await {
            for run in self.outside() {
                self.cut_off(&*run);
            }
            first_of(self.until(is_over), end.as_mut()).await;
            self.bury_running(Ending::Abandoned, TaskError::Abandoned);
        }
        self.stop_driver().await;
        self.tally.report.lock().so_far.took = self.clock.now().saturating_duration_since(began);
    }

    /// How many of the runs in progress wait for the shutdown themselves.
    fn inside(&self) -> usize {
        self.tally.inside.load(SeqCst)
    }

    /// How many tasks cannot end before the shutdown does: those of the runs that wait for it, and
    /// the tasks that these are overlapping runs of.
    fn held_up(&self) -> usize {
        if self.inside() == 0 {
            return 0;
        }
        let inside = self.runs_where(|run| run.inside > 0);
        let parent = |run: &Arc<dyn Entry>| {
            let guard = run.lock();
            let parent = guard.as_ref()?.parent.as_ref()?;
            Some(Arc::as_ptr(parent).addr())
        };
        let parents: HashSet<usize> = inside.iter().filter_map(parent).collect();
        inside.len() + parents.len()
    }

    /// The runs in progress that do not wait for the shutdown themselves.
    fn outside(&self) -> Vec<Arc<dyn Entry>> {
        self.runs_where(|run| run.inside == 0)
    }

    fn running(&self) -> Vec<Arc<dyn Entry>> {
        self.runs_where(|_| true)
    }

    fn runs_where(&self, is_wanted: impl Fn(&InProgress) -> bool) -> Vec<Arc<dyn Entry>> {
        let mut running = Vec::new();
        for shard in &self.shards {
            let runs = shard.runs.lock();
            let wanted = runs.slab.iter().filter(|(_, run)| is_wanted(run));
            running.extend(wanted.map(|(_, run)| run.entry.clone()));
        }
        running
    }

    /// Refuses new tasks, and cancels what recurs, is paused, or would come after `last`.
    fn drain(&self, last: u64) {
        let moment = self.moment();
        self.closing().fetch_max(DRAINING);
        for shard in &self.shards {
            let mut cancelled = Vec::new();
            {
                let mut state = shard.lock();
                state.closed = true;
                for (tick, entry) in state.take_tasks() {
                    let stays_away = entry.lock().as_ref().is_some_and(|extra| {
                        // It may be filed to look at the calendar long before it is due.
                        let wall = extra.plan.as_ref().and_then(Plan::wall);
                        let due = wall.map(|wall| self.ticks.at_or_after(moment.instant_of(wall)));
                        let due = due.map_or(tick, |due| due.max(tick));
                        extra.recurs() || extra.paused.is_some() || due > last
                    });
                    if stays_away || tick > last {
                        let guard = entry.lock();
                        let ended = self.retire(entry.head(), guard.as_deref(), Ending::Cancelled);
                        drop(guard);
                        if ended {
                            cancelled.push(entry);
                        }
                    } else {
                        shard.insert(&mut state, tick, entry);
                    }
                }
            }
            self.bury_all(cancelled);
        }
        self.tell_runs();
    }

    /// Tells the runs in progress that a shutdown has begun.
    fn tell_runs(&self) {
        for entry in self.running() {
            let token = entry.lock().as_ref().and_then(|extra| extra.token.clone());
            if let Some(token) = token {
                self.contain("cancellation", || token.cancel());
            }
        }
    }

    /// Cancels all that has not begun, and tells what runs. Whoever calls it finds everything closed
    /// afterwards.
    pub(super) fn close(&self) {
        self.closing().fetch_max(CLOSED);
        for shard in &self.shards {
            let mut cancelled = Vec::new();
            {
                let mut state = shard.lock();
                state.closed = true;
                for (_, entry) in state.take_tasks() {
                    let guard = entry.lock();
                    let ended = self.retire(entry.head(), guard.as_deref(), Ending::Cancelled);
                    drop(guard);
                    if ended {
                        cancelled.push(entry);
                    }
                }
            }
            self.bury_all(cancelled);
        }
        let mut never_started = self.running();
        never_started.retain(|entry| self.end(&**entry, Phase::Due, Ending::NeverStarted));
        for entry in &never_started {
            if let Some(gate) = self.gate_of(&**entry) {
                Claim::leave_own_queue(gate.drain());
            }
        }
        if let Some(gate) = &self.gate {
            Claim::leave_queue(gate.drain());
        }
        drop(self.ready.drain());
        self.bury_all(never_started);
        self.tell_runs();
        self.notify_watchers();
    }

    /// Buries tasks that have just been made to end, and counted.
    pub(super) fn bury_all(&self, entries: Vec<Arc<dyn Entry>>) {
        for entry in entries {
            let stale = entry.lock().as_mut().and_then(|extra| extra.output.take());
            self.contain("drop of an outcome", || drop(stale));
            self.tell_cancelled(&*entry);
            entry.bury(self, TaskError::Cancelled);
        }
    }

    /// Ends the tasks of runs that will not come to an end in time.
    fn bury_running(&self, ending: Ending, why: TaskError) {
        for run in self.outside() {
            if self.end(&*run, Phase::Running, ending) {
                run.bury(self, why.clone());
            }
        }
    }

    /// The runtime has dropped what was to run on it: it ends. That must be the end of the scheduler too,
    /// and at once: a runtime drops its tasks one after another, and each run among them makes room for
    /// the next, of which a driver that is a thread makes ever more.
    pub(super) fn runtime_has_gone(&self) {
        // Relaxed: it only chooses who does it.
        if self.runtime_gone.swap(true, Relaxed) {
            // Put there by somebody who saw that all was open before the first emptied it.
            drop(self.ready.drain());
        } else {
            self.abandon();
        }
    }

    /// Stops everything at once, without waiting for it.
    pub(super) fn abandon(&self) {
        self.close();
        for run in self.running() {
            self.cut_off(&*run);
        }
        self.life.stop();
        self.alarm.wake();
    }
}

/// Whether `a` was ready before `b`.
async fn first_of(a: impl Future, mut b: std::pin::Pin<&mut Sleep>) -> bool {
    let mut a = pin!(a);
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        b.as_mut().poll(cx).map(|()| false)
    })
    .await
}

/// A run that waits for the end of its own scheduler, which does not wait for the run. Others get its
/// places meanwhile: they may have to end first.
struct Inside<'a> {
    inner: &'a Inner,
    entry: Arc<dyn Entry>,
    /// Which run of it.
    number: u64,
}

impl<'a> Inside<'a> {
    /// `None` if the run has been given up already, and only its code goes on.
    fn new(inner: &'a Inner, entry: Arc<dyn Entry>) -> Option<Self> {
        let (number, is_first) = inner.in_progress_of(&*entry, |run| {
            run.inside += 1;
            if run.inside == 1 {
                inner.tally.inside.fetch_add(1, SeqCst);
            }
            (run.number, run.inside == 1)
        })?;
        if is_first {
            let own = inner.own_gate_of(&*entry);
            let next_of_key = own.and_then(|gate| gate.leave());
            let next = inner.gate.as_ref().and_then(Gate::leave);
            advance_all(next_of_key.into_iter().chain(next));
        }
        inner.notify_watchers();
        Some(Inside {
            inner,
            entry,
            number,
        })
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let inner = self.inner;
        // Under the lock of the runs, so that the claim cannot give the places up in between. It may
        // have ended, and left what waits for the shutdown to somebody else.
        let own = inner.own_gate_of(&*self.entry);
        let _ = inner.in_progress_of(&*self.entry, |run| {
            if run.number != self.number {
                return;
            }
            run.inside -= 1;
            if run.inside == 0 {
                inner.tally.leaves();
                own.iter().for_each(|gate| gate.come_back());
                inner.gate.iter().for_each(Gate::come_back);
            }
        });
    }
}

impl Inner {
    /// Does something to a run in progress, if it is that.
    fn in_progress_of<R>(
        &self,
        entry: &dyn Entry,
        act: impl FnOnce(&mut InProgress) -> R,
    ) -> Option<R> {
        let mut runs = self.shard_of(entry).runs.lock();
        let run = runs.slab.get_mut(entry.head().node() as usize)?;
        std::ptr::addr_eq(Arc::as_ptr(&run.entry), entry).then(|| act(run))
    }

    /// The gate at which a run has a place besides the scheduler's.
    fn own_gate_of(&self, entry: &dyn Entry) -> Option<Arc<Gate>> {
        let gated = entry.head().has(flag::GATED);
        gated.then(|| self.gate_of(entry)).flatten()
    }
}

/// The steps, which come to an end also when the runtime does in the middle of them.
struct Steps {
    inner: Arc<Inner>,
    all_done: bool,
}

impl Steps {
    async fn go(mut self, grace: Grace) {
        self.inner.steps(grace).await;
        self.all_done = true;
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if !self.all_done {
            self.inner.abandon();
            // The runtime drops them later.
            self.inner.bury_running(Ending::Aborted, TaskError::Aborted);
        }
        self.inner.tally.report.lock().is_final = true;
        self.inner.tally.done.send_replace(true);
    }
}
