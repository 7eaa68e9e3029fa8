//! `wheelhouse` and `wheelhouse_lru`: our cache under the default policy and under strict LRU.
//!
//! Settings: the defaults. Statistics are always on, the lifetime deviates by 5 %, and stores reclaim
//! what has expired. Strict LRU has one shard, as it must.

use std::fmt;

use wheelhouse_cache::{Builder, Cache, Policy};

use super::caches::{LIFETIME, SharedCache};

/// The adapter, with a time to live where `TTL` says so.
pub struct OurCache<const LRU: bool, const TTL: bool>(Cache<u64, u64>);

impl<const LRU: bool, const TTL: bool> SharedCache for OurCache<LRU, TTL> {
    fn new(capacity: usize) -> Self {
        let mut builder = our_builder::<LRU>(capacity);
        if TTL {
            builder = builder.time_to_live(LIFETIME);
        }
        Self(builder.build().expect("the arguments are in range"))
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    #[inline]
    fn insert(&self, key: u64, value: u64) {
        self.0.set(key, value).expect("the cache is open");
    }

    fn settled_len(&self) -> usize {
        self.0.len()
    }
}

/// A builder with the policy.
pub(crate) fn our_builder<const LRU: bool>(capacity: usize) -> Builder<u64, u64> {
    let policy = if LRU { Policy::Lru } else { Policy::default() };
    Cache::builder().capacity(capacity as u64).policy(policy)
}

impl<const LRU: bool, const TTL: bool> fmt::Debug for OurCache<LRU, TTL> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OurCache").field(&self.0.stats()).finish()
    }
}
