//! What the handles, the driver and the runs of one scheduler share.
//!
//! The rules of who may do what to a task are at the top of entry.rs. `closing` only grows:
//!
//! | value | tasks from outside | the pending | who writes it |
//! |---|---|---|---|
//! | `OPEN` | accepted | run | |
//! | `DRAINING` | refused | run once; what recurs is cancelled | a draining shutdown |
//! | `CLOSED` | refused | cancelled | a shutdown; the drop of the scheduler |

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::drive::alarm::Alarm;
use crate::drive::life::Life;
use crate::drive::ticks::{NEVER, Ticks};
use crate::sync::{Mutex, Word};

use super::claim::Claim;
use super::entry::{Entry, Extra, Head, Phase, flag};
use super::error::{Refusal, TaskError};
use super::events::{Event, EventKind, Events};
use super::gate::Gate;
use super::keys::Keys;
use super::meters::Meters;
use super::options::Options;
use super::ready::Ready;
use super::recur::Past;
use super::shard::Shard;
use super::shutdown::{Ending, Tally};
use super::stats::{SchedulerStats, count};

pub(super) const OPEN: u64 = 0;
pub(super) const DRAINING: u64 = 1;
pub(super) const CLOSED: u64 = 2;

pub(super) struct Inner {
    pub(super) ticks: Ticks,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
    pub(super) shards: Box<[CachePadded<Shard>]>,
    pub(super) alarm: Alarm,
    pub(super) life: Life,
    closing: Word,
    pub(super) defaults: Arc<Options>,
    /// Places for runs of all tasks.
    pub(super) gate: Option<Gate>,
    pub(super) ready: Ready,
    pub(super) keys: Keys,
    pub(super) events: Events,
    meters: Meters,
    pub(super) tally: Tally,
    /// The driver has ended.
    pub(super) driver_gone: AtomicBool,
    /// The runtime ends, or has ended.
    pub(super) runtime_gone: AtomicBool,
    /// The driver, when it is a thread.
    pub(super) thread: Mutex<Option<JoinHandle<()>>>,
    /// Tasks that have not ended. Every access is SeqCst: the other side of each is that of
    /// `watchers`, see [`until`](Self::until).
    live: CachePadded<AtomicUsize>,
    max_pending: usize,
    /// The driver has taken tasks out that are not registered yet.
    pub(super) driver_busy: AtomicBool,
    /// How many wait for [`quiet`](Self::quiet).
    pub(super) watchers: Word,
    pub(super) quiet: Notify,
    random: Mutex<fastrand::Rng>,
    contained: AtomicU64,
    wakeups: AtomicU64,
}

/// What an [`Inner`] is made from.
pub(super) struct Parts {
    pub(super) name: String,
    pub(super) ticks: Ticks,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) runtime: Handle,
    pub(super) shards: usize,
    pub(super) alarm: Alarm,
    pub(super) defaults: Options,
    pub(super) max_running: Option<usize>,
    pub(super) max_pending: usize,
    pub(super) events: usize,
    pub(super) seed: Option<u64>,
}

impl Inner {
    pub(super) fn new(parts: Parts) -> Self {
        let workers = parts.runtime.metrics().num_workers();
        let random = parts
            .seed
            .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Inner {
            ticks: parts.ticks,
            clock: parts.clock,
            runtime: parts.runtime,
            shards: (0..parts.shards)
                .map(|_| CachePadded::new(Shard::new()))
                .collect(),
            alarm: parts.alarm,
            life: Life::new(),
            closing: Word::new(OPEN),
            defaults: Arc::new(parts.defaults),
            gate: parts.max_running.map(Gate::new),
            ready: Ready::new(workers),
            keys: Keys::default(),
            events: Events::new(parts.events),
            meters: Meters::new(&parts.name),
            tally: Tally::default(),
            driver_gone: AtomicBool::new(false),
            runtime_gone: AtomicBool::new(false),
            thread: Mutex::new(None),
            live: CachePadded::new(AtomicUsize::new(0)),
            max_pending: parts.max_pending,
            driver_busy: AtomicBool::new(false),
            watchers: Word::new(0),
            quiet: Notify::new(),
            random: Mutex::new(random),
            contained: AtomicU64::new(0),
            wakeups: AtomicU64::new(0),
        }
    }

