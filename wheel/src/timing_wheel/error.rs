//! One error per kind of operation; whatever was handed in comes back in it.

use std::fmt;

use super::shard::Command;

const CLOSED: &str = "the timing wheel is stopped; build a new one to go on";
const FULL: &str = "the pending limit is reached; set again when timers have fired, or build with a larger `max_pending`";

/// The wheel was stopped: the call changed nothing. Carries what was handed in.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", CLOSED)]
pub struct Closed<T = ()>(pub T);

/// Why a timer was not set. Carries the key and the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError<K, V> {
    /// As many timers are pending as the wheel was built for.
    #[error("{}", FULL)]
    Full(K, V),
    /// The wheel was stopped.
    #[error("{}", CLOSED)]
    Closed(K, V),
}

/// Why a timer was not set without helping. Carries the key and the value.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrySetError<K, V> {
    /// The shard's channel is full: somebody has to apply its batch first.
    #[error("the channel of this key is full; try again later, or let `set_timer` apply the batch")]
    Busy(K, V),
    /// As many timers are pending as the wheel was built for.
    #[error("{}", FULL)]
    Full(K, V),
    /// The wheel was stopped.
    #[error("{}", CLOSED)]
    Closed(K, V),
}

/// Why a timer was not moved or removed without helping. Carries the key.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryError<K> {
    /// The shard's channel is full: somebody has to apply its batch first.
    #[error(
        "the channel of this key is full; try again later, or let the waiting form apply the batch"
    )]
    Busy(K),
    /// The wheel was stopped.
    #[error("{}", CLOSED)]
    Closed(K),
}

impl<K, V> SetError<K, V> {
    /// What was handed in.
    pub fn into_inner(self) -> (K, V) {
        match self {
            SetError::Full(key, value) | SetError::Closed(key, value) => (key, value),
        }
    }
}

impl<K, V> TrySetError<K, V> {
    /// What was handed in.
    pub fn into_inner(self) -> (K, V) {
        match self {
            TrySetError::Busy(key, value)
            | TrySetError::Full(key, value)
            | TrySetError::Closed(key, value) => (key, value),
        }
    }
}

impl<K> TryError<K> {
    pub(crate) fn new<V>((command, closed): (Command<K, V>, bool)) -> Self {
        let key = command.into_key();
        if closed {
            TryError::Closed(key)
        } else {
            TryError::Busy(key)
        }
    }

    /// What was handed in.
    pub fn into_inner(self) -> K {
        match self {
            TryError::Busy(key) | TryError::Closed(key) => key,
        }
    }
}

// By hand, so that errors are errors whatever the key and the value are.
impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<K, V> fmt::Debug for SetError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetError::Full(..) => "Full(..)",
            SetError::Closed(..) => "Closed(..)",
        })
    }
}

impl<K, V> fmt::Debug for TrySetError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySetError::Busy(..) => "Busy(..)",
            TrySetError::Full(..) => "Full(..)",
            TrySetError::Closed(..) => "Closed(..)",
        })
    }
}

impl<K> fmt::Debug for TryError<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryError::Busy(..) => "Busy(..)",
            TryError::Closed(..) => "Closed(..)",
        })
    }
}
