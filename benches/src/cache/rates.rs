//! Workloads that time operations: get-or-insert, reads and inserts.
//!
//! Each thread makes `n` operations on one cache that all share, and they begin together; the rate is
//! that of all operations by the time of the slowest thread. Keys are made before. A hit's value is
//! compared with its key's.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::keys::{key, value, zipf};
use super::{CAPACITY, DISTINCT, capacity};
use crate::harness::{Load, Outcome, Sample, Wrong, expect};
use crate::peers::caches::SharedCache;

/// Gets, and inserts where there was nothing; `n` operations of each thread come before, untimed.
pub(super) fn get_or_insert<C: SharedCache, const THREADS: usize>(load: &Load) -> Outcome {
    let n = operations::<C>(load);
    let cache = C::new(capacity(load));
    let distinct = if load.smoke { 1_000 } else { DISTINCT };
    let mut outcome = None;
    for pass in 0..2 {
        let keys =
            keys_of::<THREADS>(|thread| zipf(distinct, n, load.seed * 1_000 + pass * 10 + thread));
        outcome = Some(together(&keys, |keys| {
            let (mut hits, mut wrong) = (0_u64, 0_u64);
            for &key in keys {
                match cache.get(black_box(key)) {
                    Some(found) => {
                        hits += 1;
                        wrong += u64::from(found != value(key));
                    }
                    None => cache.insert(key, value(key)),
                }
            }
            (hits, wrong)
        }));
    }
    let (spent, hits, wrong) = outcome.unwrap_or_default();
    expect("values of other keys", wrong, 0)?;
    within_capacity(&cache, load)?;
    let all = (n * THREADS) as f64;
    let mut samples = vec![rate(all, spent)];
    if C::FEWER == 1 {
        let ratio = hits as f64 / all * 100.0;
        if !load.smoke && !(50.0..95.0).contains(&ratio) {
            return Err(Wrong(format!(
                "a hit ratio of {ratio} % is not to be had from these keys"
            )));
        }
        samples.push(Sample::median(
            "hit_ratio",
            "%",
            (ratio * 1e3).round() / 1e3,
        ));
    }
    Ok(samples)
}

/// Gets of keys that are all there: half as many as there is room for, by Zipf's law.
pub(super) fn reads<C: SharedCache, const THREADS: usize>(load: &Load) -> Outcome {
    let n = operations::<C>(load);
    let resident = capacity(load) / 2;
    let cache = C::new(capacity(load));
    for number in 0..resident as u64 {
        cache.insert(key(number), value(key(number)));
    }
    expect("entries", cache.settled_len(), resident)?;
    let keys = keys_of::<THREADS>(|thread| zipf(resident, n, load.seed * 1_000 + thread));
    let (spent, hits, wrong) = together(&keys, |keys| {
        let (mut hits, mut wrong) = (0, 0);
        for &key in keys {
            if let Some(found) = cache.get(black_box(key)) {
                hits += 1;
                wrong += u64::from(found != value(key));
            }
        }
        (hits, wrong)
    });
    expect("values of other keys", wrong, 0)?;
    expect("hits", hits, (n * THREADS) as u64)?;
    Ok(vec![rate((n * THREADS) as f64, spent)])
}

/// Inserts of keys that never come again, into a cache that is empty at first.
pub(super) fn inserts<C: SharedCache, const THREADS: usize>(load: &Load) -> Outcome {
    let n = operations::<C>(load);
    let cache = C::new(capacity(load));
    let keys = keys_of::<THREADS>(|thread| {
        let first = thread * n as u64;
        (first..first + n as u64).map(key).collect()
    });
    let (spent, ..) = together(&keys, |keys| {
        for &key in keys {
            cache.insert(black_box(key), value(key));
        }
        (0, 0)
    });
    within_capacity(&cache, load)?;
    let held = keys
        .iter()
        .flatten()
        .filter(|key| cache.get(**key) == Some(value(**key)))
        .take(CAPACITY)
        .count();
    if C::FEWER == 1 && held < (capacity(load) / 2).min(n) {
        return Err(Wrong(format!("only {held} of the entries are there")));
    }
    Ok(vec![rate((n * THREADS) as f64, spent)])
}

fn operations<C: SharedCache>(load: &Load) -> usize {
    if load.smoke {
        load.n
    } else {
        load.n.div_ceil(C::FEWER)
    }
}

fn within_capacity<C: SharedCache>(cache: &C, load: &Load) -> Result<(), Wrong> {
    let (len, most) = (cache.settled_len(), C::most(capacity(load)));
    if len > most {
        return Err(Wrong(format!("{len} entries where {most} may be")));
    }
    Ok(())
}

fn keys_of<const THREADS: usize>(keys: impl Fn(u64) -> Vec<u64>) -> Vec<Vec<u64>> {
    (0..THREADS as u64).map(keys).collect()
}

/// Runs `work` on a thread for each of `keys`: the time of the slowest, and the sums of what they
/// return.
fn together(keys: &[Vec<u64>], work: impl Fn(&[u64]) -> (u64, u64) + Sync) -> (Duration, u64, u64) {
    let start = Barrier::new(keys.len());
    let run = |keys: &[u64]| {
        start.wait();
        let began = Instant::now();
        let sums = work(keys);
        (began.elapsed(), sums)
    };
    let run = &run;
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = keys
            .iter()
            .map(|keys| scope.spawn(move || run(keys)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that calls does not panic"))
            .collect()
    });
    let mut all = (Duration::ZERO, 0, 0);
    for (spent, (hits, wrong)) in results {
        all = (all.0.max(spent), all.1 + hits, all.2 + wrong);
    }
    all
}

fn rate(operations: f64, spent: Duration) -> Sample {
    Sample::median("mops", "M/s", operations / spent.as_secs_f64() / 1e6)
}
