//! `reclaim1m`: as many entries as `n` are due at one instant, while a thread goes on with the cache.
//!
//! The entries are stored with what is left until that instant for their lifetime, without jitter,
//! and a driver takes them out. From the instant until they are gone, a thread gets and sets a
//! thousand keys that live on, and times each operation. What the reclaimer holds up shows in the
//! longest of them; on a machine that is busy, so does what else runs.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wheelhouse_cache::{Driver, Reclaim};

use super::keys::{key, value};
use crate::harness::{Fold, Load, Outcome, Sample, Wrong, expect};
use crate::peers::caches_wheelhouse::our_builder;

/// Keys that live on.
const ALIVE: u64 = 1_000;

/// For how long it may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn reclaim<const LRU: bool>(load: &Load) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Wrong(error.to_string());
    let n = load.n as u64;
    let cache = our_builder::<LRU>(load.n + ALIVE as usize)
        .jitter(0.0)
        .reclaim(Reclaim::OnRequest)
        .build()
        .map_err(|error| failed(&error))?;
    let driver = Driver::start().map_err(|error| failed(&error))?;
    driver.drive(&cache);
    for number in n..n + ALIVE {
        cache
            .set(key(number), value(key(number)))
            .map_err(|error| failed(&error))?;
    }
    let wait = if load.smoke { 100 } else { 4_000 };
    let due = Instant::now() + Duration::from_millis(wait);
    for number in 0..n {
        let left = due.saturating_duration_since(Instant::now());
        cache
            .set_with_ttl(key(number), value(key(number)), left)
            .map_err(|error| failed(&error))?;
    }
    expect("entries", cache.len() as u64, n + ALIVE)?;
    std::thread::sleep(due.saturating_duration_since(Instant::now()));

    let mut spans = Histogram::<u64>::new(3).map_err(|error| failed(&error))?;
    let mut wrong = 0;
    let mut number = 0;
    while cache.len() as u64 > ALIVE {
        let key = key(n + number % ALIVE);
        let began = Instant::now();
        let result = if number % 10 == 9 {
            cache.set(key, value(key)).is_ok()
        } else {
            cache.get(&key) == Some(value(key))
        };
        let spent = began.elapsed();
        spans.saturating_record(spent.as_nanos() as u64);
        wrong += u64::from(!result);
        number += 1;
        if due.elapsed() > PATIENCE {
            return Err(Wrong(format!("{} entries are left", cache.len())));
        }
    }
    let taken = due.elapsed();
    expect("operations that failed", wrong, 0)?;
    expect("entries left", cache.len() as u64, ALIVE)?;
    Ok(vec![
        Sample::median("reclaim_ms", "ms", taken.as_secs_f64() * 1e3),
        Sample::median(
            "p9999_us",
            "us",
            spans.value_at_quantile(0.9999) as f64 / 1e3,
        ),
        Sample::median("max_us", "us", spans.max() as f64 / 1e3).folded(Fold::Max),
    ])
}
