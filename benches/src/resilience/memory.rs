//! Workloads that count what is on the heap.

use std::hint::black_box;

use crate::harness::{Load, Outcome, Sample, Wrong, expect};
use crate::peers::CallBreaker;

/// Breakers that are there at once.
const BREAKERS: usize = 1_000;

/// Calls that each has made: enough for what is allocated on first use.
const CALLS: u64 = 100;

/// Live bytes of a breaker that has been used, its handle included.
pub(super) fn bytes<B: CallBreaker>(load: &Load) -> Outcome {
    let live_bytes = load.live_bytes.ok_or_else(counted_only)?;
    let breakers = if load.smoke { 10 } else { BREAKERS };
    // What the subject has for the whole process is not a breaker's.
    use_up(&B::new())?;
    let before = live_bytes();
    let mut all = Vec::with_capacity(breakers);
    for _ in 0..breakers {
        let breaker = B::new();
        use_up(&breaker)?;
        all.push(breaker);
    }
    let grown = live_bytes() - before;
    drop(black_box(all));
    let each = grown as f64 / breakers as f64;
    Ok(vec![Sample::median("bytes", "bytes", each)])
}

/// Allocations of a call on a closed breaker.
pub(super) fn allocations<B: CallBreaker>(load: &Load) -> Outcome {
    let allocations = load.allocations.ok_or_else(counted_only)?;
    let breaker = B::new();
    use_up(&breaker)?;
    let before = allocations();
    let mut sum = 0;
    for number in 0..load.n as u64 {
        sum += breaker.call(number, number % 10 == 9).unwrap_or(u64::MAX);
    }
    let made = allocations() - before;
    let n = load.n as u64;
    expect("sum of the numbers", sum, n * n.saturating_sub(1) / 2)?;
    let each = made as f64 / load.n as f64;
    Ok(vec![Sample::median("allocs", "allocations", each)])
}

pub(super) fn counted_only() -> Wrong {
    Wrong("the heap is counted by versus-counted, which gives the means".to_owned())
}

fn use_up<B: CallBreaker>(breaker: &B) -> Result<(), Wrong> {
    let admitted = (0..CALLS).filter(|&number| breaker.call(number, number % 10 == 9).is_some());
    expect("calls admitted", admitted.count() as u64, CALLS)
}
