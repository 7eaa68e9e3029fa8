//! What a listener is told: which value left the cache, and why.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::shard::{Micros, NEVER, Removed};

/// Why a value left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// Its deadline came.
    Expired,
    /// There was no room.
    Evicted,
    /// Its key got another value.
    Replaced,
    /// It was removed: by its key, or by a condition.
    Removed,
    /// The cache was cleared or closed.
    Cleared,
}

/// A value that has left the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<K, V> {
    /// Its key.
    pub key: K,
    /// The value.
    pub value: V,
    /// Why it left.
    pub cause: Cause,
    /// For how long it would have stayed visible: zero when it had expired, `None` when it never
    /// would have.
    pub time_left: Option<Duration>,
}

pub(crate) type Callback<K, V> = Arc<dyn Fn(Event<K, V>) + Send + Sync>;

/// The user's function, and how often it panicked.
pub(crate) struct Listener<K, V> {
    callback: Option<Callback<K, V>>,
    panics: AtomicU64,
}

impl<K, V> Listener<K, V> {
    pub(crate) fn new(callback: Option<Callback<K, V>>) -> Self {
        Listener {
            callback,
            panics: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.callback.is_some()
    }

    pub(crate) fn panics(&self) -> u64 {
        // A count: nothing is read through it.
        self.panics.load(Ordering::Relaxed)
    }

    /// Counts a panic of another function of the user's.
    pub(crate) fn has_panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Hands over what has left, outside every lock. A panic of the listener, or of the drop of what
    /// it was given, ends nothing.
    pub(crate) fn tell(&self, gone: Gone<K, V>, now: impl FnOnce() -> Micros) {
        if gone.is_empty() {
            return;
        }
        let now = if self.callback.is_some() { now() } else { 0 };
        for (removed, cause) in gone.first.into_iter().chain(gone.more) {
            let told = catch_unwind(AssertUnwindSafe(|| {
                let entry = removed.entry;
                let Some(callback) = &self.callback else {
                    return;
                };
                let time_left = match (cause, entry.deadline()) {
                    (Cause::Expired, _) => Some(Duration::ZERO),
                    (_, NEVER) => None,
                    (_, deadline) => Some(Duration::from_micros(deadline.saturating_sub(now))),
                };
                callback(Event {
                    key: entry.key,
                    value: entry.value,
                    cause,
                    time_left,
                });
            }));
            if told.is_err() {
                self.panics.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Entries that have left the table under its lock and are to be dropped outside it.
#[must_use]
pub(crate) struct Gone<K, V> {
    /// Most operations take out at most one: it needs no memory.
    first: Option<(Removed<K, V>, Cause)>,
    more: Vec<(Removed<K, V>, Cause)>,
}

impl<K, V> Gone<K, V> {
    pub(crate) fn new() -> Self {
        Gone {
            first: None,
            more: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn first_value(&self) -> Option<&V> {
        Some(&self.first.as_ref()?.0.entry.value)
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }

    pub(crate) fn add(&mut self, removed: Removed<K, V>, cause: Cause) {
        if self.first.is_none() {
            self.first = Some((removed, cause));
        } else {
            self.more.push((removed, cause));
        }
    }
}
