//! Plays the requests on the cache of the library.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use foldhash::fast::FixedState;
use wheelhouse_cache::{Cache, Policy};
use wheelhouse_wheel::Clock;

use super::{CacheArgs, PolicyName};
use crate::failure::Failure;

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) hits: u64,
    /// The largest number of entries seen.
    pub(super) largest: u64,
}

/// The virtual time: the number of requests so far, in milliseconds.
#[derive(Debug, Clone)]
struct Requests {
    began: Instant,
    /// Relaxed: threads agree on the number, and nothing is read through it.
    so_far: Arc<AtomicU64>,
}

impl Clock for Requests {
    fn now(&self) -> Instant {
        let so_far = self.so_far.load(Ordering::Relaxed);
        self.began + Duration::from_millis(so_far)
    }
}

pub(super) fn play(args: &CacheArgs, keys: &[u32]) -> Result<Played, Failure> {
    let clock = Requests {
        began: Instant::now(),
        so_far: Arc::default(),
    };
    // The same seeds each time: so is the output, on one thread.
    let mut builder = Cache::<u32, ()>::builder()
        .capacity(args.capacity)
        .policy(match args.policy {
            PolicyName::Default => Policy::Adaptive,
            PolicyName::Lru => Policy::Lru,
            PolicyName::Sieve => Policy::Sieve,
            PolicyName::Fifo => Policy::Fifo,
        })
        .jitter(0.0)
        .seed(1)
        .clock(clock.clone());
    if let Some(lifetime) = args.ttl {
        builder = builder.time_to_live(lifetime);
    }
    let cache = builder
        .hasher(FixedState::with_seed(1))
        .build()
        .map_err(|error| Failure::Usage(error.to_string()))?;

    let threads = args.threads as usize;
    let part = |first: usize| {
        let mut played = Played::default();
        for &key in keys.iter().skip(first).step_by(threads) {
            clock.so_far.fetch_add(1, Ordering::Relaxed);
            if cache.get(&key).is_some() {
                played.hits += 1;
            } else if cache.set(key, ()).is_ok() {
                played.largest = played.largest.max(cache.weight());
            }
        }
        played
    };
    if threads == 1 {
        return Ok(part(0));
    }
    let parts = thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || part(first)))
            .collect();
        let parts = parts.into_iter().map(thread::ScopedJoinHandle::join);
        parts.collect::<Result<Vec<_>, _>>()
    });
    let parts = parts.map_err(|_| Failure::System("a thread of the trace failed".to_owned()))?;
    Ok(parts
        .into_iter()
        .fold(Played::default(), |sum, part| Played {
            hits: sum.hits + part.hits,
            largest: sum.largest.max(part.largest),
        }))
}
