//! [`Keyed`]: a breaker for each key of requests.

use std::borrow::Cow;

use super::{Admit, Guard};
use crate::{OwnedPermit, Registry, Rejected};

/// What a request is kept apart by: its host, say.
///
/// Functions `fn(&Request) -> Cow<'_, str>` are.
pub trait Key<Request> {
    /// The key of this request. Borrowed, so that it is copied only when it is new.
    fn key<'a>(&self, request: &'a Request) -> Cow<'a, str>;
}

impl<Request, F> Key<Request> for F
where
    F: for<'a> Fn(&'a Request) -> Cow<'a, str>,
{
    #[inline]
    fn key<'a>(&self, request: &'a Request) -> Cow<'a, str> {
        self(request)
    }
}

/// A guard that asks the breaker of a request's key.
///
/// How many keys there are, and when they are forgotten, is the [`Registry`]'s to say. Before the
/// request is known there is no breaker to ask, so the inner service is asked first whether it is
/// ready.
#[derive(Debug, Clone)]
pub struct Keyed<K> {
    registry: Registry,
    key: K,
}

impl<K> Keyed<K> {
    /// A breaker of `registry` for each `key`.
    pub fn new(registry: Registry, key: K) -> Self {
        Keyed { registry, key }
    }

    /// Where the breakers are.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl<K: Clone> Guard for Keyed<K> {
    type Permit = OwnedPermit;
    type Rejection = Rejected;
}

impl<Request, K: Key<Request> + Clone> Admit<Request> for Keyed<K> {
    #[inline]
    fn admit(&self, request: &Request) -> Result<OwnedPermit, Rejected> {
        self.registry
            .get(&self.key.key(request))
            .try_acquire_owned()
    }
}
