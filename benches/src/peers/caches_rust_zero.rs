//! `rust_zero`: the bounded cache of rust-zero-core, go-zero's in Rust.
//!
//! Settings: it has none but the capacity. A use looks for the key in the list of all of them, so it
//! makes a hundredth of the operations, and its hit ratio, from a cache that has hardly begun to
//! fill, is not given.

use std::fmt;

use rust_zero_core::cache::MemoryCache;

use super::caches::{LIFETIME, SharedCache};

/// The adapter.
pub struct RustZeroCache(MemoryCache<u64, u64>);

impl SharedCache for RustZeroCache {
    const FEWER: usize = 100;

    fn new(capacity: usize) -> Self {
        Self(MemoryCache::new(capacity))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value, LIFETIME);
    }

    fn settled_len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for RustZeroCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RustZeroCache")
            .field(&self.0.stats())
            .finish()
    }
}
