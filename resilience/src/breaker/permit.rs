//! [`Permit`] and [`OwnedPermit`]: a call that was let through.

use std::fmt;
use std::mem::ManuallyDrop;

use super::core::{Core, Ticket};
use super::{Breaker, Settled, Verdict};

/// A call that was let through, borrowed from its [`Breaker`]. Costs nothing to make.
///
/// It settles exactly once. Dropped without a verdict, it is cancelled, which counts as ignored
/// unless the breaker was built otherwise; dropped while a panic unwinds, it is a failure. Forgotten, with
/// [`mem::forget`](std::mem::forget) say, it never ends: a probe's lease runs out, a place of
/// [`max_in_flight`](super::BreakerBuilder::max_in_flight) is lost, and an adaptive throttle takes it for a
/// call that hangs.
///
/// ```
/// use wheelhouse_resilience::Breaker;
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder().build()?;
/// breaker.try_acquire().unwrap().success();
/// drop(breaker.try_acquire());
/// let stats = breaker.stats();
/// assert_eq!((stats.successes, stats.cancelled), (1, 1));
/// # Ok(()) }
/// ```
#[must_use = "dropped at once, the call is cancelled"]
pub struct Permit<'a> {
    core: &'a Core,
    ticket: Ticket,
}

/// A call that was let through, with a handle on its [`Breaker`]: for futures and other threads.
///
/// As [`Permit`], at the cost of a reference count that all threads share.
#[must_use = "dropped at once, the call is cancelled"]
pub struct OwnedPermit {
    /// `None` once it has settled.
    held: Option<(Breaker, Ticket)>,
}

macro_rules! verdicts {
    () => {
        /// The call went well.
        #[inline]
        pub fn success(self) {
            let _ = self.settle(Verdict::Success);
        }

        /// The call failed.
        #[inline]
        pub fn failure(self) {
            let _ = self.settle(Verdict::Failure);
        }

        /// The call says nothing about the health of what it called.
        #[inline]
        pub fn ignored(self) {
            let _ = self.settle(Verdict::Ignored);
        }
    };
}

impl<'a> Permit<'a> {
    #[inline]
    pub(super) fn new(core: &'a Core, ticket: Ticket) -> Self {
        Permit { core, ticket }
    }

    verdicts!();

    /// Settles the call, and says whether the verdict came in time.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Settled, Verdict};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// let permit = breaker.try_acquire().unwrap();
    /// breaker.force_open();
    /// assert_eq!(permit.settle(Verdict::Failure), Settled::Stale);
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn settle(self, verdict: Verdict) -> Settled {
        let permit = ManuallyDrop::new(self);
        permit.core.settle(permit.ticket, verdict)
    }

    /// Whether it is a probe of a half-open breaker.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.ticket.is_probe()
    }
}

impl OwnedPermit {
    #[inline]
    pub(super) fn new(breaker: Breaker, ticket: Ticket) -> Self {
        OwnedPermit {
            held: Some((breaker, ticket)),
        }
    }

    verdicts!();

    /// Settles the call, and says whether the verdict came in time.
    #[inline]
    pub fn settle(mut self, verdict: Verdict) -> Settled {
        match self.held.take() {
            Some((breaker, ticket)) => breaker.core().settle(ticket, verdict),
            None => Settled::Stale,
        }
    }

    /// Whether it is a probe of a half-open breaker.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.held
            .as_ref()
            .is_some_and(|(_, ticket)| ticket.is_probe())
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.core.settle_dropped(self.ticket);
    }
}

impl Drop for OwnedPermit {
    #[inline]
    fn drop(&mut self) {
        if let Some((breaker, ticket)) = self.held.take() {
            breaker.core().settle_dropped(ticket);
        }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("is_probe", &self.is_probe())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OwnedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit")
            .field("is_probe", &self.is_probe())
            .finish_non_exhaustive()
    }
}
