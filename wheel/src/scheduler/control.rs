//! What is done to a task from outside: it is cancelled, cut off, held back, moved, made room of, asked
//! for its next run.
//!
//! Each takes the locks of the task's shard and of the task, in this order, decides by the phase, and does
//! what may call user code after both are released. Clocks are read before.

use std::any::Any;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::drive::ticks::NEVER;

use super::claim::Claim;
use super::entry::{Entry, Phase, flag};
use super::error::TaskError;
use super::events::EventKind;
use super::inner::{Inner, OPEN};
use super::plan::Plan;
use super::shard::{State, Timed};
use super::shutdown::Ending;
use super::stats::count;

/// Who won when a task was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "only it tells whether a run is still in progress"]
pub enum Cancel {
    /// The call won: no run was in progress, and none will begin.
    Cancelled,
    /// A run was in progress. It goes on and has been [told](super::Run::stopping); no other will
    /// begin.
    Running,
    /// The task had ended before.
    Ended,
}

/// What is left of a task that had to make room for another.
pub(super) struct Displaced {
    taken: Option<Timed>,
    was_due: bool,
    /// An outcome that nobody will ask for.
    stale: Option<Box<dyn Any + Send>>,
}

/// What is left of a task that has been cancelled.
#[derive(Default)]
pub(super) struct CalledOff {
    /// `None`: it had ended before.
    was: Option<Phase>,
    ended: bool,
    /// Nobody has cancelled it before.
    first: bool,
    token: Option<CancellationToken>,
    /// Its runs that overlap.
    children: Vec<(Arc<dyn Entry>, CalledOff)>,
    taken: Option<Timed>,
    stale: Option<Box<dyn Any + Send>>,
}

impl Inner {
    /// Cancels a task.
    pub(super) fn cancel(&self, entry: &dyn Entry) -> Cancel {
        self.call_off(entry, false)
    }

    /// Cancels a task and cuts off the runs in progress.
    pub(super) fn abort(&self, entry: &dyn Entry) -> Cancel {
        self.call_off(entry, true)
    }

    /// Ends a task of which no run is in progress, as a cancellation would, and leaves any other as it
    /// is. The caller owes it [`bury_displaced`](Self::bury_displaced), outside of every lock.
    pub(super) fn displace(&self, entry: &dyn Entry) -> Option<Displaced> {
        let mut state = self.shard_of(entry).lock();
        let mut guard = entry.lock();
        let was = entry.head().phase();
        let overlaps = guard.as_ref().is_some_and(|extra| extra.overlapping > 0);
        if !matches!(was, Phase::Waiting | Phase::Due) || overlaps {
            return None;
        }
        Some(Displaced {
            taken: (was == Phase::Waiting).then(|| state.remove(entry.head().node())),
            was_due: was == Phase::Due,
            stale: {
                let _ended = self.retire(entry.head(), guard.as_deref(), Ending::Cancelled);
                // Its place among the live goes to the other.
                entry.head().raise(flag::DISPLACED);
                guard.as_mut().and_then(|extra| extra.output.take())
            },
        })
    }

    pub(super) fn bury_displaced(&self, entry: &dyn Entry, displaced: Displaced) {
        let Displaced {
            taken,
            was_due,
            stale,
        } = displaced;
        drop(taken);
        self.contain("drop of an outcome", || drop(stale));
        if was_due {
            self.leave_queues(entry);
        }
        self.tell_cancelled(entry);
        entry.bury(self, TaskError::Cancelled);
    }

    fn call_off(&self, entry: &dyn Entry, abort: bool) -> Cancel {
        let called_off = self.take_back(entry);
        self.tell_called_off(entry, called_off, abort)
    }

