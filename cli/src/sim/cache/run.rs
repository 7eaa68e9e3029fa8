//! Plays the requests on the cache of the library.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use foldhash::fast::FixedState;
use wheelhouse_cache::{Cache, Policy};
use wheelhouse_wheel::Clock;

use super::{CacheArgs, PolicyName};
use crate::failure::Failure;

/// Requests that a thread may be ahead of the slowest: a trace that threads play at paces of their own
/// would be another trace.
const AHEAD: usize = 8;

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) hits: u64,
    /// The largest number of entries seen.
    pub(super) max_len: u64,
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
    // Where each thread is. Relaxed: they only keep together, and nothing is read through it.
    let places: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
    let part = |first: usize| {
        let mut played = Played::default();
        for (place, &key) in keys.iter().skip(first).step_by(threads).enumerate() {
            places[first].store(place, Ordering::Relaxed);
            while place.is_multiple_of(AHEAD / 2) && is_ahead(&places, place) {
                thread::yield_now();
            }
            clock.so_far.fetch_add(1, Ordering::Relaxed);
            if cache.get(&key).is_some() {
                played.hits += 1;
            } else if cache.set(key, ()).is_ok() {
                played.max_len = played.max_len.max(cache.weight());
            }
        }
        places[first].store(usize::MAX, Ordering::Relaxed);
        played
    };
    if threads == 1 {
        return Ok(part(0));
    }
    let parts = thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn({
                    let part = &part;
                    move || part(first)
                })
            })
            .collect();
        let parts = parts.into_iter().map(thread::ScopedJoinHandle::join);
        parts.collect::<Result<Vec<_>, _>>()
    });
    let parts = parts.map_err(|_| Failure::System("a thread of the trace failed".to_owned()))?;
    Ok(parts
        .into_iter()
        .fold(Played::default(), |sum, part| Played {
            hits: sum.hits + part.hits,
            max_len: sum.max_len.max(part.max_len),
        }))
}

/// Whether some thread is so far behind `place` that the one there has to wait.
fn is_ahead(places: &[AtomicUsize], place: usize) -> bool {
    let slowest = places.iter().map(|place| place.load(Ordering::Relaxed));
    slowest
        .min()
        .is_some_and(|slowest| place > slowest.saturating_add(AHEAD))
}
