//! What decides about requests: [`Guard`] and [`Admit`], and those of this package.

use crate::bulkhead;
use crate::limit::{self, AdaptiveLimit, LimitExceeded};
use crate::{Breaker, Bulkhead, OwnedPermit, Priority, Promise, Rejected, Shed, Shedder, Verdict};

/// Decides about the requests of a service, as [`Admit`] says. Clones share their state.
///
/// ```
/// use wheelhouse_resilience::Breaker;
/// use wheelhouse_resilience::tower::{Admit, Guard};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder().build()?;
/// assert!(breaker.admit(&"request").is_ok());
/// assert!(breaker.turns_all_away().is_none());
/// breaker.force_open();
/// assert!(breaker.turns_all_away().is_some());
/// # Ok(()) }
/// ```
pub trait Guard: Clone {
    /// What an admitted request holds until it ends.
    type Permit: Settle;

    /// Why a request is turned away.
    type Rejection;

    /// Why every request would be turned away now, whatever it is; `None` if some may pass. Counts
    /// nothing. It is asked before the inner service is asked whether it is ready.
    fn turns_all_away(&self) -> Option<Self::Rejection> {
        None
    }
}

/// A [`Guard`] for requests of this type.
pub trait Admit<Request>: Guard {
    /// Decides about this request.
    ///
    /// # Errors
    ///
    /// The reason, if it is turned away.
    fn admit(&self, request: &Request) -> Result<Self::Permit, Self::Rejection>;
}

/// A permit that wants to know how the call went. Dropped without that, the call was cancelled.
pub trait Settle {
    /// The call went like this.
    fn settle(self, verdict: Verdict);
}

impl Guard for Breaker {
    type Permit = OwnedPermit;
    type Rejection = Rejected;

    #[inline]
    fn turns_all_away(&self) -> Option<Rejected> {
        self.rejects_all()
    }
}

impl<Request> Admit<Request> for Breaker {
    #[inline]
    fn admit(&self, _request: &Request) -> Result<OwnedPermit, Rejected> {
        self.try_acquire_owned()
    }
}

impl Settle for OwnedPermit {
    #[inline]
    fn settle(self, verdict: Verdict) {
        let _ = OwnedPermit::settle(self, verdict);
    }
}

/// Without waiting; [`QueueLayer`](super::QueueLayer) waits.
impl Guard for Bulkhead {
    type Permit = bulkhead::OwnedPermit;
    type Rejection = bulkhead::Full;

    fn turns_all_away(&self) -> Option<bulkhead::Full> {
        let permits = self.permits();
        (self.in_use() >= permits).then_some(bulkhead::Full { permits, queue: 0 })
    }
}

impl<Request> Admit<Request> for Bulkhead {
    #[inline]
    fn admit(&self, _request: &Request) -> Result<bulkhead::OwnedPermit, bulkhead::Full> {
        self.try_acquire_owned()
    }
}

impl Settle for bulkhead::OwnedPermit {
    #[inline]
    fn settle(self, _verdict: Verdict) {}
}

impl Guard for AdaptiveLimit {
    type Permit = limit::OwnedPermit;
    type Rejection = LimitExceeded;
}

impl<Request> Admit<Request> for AdaptiveLimit {
    #[inline]
    fn admit(&self, _request: &Request) -> Result<limit::OwnedPermit, LimitExceeded> {
        self.try_acquire_owned()
    }
}

impl Settle for limit::OwnedPermit {
    #[inline]
    fn settle(self, verdict: Verdict) {
        limit::OwnedPermit::settle(self, verdict);
    }
}

/// A [`Shedder`] and the priorities of requests.
#[derive(Debug, Clone)]
pub struct Shedding<P> {
    shedder: Shedder,
    priority: P,
}

impl<P> Shedding<P> {
    /// `priority` says how important a request is.
    pub fn new(shedder: Shedder, priority: P) -> Self {
        Shedding { shedder, priority }
    }
}

impl<P: Clone> Guard for Shedding<P> {
    type Permit = Promise;
    type Rejection = Shed;
}

impl<Request, P> Admit<Request> for Shedding<P>
where
    P: Fn(&Request) -> Priority + Clone,
{
    #[inline]
    fn admit(&self, request: &Request) -> Result<Promise, Shed> {
        self.shedder.try_acquire((self.priority)(request))
    }
}

/// Only a success gives a latency.
impl Settle for Promise {
    #[inline]
    fn settle(self, verdict: Verdict) {
        match verdict {
            Verdict::Success => self.success(),
            Verdict::Failure | Verdict::Ignored => self.failure(),
        }
    }
}

/// A guard that is not there, so that a layer can be optional: `Option<Breaker>`.
impl<G: Guard> Guard for Option<G> {
    type Permit = Option<G::Permit>;
    type Rejection = G::Rejection;

    fn turns_all_away(&self) -> Option<G::Rejection> {
        self.as_ref()?.turns_all_away()
    }
}

impl<Request, G: Admit<Request>> Admit<Request> for Option<G> {
    fn admit(&self, request: &Request) -> Result<Option<G::Permit>, G::Rejection> {
        self.as_ref().map(|guard| guard.admit(request)).transpose()
    }
}

impl<P: Settle> Settle for Option<P> {
    fn settle(self, verdict: Verdict) {
        if let Some(permit) = self {
            permit.settle(verdict);
        }
    }
}
