//! The part `lifecycle`: starting and stopping the services of a process.
//!
//! Every subject has a multi-thread runtime of two workers to itself. Its services count themselves in when
//! they run and out when they end, and do nothing else. What is checked: all have begun and ended, and where
//! the subject has an order, none out of it.

use std::time::{Duration, Instant};

use crate::harness::{Entry, Load, Outcome, Pace, Part, Sample, Size, Workload, Wrong, expect};
use crate::peers::lifecycles::{Lifecycle, Tally};
use crate::peers::lifecycles_graceful::LifecyclesGraceful;
use crate::peers::lifecycles_tracker::LifecyclesTracker;
use crate::peers::lifecycles_wheelhouse::LifecyclesWheelhouse;

/// `versus -- lifecycle`.
pub const PART: Part = Part {
    name: "lifecycle",
    workloads: &[
        Workload {
            name: "startstop10k",
            threads: 1,
            size: Size::Fixed(10_000),
            pace: Pace::Short,
            timed: &[
                entry("wheelhouse", times::<LifecyclesWheelhouse<false>>),
                entry("wheelhouse_levels", times::<LifecyclesWheelhouse<true>>),
                entry("graceful_shutdown", times::<LifecyclesGraceful>),
                entry("task_tracker", times::<LifecyclesTracker>),
            ],
            counted: &[
                entry("wheelhouse", bytes::<LifecyclesWheelhouse<false>>),
                entry("wheelhouse_levels", bytes::<LifecyclesWheelhouse<true>>),
                entry("graceful_shutdown", bytes::<LifecyclesGraceful>),
                entry("task_tracker", bytes::<LifecyclesTracker>),
            ],
        },
        Workload {
            name: "stop100",
            threads: 1,
            size: Size::Fixed(100),
            pace: Pace::Short,
            timed: &[
                entry("wheelhouse", latency::<LifecyclesWheelhouse<false>>),
                entry("wheelhouse_levels", latency::<LifecyclesWheelhouse<true>>),
                entry("graceful_shutdown", latency::<LifecyclesGraceful>),
                entry("task_tracker", latency::<LifecyclesTracker>),
            ],
            counted: &[],
        },
    ],
};

/// Stops whose median is one round's value.
const STOPS: usize = 201;

const fn entry(subject: &'static str, run: fn(&Load) -> Outcome) -> Entry {
    Entry { subject, run }
}

/// From nothing until all `n` have begun, and from the request until all have ended.
fn times<L: Lifecycle>(load: &Load) -> Outcome {
    let (start, stop) = start_and_stop::<L>(load.n)?;
    let millis = |metric, time: Duration| Sample::median(metric, "ms", time.as_secs_f64() * 1e3);
    Ok(vec![
        millis("start_ms", start),
        millis("stop_ms", stop),
        millis("total_ms", start + stop),
    ])
}

/// From the request until all have ended, by the median of many groups.
fn latency<L: Lifecycle>(load: &Load) -> Outcome {
    let stops = if load.smoke { 1 } else { STOPS };
    let mut times = (0..stops)
        .map(|_| Ok(start_and_stop::<L>(load.n)?.1))
        .collect::<Result<Vec<_>, Wrong>>()?;
    times.sort();
    let median = times[times.len() / 2].as_secs_f64() * 1e6;
    Ok(vec![Sample::median("stop_us", "us", median)])
}

/// Heap bytes of services that run, over `n`: all of the subject's and their tasks'.
fn bytes<L: Lifecycle>(load: &Load) -> Outcome {
    let live_bytes = load.live_bytes.ok_or_else(|| {
        Wrong("bytes are counted by versus-counted, which gives the means".to_owned())
    })?;
    let each = on_a_runtime(async move {
        let tally = Tally::new(load.n);
        let before = live_bytes();
        let subject = L::start(tally.clone()).await;
        let grown = live_bytes() - before;
        subject.stop().await;
        check::<L>(&tally)?;
        Ok(grown as f64 / load.n as f64)
    })?;
    Ok(vec![Sample::median("bytes", "bytes", each)])
}

fn start_and_stop<L: Lifecycle>(n: usize) -> Result<(Duration, Duration), Wrong> {
    on_a_runtime(async move {
        let tally = Tally::new(n);
        let began = Instant::now();
        let subject = L::start(tally.clone()).await;
        let (start, asked) = (began.elapsed(), Instant::now());
        subject.stop().await;
        let stop = asked.elapsed();
        check::<L>(&tally)?;
        Ok((start, stop))
    })
}

fn on_a_runtime<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the system gives threads to a runtime");
    runtime.block_on(work)
}

fn check<L: Lifecycle>(tally: &Tally) -> Result<(), Wrong> {
    let (ended, early) = tally.ended();
    expect("services ended", ended, tally.services())?;
    if L::REVERSED {
        expect("services ended out of order", early, 0)?;
    }
    Ok(())
}
