//! A number of places for runs, and the queue of those that wait for one.
//!
//! Invariant: nobody waits while a place is free, but for runs that are on their way out of the
//! queue. A place is given up by [`Gate::leave`], which hands it to the next in the queue under the
//! same lock. Checked by `a_place_is_handed_on_once` and `more_places_let_in_who_waits` in
//! `scheduler::loom_tests`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;

use crate::sync::Mutex;

/// Places for runs, first by priority, then by tick, then by arrival.
pub(super) struct Gate<T = super::claim::Claim> {
    state: Mutex<State<T>>,
}

struct State<T> {
    limit: usize,
    taken: usize,
    arrived: u64,
    queue: BinaryHeap<Waiting<T>>,
    /// How many of the queue have ended meanwhile.
    dead: usize,
}

struct Waiting<T> {
    priority: i8,
    tick: u64,
    number: u64,
    who: T,
}

impl<T> Gate<T> {
    /// With this many places.
    pub(super) fn new(limit: usize) -> Self {
        Gate {
            state: Mutex::new(State {
                limit,
                taken: 0,
                arrived: 0,
                queue: BinaryHeap::new(),
                dead: 0,
            }),
        }
    }

    /// Takes a place and gives `who` back, or puts it into the queue.
    pub(super) fn enter(&self, priority: i8, tick: u64, who: T) -> Option<T> {
        let mut state = self.state.lock();
        if state.taken < state.limit {
            state.taken += 1;
            return Some(who);
        }
        state.arrived += 1;
        let number = state.arrived;
        state.queue.push(Waiting {
            priority,
            tick,
            number,
            who,
        });
        None
    }

    /// Gives a place up, and who takes it over.
    #[must_use]
    pub(super) fn leave(&self) -> Option<T> {
        let mut state = self.state.lock();
        if state.taken <= state.limit
            && let Some(next) = state.queue.pop()
        {
            return Some(next.who);
        }
        state.taken -= 1;
        None
    }

    /// Takes a place that was given up for a while, free or not.
    pub(super) fn come_back(&self) {
        self.state.lock().taken += 1;
    }

    /// Changes the number of places. Returns those that take new ones.
    #[must_use]
    pub(super) fn resize(&self, limit: usize) -> Vec<T> {
        let mut state = self.state.lock();
        state.limit = limit;
        let mut next = Vec::new();
        while state.taken < state.limit
            && let Some(waiting) = state.queue.pop()
        {
            state.taken += 1;
            next.push(waiting.who);
        }
        next
    }

    /// Somebody in the queue will not run. Returns those who are to be dropped, once they are many.
    #[must_use]
    pub(super) fn forget_one(&self, is_dead: impl Fn(&T) -> bool) -> Vec<T> {
        let mut state = self.state.lock();
        state.dead += 1;
        if state.dead <= 16 || state.dead <= state.queue.len() / 2 {
            return Vec::new();
        }
        state.dead = 0;
        let (dead, alive): (Vec<_>, Vec<_>) = std::mem::take(&mut state.queue)
            .into_iter()
            .partition(|waiting| is_dead(&waiting.who));
        state.queue = alive.into();
        dead.into_iter().map(|waiting| waiting.who).collect()
    }

    /// Empties the queue.
    #[must_use]
    pub(super) fn drain(&self) -> Vec<T> {
        let mut state = self.state.lock();
        state.dead = 0;
        let queue = std::mem::take(&mut state.queue);
        queue.into_iter().map(|waiting| waiting.who).collect()
    }

    /// Whether no place is taken and nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.taken == 0 && state.queue.is_empty()
    }
}

impl<T> fmt::Debug for Gate<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate(..)")
    }
}

impl<T> Ord for Waiting<T> {
    /// The greatest goes first.
    fn cmp(&self, other: &Self) -> Ordering {
        self.priority
            .cmp(&other.priority)
            .then(other.tick.cmp(&self.tick))
            .then(other.number.cmp(&self.number))
    }
}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Waiting<T> {}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn priority_goes_first_then_the_tick_then_arrival() {
        let gate = Gate::new(1);
        assert_eq!(gate.enter(0, 1, "runs"), Some("runs"));
        for (priority, tick, who) in [
            (0, 5, "late"),
            (0, 3, "first of tick 3"),
            (0, 3, "second of tick 3"),
            (1, 9, "important"),
        ] {
            assert_eq!(gate.enter(priority, tick, who), None);
        }
        let order: Vec<_> = std::iter::from_fn(|| gate.leave()).collect();
        assert_eq!(
            order,
            ["important", "first of tick 3", "second of tick 3", "late"]
        );
        assert!(gate.is_idle());
    }

    #[test]
    fn more_places_are_given_out_at_once_and_fewer_as_they_are_left() {
        let gate = Gate::new(1);
        assert_eq!(gate.enter(0, 0, 0), Some(0));
        for who in 1..=4 {
            assert_eq!(gate.enter(0, 0, who), None);
        }
        assert_eq!(gate.resize(3), [1, 2]);
        assert_eq!(gate.resize(2), []);
        assert_eq!(gate.leave(), None);
        assert_eq!(gate.leave(), Some(3));
    }

    #[test]
    fn the_dead_do_not_pile_up() {
        let gate = Gate::new(1);
        assert_eq!(gate.enter(0, 0, 0), Some(0));
        let mut dropped = 0;
        for who in 1..=1000 {
            assert_eq!(gate.enter(0, 0, who), None);
            dropped += gate.forget_one(|_| true).len();
        }
        assert!(dropped > 980, "{dropped} of 1000 were dropped");
    }
}
