//! Permits: one of the places of a bulkhead, given back when dropped.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::Shared;

/// A place in a [`Bulkhead`](super::Bulkhead), which it borrows. Dropping it gives the place back, to
/// the one who waits longest if anybody does.
#[must_use = "a permit that is dropped is given back"]
pub struct Permit<'a> {
    _held: Held<&'a Shared>,
}

/// A place in a [`Bulkhead`](super::Bulkhead) for futures and threads that outlive the borrow.
/// Dropping it gives the place back, to the one who waits longest if anybody does.
#[must_use = "a permit that is dropped is given back"]
pub struct OwnedPermit {
    _held: Held<Arc<Shared>>,
}

/// The duty to give a permit back.
pub(super) struct Held<H: Deref<Target = Shared>>(H);

impl<H: Deref<Target = Shared>> Held<H> {
    /// For somebody to whom the gate has given a permit.
    #[inline]
    pub(super) fn new(shared: H) -> Self {
        Held(shared)
    }
}

impl<H: Deref<Target = Shared>> Drop for Held<H> {
    #[inline]
    fn drop(&mut self) {
        self.0.gate.put_back();
    }
}

impl<'a> From<Held<&'a Shared>> for Permit<'a> {
    #[inline]
    fn from(held: Held<&'a Shared>) -> Self {
        Permit { _held: held }
    }
}

impl From<Held<Arc<Shared>>> for OwnedPermit {
    #[inline]
    fn from(held: Held<Arc<Shared>>) -> Self {
        OwnedPermit { _held: held }
    }
}

impl fmt::Debug for Permit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}

impl fmt::Debug for OwnedPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedPermit").finish_non_exhaustive()
    }
}
