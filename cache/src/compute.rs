//! What a computation decides, and what came of it.

/// What becomes of a key: the answer to [`Cache::compute`](crate::Cache::compute).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op<V> {
    /// It stays as it is.
    Keep,
    /// It gets this value, for as long as the cache says.
    Put(V),
    /// It is removed.
    Remove,
}

/// What came of a computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Computed<V> {
    /// There was nothing, and there is nothing.
    Nothing,
    /// The value stays.
    Kept(V),
    /// There was nothing; now there is this.
    Inserted(V),
    /// There was another value; now there is this.
    Replaced(V),
    /// This was there, and is no more.
    Removed(V),
}
