//! Workloads that time calls: closed, with and without failures, and rejected.
//!
//! Each thread makes `n` calls on one breaker that all share; a call goes through the subject's own
//! one-line form and runs a closure that returns its number. The threads begin together, and the
//! slowest one's time counts, over `n`: with as many threads as cores it is what a call costs in each
//! of them. The numbers returned are added up and compared, and so is what the subject has counted.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Load, Outcome, Sample, Wrong, expect};
use crate::peers::{CallBreaker, Opens};

/// Calls timed in a round by each thread, at least, on fresh breakers.
const TIMED_CALLS: usize = 4_000_000;

/// One call in so many fails where some do.
const FAILS: u64 = 10;

/// Every call succeeds.
pub(super) fn closed<B: CallBreaker, const THREADS: usize>(load: &Load) -> Outcome {
    ns_per_call(load, |n| pass::<B>(&B::new(), THREADS, n, |_| false))
}

/// One call in ten fails, which opens none of the breakers.
pub(super) fn err10<B: CallBreaker, const THREADS: usize>(load: &Load) -> Outcome {
    ns_per_call(load, |n| {
        // Not the first: a rate over one call would be 1.
        pass::<B>(&B::new(), THREADS, n, |number| number % FAILS == FAILS - 1)
    })
}

/// Every call is rejected by an open breaker.
pub(super) fn reject<B: Opens>(load: &Load) -> Outcome {
    ns_per_call(load, |n| {
        let breaker = B::opened();
        let mut rejected = 0;
        let began = Instant::now();
        for number in 0..n as u64 {
            rejected += usize::from(breaker.call(black_box(number), false).is_none());
        }
        let spent = began.elapsed();
        expect("calls rejected", rejected, n)?;
        Ok(spent)
    })
}

/// Makes `n` calls in each thread, checks them, and gives the time of the slowest.
fn pass<B: CallBreaker>(
    breaker: &B,
    threads: usize,
    n: usize,
    fails: impl Fn(u64) -> bool + Sync,
) -> Result<Duration, Wrong> {
    let start = Barrier::new(threads);
    let run = || {
        let (mut sum, mut rejected) = (0_u64, 0_u64);
        start.wait();
        let began = Instant::now();
        for number in 0..n as u64 {
            match breaker.call(black_box(number), fails(number)) {
                Some(number) => sum += number,
                None => rejected += 1,
            }
        }
        (began.elapsed(), sum, rejected)
    };
    let results: Vec<_> = if threads == 1 {
        vec![run()]
    } else {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a thread that calls does not panic"))
                .collect()
        })
    };
    let all = n as u64;
    for &(_, sum, rejected) in &results {
        expect("calls rejected", rejected, 0)?;
        expect("sum of the numbers", sum, all * all.saturating_sub(1) / 2)?;
    }
    if let Some((successes, failures)) = breaker.counted() {
        let failed = (0..all).filter(|&number| fails(number)).count() as u64;
        let threads = threads as u64;
        expect("failures counted", failures, failed * threads)?;
        expect("successes counted", successes, (all - failed) * threads)?;
    }
    let slowest = results.into_iter().map(|(spent, ..)| spent).max();
    Ok(slowest.unwrap_or_default())
}

/// Times `pass` on fresh breakers often enough, and divides by the calls.
fn ns_per_call(load: &Load, mut pass: impl FnMut(usize) -> Result<Duration, Wrong>) -> Outcome {
    let passes = if load.smoke {
        1
    } else {
        TIMED_CALLS.div_ceil(load.n)
    };
    let mut spent = Duration::ZERO;
    for _ in 0..passes {
        spent += pass(load.n)?;
    }
    let each = spent.as_secs_f64() * 1e9 / (passes * load.n) as f64;
    Ok(vec![Sample::median("ns_per_call", "ns", each)])
}