    pub(super) fn shard_of(&self, entry: &dyn Entry) -> &Shard {
        &self.shards[entry.head().shard()]
    }

    /// The options of a task whose lock the caller holds.
    pub(super) fn options<'a>(&'a self, extra: Option<&'a Extra>) -> &'a Options {
        extra
            .and_then(|extra| extra.options.as_deref())
            .unwrap_or(&self.defaults)
    }

    pub(super) fn name_of(&self, entry: &dyn Entry) -> Arc<str> {
        self.options(entry.lock().as_deref()).name()
    }

    pub(super) fn gate_of(&self, entry: &dyn Entry) -> Option<Arc<Gate>> {
        self.options(entry.lock().as_deref()).gate.clone()
    }

    /// A number in 0..1.
    pub(super) fn random(&self) -> f64 {
        self.random.lock().f64()
    }

    /// A task may be filed for this instant, with `jitter` at random added to it.
    pub(super) fn tick_of(&self, at: Instant, jitter: Duration) -> u64 {
        let at = if jitter.is_zero() {
            Some(at)
        } else {
            at.checked_add(jitter.mul_f64(self.random()))
        };
        at.map_or(NEVER, |at| self.ticks.at_or_after(at))
    }

    /// Counts one more task, if there is room for it.
    #[must_use]
    pub(super) fn admit(&self) -> bool {
        let one_more = |live| (live < self.max_pending).then(|| live + 1);
        let admitted = self.live.fetch_update(SeqCst, SeqCst, one_more).is_ok();
        if admitted {
            self.meter(Meters::one_more);
        }
        admitted
    }

    /// Takes that back. A drain may have seen a task that was never there.
    pub(super) fn unadmit(&self) {
        self.live.fetch_sub(1, SeqCst);
        self.meter(Meters::one_less);
        self.notify_watchers();
    }

    /// Files a new task, for which there is room. To be [announced](Self::announce) then.
    pub(super) fn file(&self, entry: Arc<dyn Entry>, tick: u64) -> Result<(), Refusal> {
        let shard = self.shard_of(&*entry);
        {
            let mut state = shard.lock();
            if state.closed {
                return Err(Refusal::Closed);
            }
            shard.insert(&mut state, tick, entry);
        }
        self.alarm.ring(tick);
        count(&shard.counts.scheduled);
        Ok(())
    }

    /// Tells listeners, which are user code, of a new task.
    pub(super) fn announce(&self, entry: &dyn Entry) {
        self.event(entry, || EventKind::Scheduled);
    }

    /// Lets a task go that was filed for [`NEVER`] until listeners have been told of it.
    pub(super) fn release(&self, entry: &dyn Entry, tick: u64) {
        let shard = self.shard_of(entry);
        let mut state = shard.lock();
        let mut guard = entry.lock();
        let node = entry.head().node();
        // Others may have moved it since, or held it back.
        if entry.head().phase() != Phase::Waiting || state.deadline(node) != NEVER {
            return;
        }
        match guard.as_mut().and_then(|extra| extra.paused.as_mut()) {
            Some(paused) => {
                *paused = tick.min(*paused);
                return;
            }
            None => shard.reschedule(&mut state, node, tick),
        }
        drop(guard);
        drop(state);
        self.alarm.ring(tick);
    }

    /// Files a task again that is due or running, unless it has been cancelled. A paused one keeps
    /// its tick for later. True if it is in the wheel now.
    pub(super) fn file_again(&self, entry: &Arc<dyn Entry>, tick: u64, retry: bool) -> bool {
        let shard = self.shard_of(&**entry);
        let mut state = shard.lock();
        let mut extra = entry.lock();
        if entry.head().phase() == Phase::Ended {
            return false;
        }
        let closing = self.closing.load();
        let may_go_on = closing == OPEN || (closing == DRAINING && retry);
        if !may_go_on || extra.as_ref().is_some_and(|extra| extra.cancelled) {
            return false;
        }
        let mut at = tick;
        if let Some(extra) = extra.as_mut()
            && let Some(paused) = &mut extra.paused
        {
            if closing == DRAINING {
                return false;
            }
            *paused = tick;
            at = NEVER;
        }
        shard.insert(&mut state, at, entry.clone());
        drop(extra);
        drop(state);
        self.alarm.ring(at);
        true
    }

