//! The keys that are asked for: Zipf's law, and the value that belongs to each.

use std::sync::OnceLock;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// The exponent of Zipf's law.
const SKEW: f64 = 0.99;

/// The keys of one thread: `count` numbers below `distinct`, the k-th most popular one with a chance
/// in proportion to k to the power of -0.99, spread over all `u64`.
pub(super) fn zipf(distinct: usize, count: usize, seed: u64) -> Vec<u64> {
    static TABLE: OnceLock<Vec<f64>> = OnceLock::new();
    // A round asks for the same `distinct` as all others of its process: one workload.
    let table = TABLE.get_or_init(|| {
        let mut sum = 0.0;
        let weights = (1..=distinct).map(|rank| (rank as f64).powf(-SKEW));
        weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect()
    });
    assert_eq!(table.len(), distinct, "one workload in a process");
    let all = table[distinct - 1];
    let mut random = SmallRng::seed_from_u64(seed);
    let ranks = (0..count).map(|_| {
        let at = random.random_range(0.0..all);
        table.partition_point(|sum| *sum <= at)
    });
    ranks.map(|rank| key(rank as u64)).collect()
}

/// The key of a number: neighbours are nowhere near each other.
pub(super) fn key(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The value at a key.
pub(super) fn value(key: u64) -> u64 {
    !key
}
