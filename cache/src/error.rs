//! One small error per operation.

use std::sync::Arc;

/// An argument was refused: no cache was built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {value}; {allowed}")]
#[non_exhaustive]
pub struct BuildError {
    pub(crate) argument: &'static str,
    pub(crate) value: String,
    pub(crate) allowed: &'static str,
}

impl BuildError {
    /// The name of the argument that was refused.
    #[must_use]
    pub fn argument(&self) -> &'static str {
        self.argument
    }
}

/// The cache is closed: nothing was stored, and here is the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cache is closed; build another one")]
#[non_exhaustive]
pub struct Closed<V> {
    /// What was to be stored.
    pub value: V,
}

/// Why a load gave no value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeError<E> {
    /// The load failed. Everyone who waited for it gets the same error.
    #[error("{0}")]
    Failed(Arc<E>),
    /// The load of this key asked for this key, which would wait for ever.
    #[error("the load of a key asked for the same key; load it from others")]
    Recursive,
    /// The cache is closed: nothing was loaded.
    #[error("the cache is closed; build another one")]
    Closed,
    /// The load of another caller, whose errors are of another type, failed.
    #[error("another caller's load of the key failed; ask again")]
    Other,
}

impl<E> Clone for TakeError<E> {
    fn clone(&self) -> Self {
        match self {
            Self::Failed(error) => Self::Failed(error.clone()),
            Self::Recursive => Self::Recursive,
            Self::Closed => Self::Closed,
            Self::Other => Self::Other,
        }
    }
}

impl<E: PartialEq> PartialEq for TakeError<E> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Failed(one), Self::Failed(other)) => one == other,
            (Self::Recursive, Self::Recursive)
            | (Self::Closed, Self::Closed)
            | (Self::Other, Self::Other) => true,
            _ => false,
        }
    }
}
