//! Permits of an adaptive limit, and what they report.

use std::fmt;
use std::ops::Deref;
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
    call: Call<&'a Shared, bulkhead::Permit<'a>>,
}

/// A call in flight under an [`AdaptiveLimit`](super::AdaptiveLimit), for futures and threads that
/// outlive the borrow. It works as [`Permit`] does.
#[must_use = "a permit that is dropped counts as a cancelled call"]
pub struct OwnedPermit {
    call: Call<Arc<Shared>, bulkhead::OwnedPermit>,
}

impl<'a> Permit<'a> {
    pub(super) fn new(shared: &'a Shared, place: bulkhead::Permit<'a>) -> Self {
        Permit {
            call: Call::begin(shared, place),
        }
    }

    /// The call ended well: its round-trip time is a sample.
    pub fn success(self) {
        self.call.end(Verdict::Success);
    }

    /// The call timed out, or the server turned it away for want of capacity: a sign of overload
    /// without a round-trip time.
    pub fn dropped(self) {
        self.call.end(Verdict::Failure);
    }

    /// The call says nothing about the server's capacity, because it was refused early, say.
    pub fn ignored(self) {
        self.call.end(Verdict::Ignored);
    }

    /// [`success`](Self::success), [`dropped`](Self::dropped) or [`ignored`](Self::ignored), where a
    /// failure counts as dropped.
    pub fn settle(self, verdict: Verdict) {
        self.call.end(verdict);
    }
}

impl OwnedPermit {
    pub(super) fn new(shared: Arc<Shared>, place: bulkhead::OwnedPermit) -> Self {
        OwnedPermit {
            call: Call::begin(shared, place),
        }
    }

    /// As [`Permit::success`].
    pub fn success(self) {
        self.call.end(Verdict::Success);
    }

    /// As [`Permit::dropped`].
    pub fn dropped(self) {
        self.call.end(Verdict::Failure);
    }

    /// As [`Permit::ignored`].
    pub fn ignored(self) {
        self.call.end(Verdict::Ignored);
    }

    /// As [`Permit::settle`].
    pub fn settle(self, verdict: Verdict) {
        self.call.end(verdict);
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt_as("Permit", f)
    }
}

impl fmt::Debug for OwnedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt_as("OwnedPermit", f)
    }
}

/// When a call began, how many were in flight then, and the place that it takes.
struct Call<H: Deref<Target = Shared>, P> {
    shared: H,
    began: Instant,
    in_flight: usize,
    place: P,
}

impl<H: Deref<Target = Shared>, P> Call<H, P> {
    fn begin(shared: H, place: P) -> Self {
        Call {
            began: shared.clock.now(),
            in_flight: shared.places.in_use(),
            shared,
            place,
        }
    }

    fn end(self, verdict: Verdict) {
        let Call {
            shared,
            began,
            in_flight,
            place,
        } = self;
        // First, so that the place is free before anybody's code runs.
        drop(place);
        if verdict == Verdict::Ignored {
            return;
        }
        let now = shared.clock.now();
        let sample = match verdict {
            Verdict::Success => Sample::good(now.saturating_duration_since(began), in_flight),
            _ => Sample::dropped(in_flight),
        };
        shared.learn(&sample, now);
    }

    fn fmt_as(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("began", &self.began)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}
