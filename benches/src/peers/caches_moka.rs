//! `moka_ttl`, `moka_lru_ttl` and `mini_moka`: moka's synchronous cache with a time to live under
//! TinyLFU and under LRU, and mini-moka's.
//!
//! Settings: their defaults but for the hasher, which is foldhash as in the other subjects: SipHash
//! would cost them some tens of nanoseconds. `get` then `insert`, since `get_with` would keep a lock
//! for each key. What they put off is run before they are asked for their length.

use std::fmt;

use foldhash::fast::RandomState;
use mini_moka::sync::ConcurrentCacheExt;
use moka::policy::EvictionPolicy;

use super::caches::{LIFETIME, SharedCache};

/// The adapter of moka; `TTL` gives it a time to live.
pub struct Moka<const LRU: bool, const TTL: bool>(moka::sync::Cache<u64, u64, RandomState>);

impl<const LRU: bool, const TTL: bool> SharedCache for Moka<LRU, TTL> {
    fn new(capacity: usize) -> Self {
        let policy = if LRU {
            EvictionPolicy::lru()
        } else {
            EvictionPolicy::tiny_lfu()
        };
        let mut builder = moka::sync::Cache::builder()
            .max_capacity(capacity as u64)
            .eviction_policy(policy);
        if TTL {
            builder = builder.time_to_live(LIFETIME);
        }
        Self(builder.build_with_hasher(RandomState::default()))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn settled_len(&self) -> usize {
        settle(
            || self.0.run_pending_tasks(),
            || self.0.entry_count() as usize,
        )
    }
}

/// The adapter of mini-moka.
pub struct MiniMoka<const TTL: bool>(mini_moka::sync::Cache<u64, u64, RandomState>);

impl<const TTL: bool> SharedCache for MiniMoka<TTL> {
    fn new(capacity: usize) -> Self {
        let mut builder = mini_moka::sync::Cache::builder().max_capacity(capacity as u64);
        if TTL {
            builder = builder.time_to_live(LIFETIME);
        }
        Self(builder.build_with_hasher(RandomState::default()))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn settled_len(&self) -> usize {
        settle(|| self.0.sync(), || self.0.entry_count() as usize)
    }
}

/// Runs what was put off until the length no longer changes: one run does a batch of it.
fn settle(run: impl Fn(), len: impl Fn() -> usize) -> usize {
    let mut before = usize::MAX;
    loop {
        run();
        let now = len();
        if now == before {
            return now;
        }
        before = now;
    }
}

impl<const LRU: bool, const TTL: bool> fmt::Debug for Moka<LRU, TTL> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Moka").field(&self.0.entry_count()).finish()
    }
}

impl<const TTL: bool> fmt::Debug for MiniMoka<TTL> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.entry_count();
        f.debug_tuple("MiniMoka").field(&entries).finish()
    }
}
