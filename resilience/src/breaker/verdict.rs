//! How calls end, and why they do not begin.

use std::fmt;
use std::time::Duration;

use crate::clock::NEVER;

/// What a call says about the health of what it called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It works.
    Success,
    /// It does not.
    Failure,
    /// Nothing: the caller's own mistake, say, or a call that was given up.
    Ignored,
}

impl Verdict {
    /// Success for `Ok`, failure for `Err`.
    ///
    /// ```
    /// use wheelhouse_resilience::Verdict;
    ///
    /// assert_eq!(Verdict::of(&Err::<(), _>("refused")), Verdict::Failure);
    /// ```
    #[must_use]
    pub fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::Failure,
        }
    }
}

/// Whether a verdict came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Settled {
    /// The breaker has taken it into account.
    Counted,
    /// The breaker has changed its state since the call began, or the probe's lease had expired. It
    /// shows in [`BreakerStats::stale`](crate::BreakerStats::stale) and nowhere else.
    Stale,
}

/// Why a call was not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The breaker is open.
    Open,
    /// It is half-open, and as many probes as it allows are under way.
    HalfOpenFull,
    /// It is half-open, and the last probe began too short a while ago.
    ProbeInterval,
    /// It has just closed, and lets only a growing part of the calls through.
    Ramp,
    /// It was forced open.
    ForcedOpen,
    /// As many calls are in flight as it allows.
    InFlightCap,
    /// The throttle has decided against it.
    Throttled,
}

/// The call was not let through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Rejected {
    reason: Reason,
    /// [`NEVER`] if there is no such time.
    retry_after_nanos: u64,
}

impl Rejected {
    #[inline]
    pub(crate) fn new(reason: Reason) -> Self {
        Rejected {
            reason,
            retry_after_nanos: NEVER,
        }
    }

    #[inline]
    pub(crate) fn after(reason: Reason, nanos: u64) -> Self {
        Rejected {
            reason,
            retry_after_nanos: nanos,
        }
    }

    /// Why.
    #[inline]
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// How long to wait before a call has a chance again; `None` where no time can be said.
    ///
    /// | reason | how long |
    /// |---|---|
    /// | [`Open`](Reason::Open) | the rest of the cool-down |
    /// | [`HalfOpenFull`](Reason::HalfOpenFull) | at most: until the next lease expires; sooner if a probe ends; `None` if leases do not expire |
    /// | [`ProbeInterval`](Reason::ProbeInterval) | until the next probe may start |
    /// | [`Throttled`](Reason::Throttled) | until the next probe may start, where there is a probe budget |
    /// | [`Ramp`](Reason::Ramp) | `None`: the next call may be let through at once |
    /// | [`ForcedOpen`](Reason::ForcedOpen), [`InFlightCap`](Reason::InFlightCap) | `None`: it depends on no time |
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Reason};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// breaker.force_open();
    /// let rejected = breaker.try_acquire().unwrap_err();
    /// assert_eq!(rejected.reason(), Reason::ForcedOpen);
    /// assert_eq!(rejected.retry_after(), None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.retry_after_nanos {
            NEVER => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            Reason::Open => "the breaker is open",
            Reason::HalfOpenFull => "the breaker is half-open and all its probes are under way",
            Reason::ProbeInterval => "the breaker is half-open and its next probe is not due",
            Reason::Ramp => "the breaker has just closed and lets only a part of the calls through",
            Reason::ForcedOpen => "the breaker was forced open; reset it to go on",
            Reason::InFlightCap => "as many calls are in flight as the breaker allows",
            Reason::Throttled => {
                "the throttle rejected the call, since too many of late were refused"
            }
        })?;
        match self.retry_after() {
            Some(after) => write!(f, "; retry after {after:?}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected")
            .field("reason", &self.reason)
            .field("retry_after", &self.retry_after())
            .finish()
    }
}

impl std::error::Error for Rejected {}

/// Why a guarded call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E> {
    /// It was not let through, and did not run.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// It ran, and this is its error.
    #[error(transparent)]
    Failed(E),
}

impl<E> CallError<E> {
    /// The rejection, if it is one.
    ///
    /// ```
    /// use wheelhouse_resilience::CallError;
    ///
    /// assert_eq!(CallError::Failed("refused").rejected(), None);
    /// ```
    pub fn rejected(&self) -> Option<&Rejected> {
        match self {
            CallError::Rejected(rejected) => Some(rejected),
            CallError::Failed(_) => None,
        }
    }

    /// The error of the call, if it ran.
    ///
    /// ```
    /// use wheelhouse_resilience::CallError;
    ///
    /// assert_eq!(CallError::Failed("refused").into_failed(), Some("refused"));
    /// ```
    pub fn into_failed(self) -> Option<E> {
        match self {
            CallError::Rejected(_) => None,
            CallError::Failed(error) => Some(error),
        }
    }
}
