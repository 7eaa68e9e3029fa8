//! Transitions as others hear of them: hooks and subscriptions.
//!
//! # Ground rules
//!
//! - A transition is put into the outbox under the gate's lock, with its number: the order of the
//!   outbox is that of the transitions.
//! - It is delivered outside. One thread at a time delivers, until the outbox is empty; others leave
//!   theirs to it. A hook that makes a transition leaves it to the delivery that called the hook.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use parking_lot::Mutex;

use super::State;

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
    /// When, on the breaker's clock.
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
/// Holds 256 of them; a subscriber that falls further behind loses later ones, which shows in
/// [`lost`](Self::lost) and in the sequence.
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

    /// How many this subscriber was too slow for.
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
#[derive(Default)]
pub(super) struct Listeners {
    hooks: Vec<Hook>,
    subscribers: Mutex<Vec<(Sender<Transition>, Arc<AtomicU64>)>>,
    outbox: Mutex<Outbox>,
    panics: AtomicU64,
}

#[derive(Default)]
struct Outbox {
    waiting: VecDeque<Transition>,
    delivering: bool,
}

impl Listeners {
    pub(super) fn new(hooks: Vec<Hook>) -> Self {
        Listeners {
            hooks,
            ..Listeners::default()
        }
    }

    pub(super) fn subscribe(&self) -> Events {
        let (sender, receiver) = crossbeam_channel::bounded(CAPACITY);
        let lost = Arc::new(AtomicU64::new(0));
        self.subscribers.lock().push((sender, lost.clone()));
        Events { receiver, lost }
    }

    /// Called under the gate's lock.
    pub(super) fn put(&self, transition: Transition) {
        let mut outbox = self.outbox.lock();
        if outbox.waiting.len() < OUTBOX {
            outbox.waiting.push_back(transition);
        }
    }

    /// Called outside every lock.
    pub(super) fn deliver(&self) {
        {
            let mut outbox = self.outbox.lock();
            if outbox.delivering {
                return;
            }
            outbox.delivering = true;
        }
        loop {
            let next = {
                let mut outbox = self.outbox.lock();
                let next = outbox.waiting.pop_front();
                outbox.delivering = next.is_some();
                next
            };
            let Some(transition) = next else { return };
            self.tell(&transition);
        }
    }

    fn tell(&self, transition: &Transition) {
        super::meters::transition(transition);
        for hook in &self.hooks {
            let call = AssertUnwindSafe(|| (hook.0)(transition));
            if catch_unwind(call).is_err() {
                // Relaxed: a figure.
                self.panics.fetch_add(1, Ordering::Relaxed);
                #[cfg(feature = "tracing")]
                tracing::error!(breaker = &*transition.name, "a transition hook panicked");
            }
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

    pub(super) fn panics(&self) -> u64 {
        // Relaxed: a figure.
        self.panics.load(Ordering::Relaxed)
    }
}