    /// What of a cancellation is done under the task's locks: from here on no run of it begins. The caller
    /// owes it [`tell_called_off`](Self::tell_called_off), outside of every lock.
    pub(super) fn take_back(&self, entry: &dyn Entry) -> CalledOff {
        let shard = self.shard_of(entry);
        let mut state = shard.lock();
        let mut guard = entry.lock();
        let head = entry.head();
        let was = head.phase();
        if was == Phase::Ended {
            return CalledOff::default();
        }
        let taken = (was == Phase::Waiting).then(|| state.remove(head.node()));
        let ended = was != Phase::Running && self.retire(head, guard.as_deref(), Ending::Cancelled);
        let first = ended || !mem::replace(&mut guard.get_or_insert_default().cancelled, true);
        let extra = guard.as_ref();
        let token = extra.and_then(|extra| extra.token.clone());
        let children = extra.map_or_else(Vec::new, |extra| extra.children.clone());
        // What its runs left does not count any more.
        let stale = if ended {
            guard.as_mut().and_then(|extra| extra.output.take())
        } else {
            None
        };
        drop(guard);
        drop(state);
        let take_back = |child: Arc<dyn Entry>| {
            let called_off = self.take_back(&*child);
            (child, called_off)
        };
        CalledOff {
            was: Some(was),
            ended,
            first,
            token,
            children: children
                .iter()
                .filter_map(Weak::upgrade)
                .map(take_back)
                .collect(),
            taken,
            stale,
        }
    }

    pub(super) fn tell_called_off(
        &self,
        entry: &dyn Entry,
        called_off: CalledOff,
        abort: bool,
    ) -> Cancel {
        let Some(was) = called_off.was else {
            return Cancel::Ended;
        };
        drop(called_off.taken);
        self.contain("drop of an outcome", || drop(called_off.stale));
        let head = entry.head();
        // Who has scheduled a task that overlaps itself knows of one task.
        if called_off.first && !head.has(flag::CHILD) {
            count(&self.shard_of(entry).counts.cancelled);
            self.event(entry, || EventKind::Cancelled);
        }
        let mut runs = was == Phase::Running && !head.has(flag::OVERLAP);
        for (child, called_off) in called_off.children {
            runs |= self.tell_called_off(&*child, called_off, abort) == Cancel::Running;
        }
        if runs {
            if let Some(token) = called_off.token {
                self.contain("cancellation", || token.cancel());
            }
            if abort {
                self.cut_off(entry);
            }
            return Cancel::Running;
        }
        if called_off.ended {
            if was == Phase::Due {
                self.leave_queues(entry);
            }
            entry.bury(self, TaskError::Cancelled);
        }
        Cancel::Cancelled
    }

    /// A due task may stand in a queue.
    fn leave_queues(&self, entry: &dyn Entry) {
        if let Some(gate) = self.gate_of(entry) {
            Claim::leave_own_queue(gate.forget_one(Claim::is_dead));
        }
        if let Some(gate) = &self.gate {
            Claim::leave_queue(gate.forget_one(Claim::is_dead));
        }
    }

