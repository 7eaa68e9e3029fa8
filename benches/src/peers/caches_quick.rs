//! `quick_cache`: the synchronized cache of quick_cache, which has no expiry and, as built here, no
//! statistics.
//!
//! Settings: its defaults, with its own hasher and as many shards as it takes for this machine. A
//! miss inserts with `insert`: its guards cost more. It rounds the capacity of its shards up.

use std::fmt;

use quick_cache::sync::Cache;

use super::caches::SharedCache;

/// The adapter.
pub struct QuickCache(Cache<u64, u64>);

impl SharedCache for QuickCache {
    fn new(capacity: usize) -> Self {
        Self(Cache::new(capacity))
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
        self.0.len()
    }

    fn most(capacity: usize) -> usize {
        capacity + capacity / 50 + 64
    }
}

impl fmt::Debug for QuickCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuickCache").field(&self.0.len()).finish()
    }
}
