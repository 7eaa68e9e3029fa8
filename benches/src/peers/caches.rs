//! What a cache has to do for the comparison, from `u64` to `u64`.

/// A cache that threads share.
pub trait SharedCache: Sized + Sync {
    /// One thread's operations are this many times fewer than the others': for a subject whose
    /// operations take so long that a round would never end.
    const FEWER: usize = 1;

    /// An empty one for `capacity` entries, with a time to live of [`LIFETIME`] where it has such.
    fn new(capacity: usize) -> Self;

    /// The value at `key`.
    fn get(&self, key: u64) -> Option<u64>;

    /// Stores a value.
    fn insert(&self, key: u64, value: u64);

    /// The entries there are, once everything that was put off has been done.
    fn settled_len(&self) -> usize;

    /// The most that it holds when asked for `capacity`.
    fn most(capacity: usize) -> usize {
        capacity
    }
}

/// How long values live: no round takes as long, so that what is timed is keeping deadlines and
/// looking at them, not expiry.
pub const LIFETIME: std::time::Duration = std::time::Duration::from_secs(600);
