//! What the simulator drives: something that admits calls and learns how they ended.
//!
//! Time is nanoseconds since the start of the run and never steps back.

/// A breaker or throttle, or a model of one.
pub(crate) trait Policy {
    /// What an admitted call carries until it settles.
    type Token;

    /// Admits or rejects a call that arrives at `now`.
    fn admit(&mut self, now: u64) -> Option<Admitted<Self::Token>>;

    /// Tells how an admitted call ended.
    fn settle(&mut self, token: Self::Token, outcome: Outcome, now: u64);

    /// Changes of state so far; 0 for ever where there are no states.
    fn transitions(&self) -> u64;
}

/// An admitted call.
#[derive(Debug)]
pub(crate) struct Admitted<T> {
    pub(crate) token: T,
    /// Whether it was let through to find out whether the backend is back.
    pub(crate) probe: bool,
}

impl<T> Admitted<T> {
    /// A call like any other.
    pub(crate) fn plain(token: T) -> Option<Self> {
        Some(Self {
            token,
            probe: false,
        })
    }

    /// A call that finds out whether the backend is back.
    pub(crate) fn probe(token: T) -> Option<Self> {
        Some(Self { token, probe: true })
    }
}

/// How a call ended for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    /// The backend said no, or nothing in time.
    Failure,
    /// The caller went away before there was an answer.
    Cancelled,
}