    /// A task has been taken out of the wheel. Returns its run, if that may begin.
    #[must_use]
    pub(super) fn come_due(self: &Arc<Self>, entry: Arc<dyn Entry>, tick: u64) -> Option<Claim> {
        if !entry.head().has(flag::PLANNED) {
            return Claim::new(self.clone(), entry, tick).advance(self);
        }
        let mut run = None;
        // The clock is user code, whose panic must not leave a task in nobody's hands.
        if !self.contain("clock", || run = self.come_due_by_plan(&entry, tick)) {
            self.cut(&*entry);
        }
        run
    }

    /// The same for a task whose plan decides what becomes of it.
    fn come_due_by_plan(self: &Arc<Self>, entry: &Arc<dyn Entry>, tick: u64) -> Option<Claim> {
        let tick = match self.due_by_calendar(&**entry, tick) {
            Ok(tick) => tick,
            Err(later) => {
                // A drain lets it go on, like an attempt, if it runs but once.
                let recurs = entry.lock().as_ref().is_some_and(|extra| extra.recurs());
                if !self.file_again(entry, later, !recurs)
                    && self.give_up(&**entry, Ending::Cancelled)
                {
                    self.bury_all(vec![entry.clone()]);
                }
                return None;
            }
        };
        if entry.head().has(flag::OVERLAP) {
            return self.start_child(entry, tick);
        }
        Claim::new(self.clone(), entry.clone(), tick).advance(self)
    }

    /// Makes a run of a task that may overlap itself. The task is in its hands until it begins: there
    /// is never more than one that waits for a place, however late the task is.
    fn start_child(self: &Arc<Self>, entry: &Arc<dyn Entry>, tick: u64) -> Option<Claim> {
        let paused = |extra: &Extra| extra.paused.is_some();
        if entry.lock().as_deref().is_some_and(paused) {
            self.file_again_or_end(entry, Some(tick), Duration::ZERO);
            return None;
        }
        if !self.admit() {
            let now = self.clock.now();
            let late = self.late_at(tick, now);
            count(&self.shard_of(&**entry).counts.missed);
            self.meter(Meters::missed);
            self.event(&**entry, || EventKind::Missed { late });
            self.go_on_overlapping(entry, late, || Past::Missed(now));
            return None;
        }
        let Some(child) = entry.clone().child() else {
            // It has been cancelled.
            self.unadmit();
            return None;
        };
        Claim::new(self.clone(), child, tick).advance(self)
    }

    /// A run of a task that may overlap itself has begun, or will not: files the task for its next.
    pub(super) fn go_on_overlapping(
        &self,
        entry: &Arc<dyn Entry>,
        late: Duration,
        past: impl FnOnce() -> Past,
    ) {
        let mut next = None;
        // The clock is user code, whose panic must not leave a task in nobody's hands.
        if self.contain("clock", || next = self.next_of(&**entry, &past())) {
            self.file_again_or_end(entry, next, late);
        } else {
            self.cut(&**entry);
        }
    }

    fn file_again_or_end(&self, entry: &Arc<dyn Entry>, next: Option<u64>, late: Duration) {
        match next {
            Some(next) if self.file_again(entry, next, false) => {}
            Some(_) => {
                if self.give_up(&**entry, Ending::Cancelled) {
                    self.bury_all(vec![entry.clone()]);
                }
            }
            None => {
                if self.give_up(&**entry, Ending::Completed) {
                    entry.bury(self, TaskError::Missed(late));
                }
            }
        }
    }

    /// A due task is not filed again. Whether that is its end, which has been counted then.
    #[must_use]
    fn give_up(&self, entry: &dyn Entry, ending: Ending) -> bool {
        let guard = entry.lock();
        entry.head().phase() == Phase::Due && self.retire(entry.head(), guard.as_deref(), ending)
    }

    /// [`retire`], and counts the end, if it is that. Under the same locks, so that whoever ends the rest
    /// of a scheduler finds a task either where it was or counted.
    #[must_use]
    pub(super) fn retire(&self, head: &Head, extra: Option<&Extra>, ending: Ending) -> bool {
        let ended = retire(head, extra);
        if ended {
            self.count_ending_locked(head, extra, ending);
        }
        ended
    }

