//! Transitions as others hear of them: hooks and subscriptions.
//!
//! # Ground rules
//!
//! - A transition is put into the outbox under the gate's lock, with its number: the order of the
//!   outbox is that of the transitions.
//! - It is delivered outside. One thread at a time delivers, until the outbox is empty; others leave
//!   theirs to it. A hook that makes a transition leaves it to the delivery that called the hook.
//! - Hooks, the metrics recorder and the tracing subscriber are user code: their panics go no further.
//! - What the outbox has no room for is lost, and counted for each subscriber.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::State;
use crate::contain::{contained, report};
use crate::sync::Mutex;

/// How many events wait for a subscriber before it loses some.
const CAPACITY: usize = 256;

/// How many events wait for a hook that takes its time.
const OUTBOX: usize = 1024;

/// A breaker has changed its state.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Transition {
    /// The breaker's name.
    pub name: Arc<str>,
    /// The state before.
    pub from: State,
    /// The state since.
    pub to: State,
    /// Counted from 1 for each breaker, without gaps.
    pub sequence: u64,
    /// When, on the breaker's clock; never before that of an earlier sequence.
    pub at: Instant,
    /// Why.
    pub cause: Cause,
}

/// Why a breaker has changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A policy tripped: its name.
    Tripped(&'static str),
    /// A call failed in the ramp after closing.
    FailedInRamp,
    /// The cool-down was over.
    CooledDown,
    /// The probes showed that the backend has not recovered.
    ProbesFailed,
    /// The probes showed that it has.
    ProbesSucceeded,
    /// The breaker was half-open for as long as it may be.
    HalfOpenTimeout,
    /// Its user said so.
    Forced,
}

#[derive(Clone)]
pub(super) struct Hook(pub(super) Arc<dyn Fn(&Transition) + Send + Sync>);

/// The transitions of one breaker as they happen, from [`Breaker::subscribe`](super::Breaker::subscribe).
///
/// Holds 256 of them; a subscriber that falls further behind loses later ones. So does every subscriber
/// while a hook takes its time and 1 024 wait for it. Both show in [`lost`](Self::lost) and in the
/// sequence.
pub struct Events {
    receiver: Receiver<Transition>,
    lost: Arc<AtomicU64>,
}

impl Events {
    /// The next one, if it has happened already.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, State};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// let events = breaker.subscribe();
    /// breaker.force_open();
    /// assert_eq!(events.try_next().unwrap().to, State::ForcedOpen);
    /// assert!(events.try_next().is_none());
    /// # Ok(()) }
    /// ```
    pub fn try_next(&self) -> Option<Transition> {
        self.receiver.try_recv().ok()
    }

    /// The next one; waits for it, at most for `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// let events = breaker.subscribe();
    /// std::thread::spawn(move || breaker.force_open());
    /// assert!(events.next_within(Duration::from_secs(60)).is_some());
    /// # Ok(()) }
    /// ```
    pub fn next_within(&self, timeout: Duration) -> Option<Transition> {
        self.receiver.recv_timeout(timeout).ok()
    }

    /// How many this subscriber has lost: it was too slow for them, or a hook was.
    ///
    /// ```
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = wheelhouse_resilience::Breaker::builder().build()?;
    /// assert_eq!(breaker.subscribe().lost(), 0);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn lost(&self) -> u64 {
        // Relaxed: a figure.
        self.lost.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

/// The breaker's end.
pub(super) struct Listeners {
    hooks: Vec<Hook>,
    subscribers: Mutex<Vec<(Sender<Transition>, Arc<AtomicU64>)>>,
    outbox: Mutex<Outbox>,
    panics: AtomicU64,
    /// What the outbox had no room for.
    lost: AtomicU64,
}

#[derive(Default)]
struct Outbox {
    waiting: VecDeque<Transition>,
    delivering: bool,
    /// When the last transition was.
    latest: Option<Instant>,
}

impl Default for Listeners {
    fn default() -> Self {
        Listeners::new(Vec::new())
    }
}

impl Listeners {
    pub(super) fn new(hooks: Vec<Hook>) -> Self {
        Listeners {
            hooks,
            subscribers: Mutex::new(Vec::new()),
            outbox: Mutex::new(Outbox::default()),
            panics: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    pub(super) fn subscribe(&self) -> Events {
        let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
        let lost = Arc::new(AtomicU64::new(0));
        let mut subscribers = self.subscribers.lock();
        // Otherwise those that have gone would stay until the next transition, which may never come.
        subscribers.retain(|(_, lost)| Arc::strong_count(lost) > 1);
        subscribers.push((sender, lost.clone()));
        drop(subscribers);
        Events { receiver, lost }
    }

    /// Called under the gate's lock.
    pub(super) fn put(&self, mut transition: Transition) {
        let mut outbox = self.outbox.lock();
        // The system's instants are measured, and two that are close may come out the wrong way round.
        let latest = outbox
            .latest
            .map_or(transition.at, |at| at.max(transition.at));
        transition.at = latest;
        outbox.latest = Some(latest);
        if outbox.waiting.len() < OUTBOX {
            return outbox.waiting.push_back(transition);
        }
        // Relaxed, both: figures.
        self.lost.fetch_add(1, Ordering::Relaxed);
        for (_, lost) in self.subscribers.lock().iter() {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Called outside every lock.
    pub(super) fn deliver(&self) {
        if std::mem::replace(&mut self.outbox.lock().delivering, true) {
            return;
        }
        let delivery = Delivery(self);
        while let Some(transition) = delivery.next() {
            self.tell(&transition);
        }
        std::mem::forget(delivery);
    }

    fn tell(&self, transition: &Transition) {
        self.contain(transition, || super::meters::transition(transition));
        for hook in &self.hooks {
            self.contain(transition, || (hook.0)(transition));
        }
        self.subscribers.lock().retain(|(sender, lost)| {
            match sender.try_send(transition.clone()) {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    // Relaxed: a figure.
                    lost.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            }
        });
    }

    fn contain(&self, transition: &Transition, user: impl FnOnce()) {
        if contained(user).is_none() {
            // Relaxed: a figure.
            self.panics.fetch_add(1, Ordering::Relaxed);
            report("listener to transitions", &transition.name);
        }
    }

    pub(super) fn panics(&self) -> u64 {
        // Relaxed: a figure.
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn lost(&self) -> u64 {
        // Relaxed: a figure.
        self.lost.load(Ordering::Relaxed)
    }
}

/// One thread delivers. If it unwinds in spite of all, the next delivery goes on.
struct Delivery<'a>(&'a Listeners);

impl Delivery<'_> {
    /// At the end, in the same step, others may deliver again.
    fn next(&self) -> Option<Transition> {
        let mut outbox = self.0.outbox.lock();
        let next = outbox.waiting.pop_front();
        outbox.delivering = next.is_some();
        next
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        self.0.outbox.lock().delivering = false;
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    /// On a breaker that never changes nobody is told anything, and who comes and goes must not stay.
    #[test]
    fn subscribers_that_have_gone_are_forgotten() {
        let listeners = Listeners::default();
        let stays = listeners.subscribe();
        (0..1000).for_each(|_| drop(listeners.subscribe()));
        assert!(listeners.subscribers.lock().len() <= 2);
        drop(stays);
        let _last = listeners.subscribe();
        assert_eq!(listeners.subscribers.lock().len(), 1);
    }
}
