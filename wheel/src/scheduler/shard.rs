//! One of the parts that the tasks of a scheduler are divided among: a wheel of those that wait, and
//! the list of those that are due or running.
//!
//! Invariants
//! - I1: a task is in the wheel, or among the late, exactly while its phase is `WAITING`, at its
//!   `node`.
//! - I2: `next` is at most the earliest deadline of both. It is raised and lowered under the lock of
//!   the wheel alone, and read without it (step 4 of drive/alarm.rs).
//! - I3: a task is in `runs` from the moment it is taken out of the wheel to be run until its claim
//!   is dropped.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Waker;

use crate::drive::ticks::NEVER;
use crate::sync::{Mutex, MutexGuard, Word};
use crate::wheel::Wheel;

use super::entry::{Entry, Phase};
use super::late::{Late, is_late};
use super::stats::Counts;
use super::timeout::Timeout;

pub(super) struct Shard {
    state: Mutex<State>,
    /// I2.
    next: Word,
    pub(super) runs: Mutex<Runs>,
    pub(super) counts: Counts,
    /// Grows whenever a task comes to another place: into the wheel, out of it, among the runs.
    moves: AtomicU64,
}

pub(super) struct State {
    wheel: Wheel<Timed>,
    /// What was filed for a tick which the wheel has passed.
    late: Late<Timed>,
    /// New tasks are refused.
    pub(super) closed: bool,
}

/// What a wheel holds.
pub(super) enum Timed {
    Task(Arc<dyn Entry>),
    Timeout(Arc<Timeout>),
}

impl Timed {
    /// Loads it.
    fn touch(&self) -> u32 {
        match self {
            Timed::Task(entry) => entry.head().node(),
            Timed::Timeout(_) => 0,
        }
    }
}

/// Tasks that are due or running.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) slab: slab::Slab<InProgress>,
    /// How many have been registered by now.
    registered: u64,
}

pub(super) struct InProgress {
    pub(super) entry: Arc<dyn Entry>,
    /// Tells it from the other runs of its task.
    pub(super) number: u64,
    /// Polls the run, once it has had to wait.
    pub(super) waker: Option<Waker>,
    /// How many times the run waits for the shutdown of its scheduler at the moment.
    pub(super) inside: usize,
}

impl Shard {
    pub(super) fn new() -> Self {
        Shard {
            state: Mutex::new(State {
                wheel: Wheel::new(),
                late: Late::new(),
                closed: false,
            }),
            next: Word::new(NEVER),
            runs: Mutex::new(Runs::default()),
            counts: Counts::default(),
            moves: AtomicU64::new(0),
        }
    }

    pub(super) fn moves(&self) -> u64 {
        // The other side is `moved`, before the place that was left can be seen to be empty.
        self.moves.load(SeqCst)
    }

