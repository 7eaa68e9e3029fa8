//! Permits of an adaptive limit, and what they report.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::{Verdict, bulkhead};

use super::{Sample, Shared};

/// A call in flight under an [`AdaptiveLimit`](super::AdaptiveLimit), which it borrows.
///
/// It is to be told how the call ended. Dropped without that, the call counts as cancelled: the place
/// comes back and the limit learns nothing.
#[must_use = "a permit that is dropped counts as a cancelled call"]
pub struct Permit<'a> {
    shared: &'a Shared,
    start: Start,
    place: bulkhead::Permit<'a>,
}

/// A call in flight under an [`AdaptiveLimit`](super::AdaptiveLimit), for futures and threads that
/// outlive the borrow. It works as [`Permit`] does.
#[must_use = "a permit that is dropped counts as a cancelled call"]
pub struct OwnedPermit {
    shared: Arc<Shared>,
    start: Start,
    place: bulkhead::OwnedPermit,
}

/// When a call began, and how many were in flight then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    at: Instant,
    in_flight: usize,
}

impl Start {
    pub(super) fn now(shared: &Shared) -> Self {
        Start {
            at: shared.clock.now(),
            in_flight: shared.places.in_use(),
        }
    }

    fn good(self, shared: &Shared) {
        let now = shared.clock.now();
        let rtt = now.saturating_duration_since(self.at);
        shared.learn(&Sample::good(rtt, self.in_flight), now);
    }

    fn dropped(self, shared: &Shared) {
        shared.learn(&Sample::dropped(self.in_flight), shared.clock.now());
    }
}

impl<'a> Permit<'a> {
    pub(super) fn new(shared: &'a Shared, place: bulkhead::Permit<'a>) -> Self {
        Permit {
            shared,
            start: Start::now(shared),
            place,
        }
    }

    /// The call ended well: its round-trip time is a sample.
    pub fn success(self) {
        drop(self.place);
        self.start.good(self.shared);
    }

    /// The call timed out, or the server turned it away for want of capacity: a sign of overload
    /// without a round-trip time.
    pub fn dropped(self) {
        drop(self.place);
        self.start.dropped(self.shared);
    }

    /// The call says nothing about the server's capacity, because it was refused early, say.
    pub fn ignored(self) {
        drop(self.place);
    }

    /// [`success`](Self::success), [`dropped`](Self::dropped) or [`ignored`](Self::ignored), where a
    /// failure counts as dropped.
    pub fn settle(self, verdict: Verdict) {
        match verdict {
            Verdict::Success => self.success(),
            Verdict::Failure => self.dropped(),
            Verdict::Ignored => self.ignored(),
        }
    }
}

impl OwnedPermit {
    pub(super) fn new(shared: Arc<Shared>, place: bulkhead::OwnedPermit) -> Self {
        OwnedPermit {
            start: Start::now(&shared),
            shared,
            place,
        }
    }

    /// As [`Permit::success`].
    pub fn success(self) {
        drop(self.place);
        self.start.good(&self.shared);
    }

    /// As [`Permit::dropped`].
    pub fn dropped(self) {
        drop(self.place);
        self.start.dropped(&self.shared);
    }

    /// As [`Permit::ignored`].
    pub fn ignored(self) {
        drop(self.place);
    }

    /// As [`Permit::settle`].
    pub fn settle(self, verdict: Verdict) {
        match verdict {
            Verdict::Success => self.success(),
            Verdict::Failure => self.dropped(),
            Verdict::Ignored => self.ignored(),
        }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OwnedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit")
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}
