//! Workloads of one-shots that each bump an atomic.
//!
//! Every subject has a multi-thread runtime of two workers to itself, and is called by one task on
//! it, which reads the clock, adds the delay, schedules, and yields after [`YIELD_AFTER`] calls. The
//! time of scheduling ends when all that was scheduled waits for its time: for subjects that work
//! off what they were given later, not when they were given it. Lateness is from the due time that
//! the caller has computed before its call to the begin of the work.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::yield_now;

use crate::harness::{Fold, Load, Outcome, Sample, Wrong, expect};
use crate::peers::{Ledger, OneShotCaller, OneShots};
use crate::proc;

/// Calls after which the scheduling task lets its worker turn to others.
const YIELD_AFTER: usize = 64;

/// How long after the last due time a one-shot counts as lost.
const GRACE: Duration = Duration::from_secs(10);

/// Schedules `n` one-shots due uniformly 5–15 s after their calls, and lets them run.
pub(super) fn spread<S: OneShots>(load: &Load) -> Outcome {
    let delays = Delays::new(load);
    let longest = delays.longest;
    let each = delays.each;
    let run = run::<S>(load, longest, move |number| Instant::now() + each[number])?;
    let mut samples = run.samples;
    samples.insert(0, Sample::median("schedule_mops", "M/s", run.mops));
    samples.push(Sample::median("cpu_s", "s", run.cpu.as_secs_f64()));
    Ok(samples)
}

/// Heap bytes of everything that `spread` has scheduled before the first is due, over `n`.
pub(super) fn bytes<S: OneShots>(load: &Load) -> Outcome {
    let live_bytes = load.live_bytes.ok_or_else(|| {
        Wrong("bytes are counted by versus-counted, which gives the means".to_owned())
    })?;
    let Delays { each, shortest, .. } = Delays::new(load);
    let ledger = Ledger::of(load.n);

    // Freed no earlier than what is counted.
    let kept = Arc::clone(&each);

    let before = live_bytes();
    let began = Instant::now();
    let subject = S::start(ledger);
    schedule(&subject, ledger, load.n, move |number| {
        Instant::now() + each[number]
    });
    let pending = subject.flush();
    let grown = live_bytes() - before;
    drop(kept);

    // Some would have been freed already.
    if began.elapsed() >= shortest {
        return Err(Wrong(format!(
            "{} one-shots took longer to schedule than the shortest delay, {shortest:?}",
            load.n
        )));
    }
    expect("one-shots pending", pending, load.n)?;
    subject.stop();
    let per_task = grown as f64 / load.n as f64;
    Ok(vec![Sample::median("bytes", "bytes", per_task)])
}

/// Schedules `n` one-shots that are due at the same instant, half a second from now.
pub(super) fn burst<S: OneShots>(load: &Load) -> Outcome {
    let ahead = Duration::from_millis(500);
    let due = Instant::now() + ahead;
    let run = run::<S>(load, ahead, move |_| due)?;
    if run.scheduled >= due {
        return Err(Wrong(format!(
            "{} one-shots took longer to schedule than their delay, {ahead:?}",
            load.n
        )));
    }
    Ok(run.samples)
}

/// What a run has shown.
struct Shown {
    mops: f64,
    /// When everything was scheduled.
    scheduled: Instant,
    /// User and system time from the start to the last one-shot.
    cpu: Duration,
    /// `early`, `lost` and the lateness.
    samples: Vec<Sample>,
}

/// Schedules `n` one-shots, due when `due` says, and lets them run; no delay is longer than
/// `longest`.
fn run<S: OneShots>(
    load: &Load,
    longest: Duration,
    due: impl FnMut(usize) -> Instant + Send + 'static,
) -> Result<Shown, Wrong> {
    let ledger = Ledger::of(load.n);
    let cpu_before = proc::cpu_time();
    let subject = S::start(ledger);
    let began = Instant::now();
    let due_sum = schedule(&subject, ledger, load.n, due);
    subject.flush();
    let scheduled = Instant::now();

    thread::sleep(longest);
    let last_due = Instant::now();
    while ledger.count() < load.n && last_due.elapsed() < GRACE {
        thread::sleep(Duration::from_millis(20));
    }
    let cpu = proc::cpu_time() - cpu_before;
    subject.stop();

    let ran = ledger.add_up();
    let lost = load.n.saturating_sub(ran.count);
    if ran.count > load.n {
        return Err(Wrong(format!("{} of {} one-shots ran", ran.count, load.n)));
    }
    if lost == 0 {
        expect("sum of their due times", ran.due, due_sum)?;
    }
    if load.smoke {
        expect("one-shots lost", lost, 0)?;
        expect("one-shots early", ran.early, 0)?;
    }
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let at = |quantile| micros(ran.lateness.value_at_quantile(quantile));
    Ok(Shown {
        mops: load.n as f64 / (scheduled - began).as_secs_f64() / 1e6,
        scheduled,
        cpu,
        samples: vec![
            Sample::median("early", "tasks", ran.early as f64).folded(Fold::Sum),
            Sample::median("lost", "tasks", lost as f64).folded(Fold::Sum),
            Sample::median("p50_us", "us", at(0.5)),
            Sample::median("p99_us", "us", at(0.99)),
            Sample::median("max_us", "us", micros(ran.lateness.max())),
        ],
    })
}

/// Schedules `n` one-shots from a task on the subject's runtime, and gives the sum of their due
/// times.
fn schedule<S: OneShots>(
    subject: &S,
    ledger: &'static Ledger,
    n: usize,
    mut due: impl FnMut(usize) -> Instant + Send + 'static,
) -> u64 {
    let mut caller = subject.caller();
    let task = subject.runtime().spawn(async move {
        let mut sum = 0;
        for number in 0..n {
            let due = due(number);
            let due_ns = ledger.nanos(due);
            sum += due_ns;
            caller.schedule(due, due_ns);
            if number % YIELD_AFTER == YIELD_AFTER - 1 {
                yield_now().await;
            }
        }
        sum
    });
    subject
        .runtime()
        .block_on(task)
        .expect("the scheduling task does not panic")
}

/// The delays of `spread`.
struct Delays {
    each: Arc<[Duration]>,
    /// No delay is shorter.
    shortest: Duration,
    /// No delay is longer.
    longest: Duration,
}

impl Delays {
    fn new(load: &Load) -> Self {
        let (shortest, longest) = if load.smoke {
            (300, 600)
        } else {
            (5_000, 15_000)
        };
        let mut rng = StdRng::seed_from_u64(load.seed);
        Self {
            each: (0..load.n)
                .map(|_| {
                    Duration::from_micros(rng.random_range(shortest * 1_000..=longest * 1_000))
                })
                .collect(),
            shortest: Duration::from_millis(shortest),
            longest: Duration::from_millis(longest),
        }
    }
}