    /// A run of a task that may overlap itself has ended like this, with this output.
    pub(super) fn child_ended(
        &self,
        child: &dyn Entry,
        parent: &Arc<dyn Entry>,
        ending: Ending,
        output: Box<dyn Any + Send>,
    ) {
        let holds_parent = child
            .lock()
            .as_mut()
            .is_some_and(|extra| mem::take(&mut extra.holds_parent));
        let mut guard = parent.lock();
        let Some(extra) = guard.as_mut() else {
            return;
        };
        extra.overlapping -= 1;
        let missed = matches!(ending, Ending::NeverStarted);
        if matches!(ending, Ending::Aborted | Ending::Abandoned) {
            extra.cut_off.get_or_insert(ending);
        }
        let ending = match extra.cut_off {
            Some(cut_off) => cut_off,
            None if extra.cancelled => Ending::Cancelled,
            None => ending,
        };
        let phase = parent.head().phase();
        let last = extra.overlapping == 0 && phase == Phase::Running;
        if last {
            parent.head().set_phase(Phase::Ended);
            self.count_ending_locked(parent.head(), guard.as_deref(), ending);
        }
        let unwanted = match guard.as_mut() {
            Some(extra) if parent.head().has(flag::HANDLE) && !extra.delivered => {
                // The outcome of a run is worth more than that there was none.
                if missed && extra.output.is_some() {
                    Some(output)
                } else {
                    extra.output.replace(output)
                }
            }
            _ => Some(output),
        };
        drop(guard);
        self.contain("drop of an outcome", || drop(unwanted));
        if last {
            parent.bury(self, TaskError::Cancelled);
        } else if holds_parent && phase == Phase::Due {
            self.go_on_overlapping(parent, Duration::ZERO, || Past::Missed(self.clock.now()));
        }
    }

    /// Moves a task on to its end, if it is in this phase, which is not waiting, and counts that.
    #[must_use]
    pub(super) fn end(&self, entry: &dyn Entry, from: Phase, ending: Ending) -> bool {
        let guard = entry.lock();
        let ends = entry.head().phase() == from;
        if ends {
            entry.head().set_phase(Phase::Ended);
            self.count_ending_locked(entry.head(), guard.as_deref(), ending);
        }
        drop(guard);
        ends
    }

    /// A task has ended and is buried.
    pub(super) fn ended(&self, entry: &dyn Entry) {
        if !entry.head().has(flag::DISPLACED) {
            self.live.fetch_sub(1, SeqCst);
            self.meter(Meters::one_less);
        }
        self.keys.task_ended(self, entry);
        self.notify_watchers();
    }

    /// The runs of a key are one less.
    pub(super) fn key_left(&self, entry: &dyn Entry) {
        self.keys.run_ended(self, entry);
    }

    /// A claim was dropped before its run ended: the runtime has shut down, or the run was cut off.
    pub(super) fn cut(&self, entry: &dyn Entry) {
        if self.end(entry, Phase::Running, Ending::Aborted) {
            count(&self.shard_of(entry).counts.aborted);
            self.meter(|meters| meters.ended("aborted"));
            entry.bury(self, TaskError::Aborted);
        } else if self.end(entry, Phase::Due, Ending::NeverStarted) {
            self.tell_cancelled(entry);
            entry.bury(self, TaskError::Cancelled);
        }
    }

    /// Counts how a task has ended, for the report of a shutdown. A run of a task that overlaps itself
    /// is no task of its own to whoever reads that.
    pub(super) fn count_ending(&self, entry: &dyn Entry, ending: Ending) {
        self.count_ending_locked(entry.head(), entry.lock().as_deref(), ending);
    }

    /// The same under the task's lock.
    fn count_ending_locked(&self, head: &Head, extra: Option<&Extra>, ending: Ending) {
        if !head.has(flag::CHILD) {
            self.tally.ended(ending, || self.options(extra).name());
        }
    }

    /// Tells that a task will not run, likewise.
    pub(super) fn tell_cancelled(&self, entry: &dyn Entry) {
        if !entry.head().has(flag::CHILD) {
            count(&self.shard_of(entry).counts.cancelled);
            self.event(entry, || EventKind::Cancelled);
        }
    }

