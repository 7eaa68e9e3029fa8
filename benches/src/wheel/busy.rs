//! Lateness of what comes due while one thread keeps the timers busy, with and without a stop of
//! the whole process.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::process::{self, Command};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::harness::{Fold, Load, Outcome, Sample, Wrong, expect};
use crate::peers::{Caller, KeyedTimers, Recorder};

/// Keys that are refreshed are numbered from here, the others from 0.
const FIRST_SESSION: u64 = 1 << 40;

/// No session ends while a run lasts.
const SILENCE: Duration = Duration::from_secs(600);

/// A caller that finds itself this far behind has been stopped with its process, and offers no
/// more than the rate afterwards.
const STOPPED: Duration = Duration::from_millis(100);

/// Timers due this soon after the stop are part of what has to be caught up with.
const RECOVERY: Duration = Duration::from_millis(100);

/// What differs between a run and a smoke run.
struct Span {
    /// Operations offered in a second: half refreshes, a quarter sets, a quarter removals.
    rate: f64,
    /// Keys that are refreshed.
    sessions: u64,
    run: Duration,
    /// From the start to the stop of the process.
    before_stop: Duration,
    stop: Duration,
    delays_ms: RangeInclusive<u64>,
}

/// One thread offers 1.5 million operations a second.
pub(super) fn underload<T: KeyedTimers>(load: &Load) -> Outcome {
    busy::<T>(load, false)
}

/// The same, and the process is stopped for 3 s in the middle (SIGSTOP, SIGCONT).
pub(super) fn stall<T: KeyedTimers>(load: &Load) -> Outcome {
    busy::<T>(load, true)
}

fn busy<T: KeyedTimers>(load: &Load, stopped: bool) -> Outcome {
    let span = if load.smoke {
        Span {
            rate: 50_000.0,
            sessions: 1_000,
            run: Duration::from_millis(900),
            before_stop: Duration::from_millis(300),
            stop: Duration::from_millis(300),
            delays_ms: 50..=300,
        }
    } else {
        Span {
            rate: 1_500_000.0,
            sessions: 100_000,
            run: Duration::from_secs(15),
            before_stop: Duration::from_secs(6),
            stop: Duration::from_secs(3),
            delays_ms: 1_000..=10_000,
        }
    };
    let recorder = Recorder::lateness_and_keys();
    let timers = T::start(recorder);
    let mut caller = timers.caller();
    for session in FIRST_SESSION..FIRST_SESSION + span.sessions {
        caller.set(session, 0, SILENCE);
    }
    caller.publish();
    timers.flush();

    if stopped {
        stop_this_process(span.before_stop, span.stop)?;
    }
    let count = (span.run.as_secs_f64() * span.rate) as u64;
    let state = RefCell::new((Pace::new(span.rate), Program::new(load.seed, &span)));
    timers.drive(vec![caller], count, move |caller, _, number| {
        let (pace, program) = &mut *state.borrow_mut();
        pace.wait_for_turn(number, recorder);
        match program.step(number) {
            Step::Refresh(session) => caller.move_to(session, SILENCE),
            Step::Set(key, delay) => {
                let due = Instant::now() + delay;
                caller.set_due(key, recorder.value_of(due), due, delay);
            }
            Step::Remove(key) => caller.remove(key),
        }
    });
    timers.flush();

    let left = timers.stop();
    let fired = recorder.snapshot();
    // What was never to be removed has fired or is left; what was, has fired or is gone.
    let mut program = Program::new(load.seed, &span);
    let mut to_be_removed = vec![false; count as usize];
    for number in 0..count {
        if let Step::Remove(key) = program.step(number) {
            to_be_removed[key as usize] = true;
        }
    }
    let mut seen = vec![false; count as usize];
    let (mut twice, mut kept_and_fired) = (0, 0);
    for key in fired.each.iter().map(|key| *key as usize) {
        twice += u64::from(std::mem::replace(&mut seen[key], true));
        kept_and_fired += u64::from(!to_be_removed[key]);
    }
    expect("timers fired twice", twice, 0)?;
    let kept = (0..program.next_key as usize).filter(|key| !to_be_removed[*key]);
    let left = left.count.saturating_sub(span.sessions);
    let lost = (kept.count() as u64).saturating_sub(kept_and_fired + left);
    if load.smoke {
        expect("timers lost", lost, 0)?;
        expect("timers early", fired.early, 0)?;
    }
    if fired.lateness.is_empty() {
        return Err(Wrong(
            "no timer was due while lateness was measured".to_owned(),
        ));
    }
    let micros = |quantile| fired.lateness.value_at_quantile(quantile) as f64 / 1e3;
    Ok(vec![
        Sample::median("early", "timers", fired.early as f64).folded(Fold::Sum),
        Sample::median("lost", "timers", lost as f64).folded(Fold::Sum),
        Sample::median("p50_us", "us", micros(0.5)),
        Sample::median("p99_us", "us", micros(0.99)),
        Sample::median("max_us", "us", micros(1.0)),
    ])
}

enum Step {
    Refresh(u64),
    Set(u64, Duration),
    Remove(u64),
}

/// The operations, which depend on the seed alone.
#[derive(Clone)]
struct Program {
    rng: SmallRng,
    sessions: u64,
    delays_ms: RangeInclusive<u64>,
    next_key: u64,
}

impl Program {
    fn new(seed: u64, span: &Span) -> Self {
        Self {
            rng: SmallRng::seed_from_u64(seed),
            sessions: span.sessions,
            delays_ms: span.delays_ms.clone(),
            next_key: 0,
        }
    }

    fn step(&mut self, number: u64) -> Step {
        match number % 4 {
            0 | 2 => Step::Refresh(FIRST_SESSION + self.rng.random_range(0..self.sessions)),
            1 => {
                let key = self.next_key;
                self.next_key += 1;
                let delay = self.rng.random_range(self.delays_ms.clone());
                Step::Set(key, Duration::from_millis(delay))
            }
            // It may have fired, or been removed, before.
            _ => Step::Remove(self.rng.random_range(0..self.next_key)),
        }
    }
}

/// When each operation is due.
#[derive(Clone)]
struct Pace {
    /// When operation `first` was due; nothing has begun yet when there is none.
    began: Option<Instant>,
    first: u64,
    rate: f64,
}

impl Pace {
    fn new(rate: f64) -> Self {
        Self {
            began: None,
            first: 0,
            rate,
        }
    }

    /// Spins until the operation's turn. What was missed while the process stood still is not made
    /// up for, and lateness is measured anew from shortly after.
    fn wait_for_turn(&mut self, number: u64, recorder: &Recorder) {
        let due = Duration::from_secs_f64((number - self.first) as f64 / self.rate);
        loop {
            let Some(began) = self.began else {
                (self.began, self.first) = (Some(Instant::now()), number);
                return;
            };
            let now = began.elapsed();
            if now.saturating_sub(due) > STOPPED {
                recorder.measure_from(Instant::now() + RECOVERY);
                self.began = None;
            } else if now >= due {
                return;
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Has a shell stop this process after `delay`, and continue it after `span`.
fn stop_this_process(delay: Duration, span: Duration) -> Result<(), Wrong> {
    let script = format!(
        "sleep {}; kill -STOP {pid}; sleep {}; kill -CONT {pid}",
        delay.as_secs_f64(),
        span.as_secs_f64(),
        pid = process::id()
    );
    Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .map(drop)
        .map_err(|error| Wrong(format!("a shell is needed to stop the process: {error}")))
}
