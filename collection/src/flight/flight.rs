//! One computation that callers share, from its first caller until everybody has the result.
//!
//! Callers have a seat each, numbered in the order in which they came. One of them leads: it computes.
//! The others wait.
//!
//! | `landed` | `leader` | meaning | left by |
//! |---|---|---|---|
//! | `None` | a seat that runs | being computed | its leader: lands or abandons it |
//! | `None` | a seat that was promoted and has not noticed | about to be computed | that seat: takes the lead, or abandons it when it is dropped |
//! | `Some` | any | over | nobody |
//!
//! # Ground rules
//!
//! The state is touched under its own lock, which is taken under the map's lock of the key or alone,
//! and no code of the user's runs under it: wakers are woken, and results cloned and dropped, outside.
//!
//! # Invariants
//!
//! - F1: a flight that is in the map has a leader, running or promoted: whoever abandons it promotes
//!   the next seat, or removes it from the map under the map's lock if there is none. Seats are taken
//!   under that lock too, so nobody sits down in an abandoned flight.
//! - F2: a promoted seat is woken, and every seat is when the flight lands.
//! - F3: only a leader lands a flight, with the result that its computation returned.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::{Mutex, ThreadId, thread_id};

/// The number of a caller of one flight.
pub(super) type Seat = u64;

#[derive(Debug)]
pub(super) struct Flight<R> {
    state: Mutex<State<R>>,
}

#[derive(Debug)]
struct State<R> {
    leader: Seat,
    /// The thread that is inside the leader's computation at this moment.
    thread: Option<ThreadId>,
    landed: Option<Arc<R>>,
    /// In the order of their numbers, each with what wakes it once it has been polled.
    waiting: VecDeque<(Seat, Option<Waker>)>,
    next: Seat,
}

/// What a waiting caller finds.
#[derive(Debug)]
pub(super) enum News<R> {
    Landed(Arc<R>),
    /// The leader has gone: compute it.
    Promoted,
    /// The computation waits for itself.
    Recursive,
}

impl<R> Flight<R> {
    /// A flight that its first caller leads, and that caller's seat.
    pub(super) fn new() -> (Self, Seat) {
        let state = State {
            leader: 0,
            thread: None,
            landed: None,
            waiting: VecDeque::new(),
            next: 1,
        };
        let state = Mutex::new(state);
        (Flight { state }, 0)
    }

    /// Takes a seat among those who wait. The caller has the map's lock (F1).
    pub(super) fn sit_down(&self) -> Seat {
        let mut state = self.state.lock();
        let seat = state.next;
        state.next += 1;
        state.waiting.push_back((seat, None));
        seat
    }

    pub(super) fn poll(&self, seat: Seat, context: &Context<'_>) -> Poll<News<R>> {
        // The executor's code, so outside the lock; and dropped there.
        let mut waker = Some(context.waker().clone());
        let mut state = self.state.lock();
        let news = if let Some(result) = &state.landed {
            Poll::Ready(News::Landed(result.clone()))
        } else if state.leader == seat {
            Poll::Ready(News::Promoted)
        } else if state.thread == Some(thread_id()) {
            Poll::Ready(News::Recursive)
        } else {
            if let Some(at) = state.position(seat) {
                std::mem::swap(&mut state.waiting[at].1, &mut waker);
            }
            Poll::Pending
        };
        drop(state);
        news
    }

    /// Marks that this thread computes, until [`leave`](Self::leave).
    pub(super) fn enter(&self) {
        self.state.lock().thread = Some(thread_id());
    }

    pub(super) fn leave(&self) {
        self.state.lock().thread = None;
    }

    /// Ends the flight, for its leader, which has removed it from the map: nobody else will come.
    pub(super) fn land(&self, result: &Arc<R>) {
        let mut state = self.state.lock();
        state.thread = None;
        let waiting = std::mem::take(&mut state.waiting);
        if !waiting.is_empty() {
            state.landed = Some(result.clone());
        }
        drop(state);
        for (_, waker) in waiting {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Lets the next seat lead (F1); what wakes it is to be woken outside every lock (F2).
    pub(super) fn promote(&self) -> Promotion {
        let mut state = self.state.lock();
        state.thread = None;
        match state.waiting.pop_front() {
            Some((seat, waker)) => {
                state.leader = seat;
                Promotion::Next(waker)
            }
            None => Promotion::Nobody,
        }
    }

    /// Gives a seat up: `true` if it had been promoted, so that the flight has to be abandoned.
    pub(super) fn stand_up(&self, seat: Seat) -> bool {
        let mut state = self.state.lock();
        if state.landed.is_none() && state.leader == seat {
            return true;
        }
        let removed = state.position(seat).and_then(|at| state.waiting.remove(at));
        drop(state);
        drop(removed);
        false
    }
}

/// Who leads after a leader has gone.
#[derive(Debug)]
pub(super) enum Promotion {
    /// Somebody, to be woken by this; one that has not been polled yet will see for itself.
    Next(Option<Waker>),
    Nobody,
}

impl<R> State<R> {
    fn position(&self, seat: Seat) -> Option<usize> {
        self.waiting
            .binary_search_by_key(&seat, |(seat, _)| *seat)
            .ok()
    }
}
