//! What a caller holds while it takes part in a flight; dropping it gives the part up.

use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{Parker, Unparker};

use super::flight::{Flight, News, Promotion, Seat};
use super::{FlightError, SingleFlight, count};

type Shared<V, E> = Arc<Flight<Result<V, E>>>;

/// A caller's part.
pub(super) enum Boarded<'a, K: Eq + Hash + Clone, V: Clone, E: Clone> {
    Leading(Lead<'a, K, V, E>),
    Waiting(Wait<'a, K, V, E>),
}

/// The part of the caller that computes. Dropped before it has landed, it hands over.
pub(super) struct Lead<'a, K: Eq + Hash + Clone, V: Clone, E: Clone> {
    group: &'a SingleFlight<K, V, E>,
    key: K,
    flight: Shared<V, E>,
    landed: bool,
}

impl<'a, K: Eq + Hash + Clone, V: Clone, E: Clone> Lead<'a, K, V, E> {
    pub(super) fn new(group: &'a SingleFlight<K, V, E>, key: K, flight: Shared<V, E>) -> Self {
        Lead {
            group,
            key,
            flight,
            landed: false,
        }
    }

    /// Marks that this thread computes, until [`leave`](Self::leave) or the end.
    pub(super) fn enter(&self) {
        self.flight.enter();
    }

    pub(super) fn leave(&self) {
        self.flight.leave();
    }

    /// Gives the result to everyone (F3).
    pub(super) fn land(mut self, result: Result<V, E>) -> Result<V, FlightError<E>> {
        let ours = |flight: &Shared<V, E>| Arc::ptr_eq(flight, &self.flight);
        drop(self.group.flights.remove_if(&self.key, ours));
        let result = Arc::new(result);
        self.flight.land(&result);
        self.landed = true;
        // Cloned only if somebody waits for it.
        let result = Arc::try_unwrap(result).unwrap_or_else(|shared| Result::clone(&shared));
        result.map_err(FlightError::Failed)
    }

    /// Hands over to the next who waits, or takes the flight out of the map (F1).
    fn abandon(&self) {
        let mut promotion = None;
        let removed = self.group.flights.remove_if(&self.key, |flight| {
            if !Arc::ptr_eq(flight, &self.flight) {
                return false;
            }
            matches!(promotion.insert(flight.promote()), Promotion::Nobody)
        });
        drop(removed);
        // Out of the map, nobody new sits down, and no lock is needed to keep them away.
        let promotion = promotion.unwrap_or_else(|| self.flight.promote());
        if let Promotion::Next(Some(waker)) = promotion {
            waker.wake();
        }
    }
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Drop for Lead<'_, K, V, E> {
    fn drop(&mut self) {
        if !self.landed {
            self.abandon();
        }
    }
}

/// The part of a caller that waits. Dropped, it gives up its seat.
pub(super) struct Wait<'a, K: Eq + Hash + Clone, V: Clone, E: Clone> {
    group: &'a SingleFlight<K, V, E>,
    /// `None` once it is over.
    on_board: Option<(K, Shared<V, E>)>,
    seat: Seat,
}

impl<'a, K: Eq + Hash + Clone, V: Clone, E: Clone> Wait<'a, K, V, E> {
    pub(super) fn new(
        group: &'a SingleFlight<K, V, E>,
        key: K,
        flight: Shared<V, E>,
        seat: Seat,
    ) -> Self {
        Wait {
            group,
            on_board: Some((key, flight)),
            seat,
        }
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<News<Result<V, E>>> {
        let (_, flight) = self.on_board.as_ref().expect("on board until it is over");
        flight.poll(self.seat, context)
    }

    /// Ends with the result of another.
    pub(super) fn joined(mut self, result: &Result<V, E>) -> Result<V, FlightError<E>> {
        self.on_board = None;
        count(&self.group.counts.joined);
        result.clone().map_err(FlightError::Failed)
    }

    /// Becomes the leader.
    pub(super) fn take_over(mut self) -> Lead<'a, K, V, E> {
        let (key, flight) = self.on_board.take().expect("on board until it is over");
        count(&self.group.counts.led);
        count(&self.group.counts.handed_over);
        Lead::new(self.group, key, flight)
    }

    /// Ends without a result.
    pub(super) fn refused(self) -> FlightError<E> {
        count(&self.group.counts.recursive);
        FlightError::Recursive
    }
}

impl<K: Eq + Hash + Clone, V: Clone, E: Clone> Drop for Wait<'_, K, V, E> {
    fn drop(&mut self) {
        if let Some((key, flight)) = self.on_board.take()
            && flight.stand_up(self.seat)
        {
            // Promoted and not noticed: as a leader that goes.
            drop(Lead::new(self.group, key, flight));
        }
    }
}

/// Polls on this thread, parked between.
pub(super) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    struct Unpark(Unparker);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let parker = Parker::new();
    let waker = Waker::from(Arc::new(Unpark(parker.unparker().clone())));
    let mut context = Context::from_waker(&waker);
    loop {
        match poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => parker.park(),
        }
    }
}