    /// Makes the run in progress end at its next step.
    pub(super) fn cut_off(&self, entry: &dyn Entry) {
        entry.head().raise(flag::ABORT);
        let waker = {
            let runs = self.shard_of(entry).runs.lock();
            let run = runs.slab.get(entry.head().node() as usize);
            // The run may have ended, and another have the slot.
            run.filter(|run| std::ptr::addr_eq(Arc::as_ptr(&run.entry), entry))
                .and_then(|run| run.waker.clone())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves a task that waits to `tick`.
    pub(super) fn reschedule(&self, entry: &dyn Entry, at: Option<Instant>) -> bool {
        // What lies in the past is due now, and not late.
        let now = self.clock.now();
        let moment = self.moment_for(entry);
        let at = at.map(|at| at.max(now));
        let tick = at.map_or(NEVER, |at| match &moment {
            Some(moment) => self.tick_by_calendar(moment, at, Duration::ZERO),
            None => self.tick_of(at, Duration::ZERO),
        });
        let tick = tick.max(self.ticks.at(now));
        let shard = self.shard_of(entry);
        let mut state = shard.lock();
        let mut guard = entry.lock();
        if entry.head().phase() != Phase::Waiting {
            return false;
        }
        let until = self.options(guard.as_deref()).until;
        if until.is_some_and(|until| at.is_none_or(|at| at > until)) {
            return false;
        }
        if let Some(extra) = guard.as_mut() {
            if let (Some(plan), Some(at)) = (&mut extra.plan, at) {
                plan.move_to(at, moment.and_then(|moment| moment.wall_at(at)));
            }
            if let Some(paused) = &mut extra.paused {
                *paused = tick;
                return true;
            }
        }
        shard.reschedule(&mut state, entry.head().node(), tick);
        drop(guard);
        drop(state);
        self.alarm.ring(tick);
        true
    }

    /// Holds a task back, or lets it go on. False if it has ended.
    pub(super) fn set_paused(&self, entry: &dyn Entry, pause: bool) -> bool {
        let shard = self.shard_of(entry);
        let mut children = Vec::new();
        let mut ring = NEVER;
        let mut state = shard.lock();
        let ended = self.hold(&mut state, entry, pause, &mut ring, &mut children);
        // Its runs that overlap have tasks of their own, in the same shard: under one hold of its lock,
        // so that of a pause and a resume at the same time one is the last for all of them.
        let children: Vec<_> = children.iter().filter_map(Weak::upgrade).collect();
        for child in &children {
            self.hold(&mut state, &**child, pause, &mut ring, &mut Vec::new());
        }
        drop(state);
        if ring != NEVER {
            // The wheel may count it as due at the tick after.
            self.alarm.ring(ring);
        }
        !ended
    }

    /// The same for a task of the shard that the caller has locked, without the runs of it that overlap:
    /// their tasks are added to `children`. Lowers `ring` to the tick at which it comes due. True if it
    /// has ended.
    fn hold(
        &self,
        state: &mut State,
        entry: &dyn Entry,
        pause: bool,
        ring: &mut u64,
        children: &mut Vec<Weak<dyn Entry>>,
    ) -> bool {
        let shard = self.shard_of(entry);
        let mut guard = entry.lock();
        let head = entry.head();
        let phase = head.phase();
        if phase == Phase::Ended {
            return true;
        }
        let extra = guard.get_or_insert_default();
        children.clone_from(&extra.children);
        let waits = phase == Phase::Waiting;
        match (pause, extra.paused) {
            (true, None) => {
                // One that is due or runs gets its tick when it is filed again.
                let tick = if waits {
                    state.deadline(head.node())
                } else {
                    0
                };
                extra.paused = Some(tick);
                if waits {
                    shard.reschedule(state, head.node(), NEVER);
                }
            }
            (false, Some(tick)) => {
                extra.paused = None;
                if waits {
                    shard.reschedule(state, head.node(), tick);
                    *ring = tick.min(*ring);
                }
            }
            _ => {}
        }
        false
    }

    /// When a task will run next.
    pub(super) fn next_run(&self, entry: &dyn Entry) -> Option<Instant> {
        let moment = self.moment_for(entry);
        let state = self.shard_of(entry).lock();
        let guard = entry.lock();
        if entry.head().phase() != Phase::Waiting {
            return None;
        }
        if guard.as_ref().is_some_and(|extra| extra.paused.is_some()) {
            return None;
        }
        let tick = state.deadline(entry.head().node());
        if let (Some(extra), Some(moment)) = (guard.as_ref(), moment)
            && let Some(due) = extra.plan.as_ref().and_then(Plan::wall)
            && extra.failed == 0
            && tick != NEVER
        {
            // Filed for later than that, it has been put off at random.
            let at = moment.instant_of(due);
            return self.ticks.instant(tick).map(|filed| filed.max(at));
        }
        match tick {
            NEVER => None,
            tick => self.ticks.instant(tick),
        }
    }

    pub(super) fn token_of(&self, entry: &dyn Entry) -> CancellationToken {
        let mut guard = entry.lock();
        let extra = guard.get_or_insert_default();
        let token = extra.token.get_or_insert_default().clone();
        // Whoever cancels or shuts down looks at the token under the same lock, after this is set.
        let stopping = extra.cancelled || self.closing().load() != OPEN;
        drop(guard);
        if stopping {
            token.cancel();
        }
        token
    }
}