    fn moved(&self) {
        self.moves.fetch_add(1, SeqCst);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A lower bound of the earliest deadline.
    pub(super) fn earliest(&self) -> u64 {
        self.next.load()
    }

    /// Files a task.
    pub(super) fn insert(&self, state: &mut State, tick: u64, entry: Arc<dyn Entry>) {
        self.moved();
        self.lower_next(tick);
        if tick <= state.wheel.tick() {
            entry.head().set_phase(Phase::Waiting);
            let timed = Timed::Task(entry.clone());
            entry.head().set_node(state.late.insert(tick, timed));
            return;
        }
        let node = state.wheel.insert_raw(tick, Timed::Task(entry));
        if let Timed::Task(entry) = state.wheel.value_raw(node) {
            entry.head().set_node(node);
            entry.head().set_phase(Phase::Waiting);
        }
    }

    /// Files a timeout, and says where.
    pub(super) fn insert_timeout(
        &self,
        state: &mut State,
        tick: u64,
        timeout: Arc<Timeout>,
    ) -> u32 {
        self.lower_next(tick);
        state.put(tick, Timed::Timeout(timeout))
    }

    /// Keeps I2. Under the lock, so load and store are one step.
    fn lower_next(&self, tick: u64) {
        if tick < self.next.load() {
            self.next.store(tick);
        }
    }

    /// Moves the task that waits at `node`.
    pub(super) fn reschedule(&self, state: &mut State, node: u32, tick: u64) {
        if !is_late(node) && tick > state.wheel.tick() {
            self.lower_next(tick);
            state.wheel.reschedule_raw(node, tick);
        } else if let Timed::Task(entry) = state.remove(node) {
            self.insert(state, tick, entry);
        }
    }

    /// Makes I2 exact.
    pub(super) fn refresh(&self, state: &mut State) -> u64 {
        let next = state.wheel.next_due().unwrap_or(NEVER);
        let next = state.late.first().map_or(next, |late| late.min(next));
        self.next.store(next);
        next
    }

    /// Takes at most `limit` that are due at `tick`, in order, and says whether that was all.
    pub(super) fn fire(
        &self,
        state: &mut State,
        tick: u64,
        limit: usize,
        due: &mut Vec<(u64, Timed)>,
    ) -> bool {
        self.moved();
        let first = due.len();
        let late = std::iter::from_fn(|| state.late.pop(tick));
        let popped = std::iter::from_fn(|| state.wheel.pop_raw(tick));
        let popped = popped.map(|(_, deadline, timed)| (deadline, timed));
        due.extend(late.chain(popped).take(limit));
        let taken = &due[first..];
        // The tasks have not been touched since they were filed: all misses at once.
        let loaded = taken.iter().fold(0, |sum, (_, timed)| sum ^ timed.touch());
        std::hint::black_box(loaded);
        for (_, timed) in taken {
            match timed {
                Timed::Task(entry) => entry.head().set_phase(Phase::Due),
                Timed::Timeout(timeout) => timeout.leave_wheel(),
            }
        }
        let all = taken.len() < limit;
        if all {
            self.refresh(state);
            state.compact();
        }
        all
    }

    /// I3.
    pub(super) fn register(&self, entry: Arc<dyn Entry>) -> usize {
        let mut guard = self.runs.lock();
        let runs = &mut *guard;
        runs.registered += 1;
        let place = runs.slab.vacant_entry();
        let slot = place.key();
        entry
            .head()
            .set_node(u32::try_from(slot).unwrap_or(u32::MAX));
        place.insert(InProgress {
            entry,
            number: runs.registered,
            waker: None,
            inside: 0,
        });
        drop(guard);
        self.moved();
        slot
    }
}

impl State {
    /// Puts it where its tick belongs. The wheel has passed it where a clock was read that had gone far
    /// ahead and came back: a wheel would then put it off until that time.
    fn put(&mut self, tick: u64, timed: Timed) -> u32 {
        if tick <= self.wheel.tick() {
            self.late.insert(tick, timed)
        } else {
            self.wheel.insert_raw(tick, timed)
        }
    }

    pub(super) fn deadline(&self, node: u32) -> u64 {
        if is_late(node) {
            return self.late.tick(node);
        }
        self.wheel.deadline_raw(node)
    }

    #[must_use]
    pub(super) fn remove(&mut self, node: u32) -> Timed {
        if is_late(node) {
            return self.late.remove(node);
        }
        let timed = self.wheel.remove_raw(node);
        self.compact();
        timed
    }

    /// Takes out every task, in the order in which they would have run. Timeouts stay.
    #[must_use]
    pub(super) fn take_tasks(&mut self) -> Vec<(u64, Arc<dyn Entry>)> {
        let mut tasks = Vec::with_capacity(self.wheel.len());
        let mut timeouts = Vec::new();
        let late = std::iter::from_fn(|| self.late.pop(NEVER));
        let rest = self.wheel.drain();
        for (tick, timed) in late.chain(rest.map(|expired| (expired.deadline, expired.value))) {
            match timed {
                Timed::Task(entry) => tasks.push((tick, entry)),
                Timed::Timeout(timeout) => timeouts.push((tick, timeout)),
            }
        }
        for (tick, timeout) in timeouts {
            let node = self.put(tick, Timed::Timeout(timeout.clone()));
            timeout.set_node(node);
        }
        tasks
    }

    /// Gives memory back after most have gone.
    fn compact(&mut self) {
        if !self.wheel.wants_compact() {
            return;
        }
        self.wheel.compact_raw(|_| {});
        for node in 0..self.wheel.len() as u32 {
            self.renumber(node);
        }
    }

    /// Tells what is at `node` that it is there.
    fn renumber(&self, node: u32) {
        match self.wheel.value_raw(node) {
            Timed::Task(entry) => entry.head().set_node(node),
            Timed::Timeout(timeout) => timeout.set_node(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_timer_costs_no_memory() {
        assert_eq!(size_of::<Timed>(), 16);
    }
}