    /// A claim is dropped. Whether its run has places to give up: not if it ends while it waits for
    /// the shutdown of its scheduler.
    pub(super) fn unregister(&self, entry: &dyn Entry, slot: usize) -> bool {
        let mut runs = self.shard_of(entry).runs.lock();
        let gone = runs.slab.remove(slot);
        let inside = gone.inside > 0;
        if inside {
            self.tally.leaves();
        }
        drop(runs);
        drop(gone);
        self.notify_watchers();
        !inside
    }

    /// `OPEN`, `DRAINING` or `CLOSED`.
    pub(super) fn closing(&self) -> &Word {
        &self.closing
    }

    /// Whether claims are of no use any more.
    pub(super) fn is_closed(&self) -> bool {
        self.closing.load() == CLOSED
    }

    /// Due and running tasks.
    pub(super) fn in_progress(&self) -> usize {
        let runs = self.shards.iter().map(|shard| shard.runs.lock().slab.len());
        runs.sum()
    }

    pub(super) fn live(&self) -> usize {
        self.live.load(SeqCst)
    }

    /// A lower bound of the earliest deadline.
    pub(super) fn earliest(&self) -> u64 {
        let earliest = self.shards.iter().map(|shard| shard.earliest());
        earliest.min().unwrap_or(NEVER)
    }

    /// The earliest deadline, exactly.
    pub(super) fn next_tick(&self) -> u64 {
        let mut bound = self.earliest();
        loop {
            let at_bound = self.shards.iter().filter(|shard| shard.earliest() <= bound);
            let exact = at_bound
                .map(|shard| shard.refresh(&mut shard.lock()))
                .min()
                .unwrap_or(NEVER);
            let lowest = self.earliest();
            if exact <= lowest || lowest == NEVER {
                return exact.min(lowest);
            }
            bound = lowest;
        }
    }

    pub(super) fn woken(&self) {
        self.wakeups.fetch_add(1, Relaxed);
    }

    /// Tells the listeners, if there are any.
    pub(super) fn event(&self, entry: &dyn Entry, kind: impl FnOnce() -> EventKind) {
        if self.events.wanted() {
            let (task, key) = {
                let guard = entry.lock();
                let options = self.options(guard.as_deref());
                (options.name(), options.key.clone())
            };
            // The clock and the listeners' wakers are user code, and this is called where a task
            // must not be left half done.
            self.contain("event", || {
                self.events.send(Event {
                    task,
                    key,
                    kind: kind(),
                    at: self.clock.now(),
                });
            });
        }
    }

    /// Tells the recorder of metrics, which is user code.
    pub(super) fn meter(&self, tell: impl FnOnce(&Meters)) {
        if cfg!(feature = "metrics") {
            self.contain("metrics", || tell(&self.meters));
        }
    }

    /// Runs user code; a panic in it is counted and goes no further. Returns whether it ended well.
    pub(super) fn contain(&self, what: &str, user_code: impl FnOnce()) -> bool {
        let Err(payload) = catch_unwind(AssertUnwindSafe(user_code)) else {
            return true;
        };
        self.contained.fetch_add(1, Relaxed);
        #[cfg(feature = "tracing")]
        tracing::error!(what, message = panic_message(&*payload), "panic contained");
        #[cfg(not(feature = "tracing"))]
        let _ = what;
        forget_payload(payload);
        false
    }

    pub(super) fn stats(&self) -> SchedulerStats {
        let mut stats = SchedulerStats {
            live: self.live() as u64,
            in_progress: self.in_progress() as u64,
            contained: self.contained.load(Relaxed),
            wakeups: self.wakeups.load(Relaxed),
            ..SchedulerStats::default()
        };
        for shard in &self.shards {
            shard.counts.add_to(&mut stats);
        }
        stats
    }
}

/// A task that was waiting or due will not be due again, and so has ended, unless runs of it that
/// overlap go on: then it runs until the last of those has ended. Under the locks that its phase asks
/// for.
#[must_use]
pub(super) fn retire(head: &Head, extra: Option<&Extra>) -> bool {
    let goes_on = extra.is_some_and(|extra| extra.overlapping > 0);
    head.set_phase(if goes_on {
        Phase::Running
    } else {
        Phase::Ended
    });
    !goes_on
}

/// The words of a panic.
pub(super) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(not a string)")
}

/// The payload of a panic is user code too, and its own panic would be the end of the thread.
pub(super) fn forget_payload(payload: Box<dyn Any + Send>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        mem::forget(payload);
    }
}
