//! The simulation itself: the manual [`TimingWheel`] holds the timers and decides what
//! fires when and in which order; this file moves its clock and prints.
//!
//! Ground rules: time moves only in [`Simulation::advance`], from deadline to deadline, so
//! that each timer is handed out at its own tick. What the wheel does not keep, the exact
//! due time of a timer (it need not be a tick, and may lie beyond `u64::MAX`), travels with
//! its value in a [`Span`]; a move leaves the value alone, so the spans of moved timers are
//! kept beside the wheel until the timer leaves it.

use std::{
    collections::HashMap,
    fmt,
    io::{BufRead, BufReader, Read, Write},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use wheelhouse_wheel::{Clock, ManualClock, ManualTimingWheel, TimingWheel};

use super::{
    WheelArgs,
    input::{self, Line, Op},
    output::Output,
};
use crate::failure::Failure;

/// Reads operations from `input` until its end, a bad line or `--until-ms`, and writes
/// events to `output`.
///
/// # Errors
///
/// A bad line, after everything up to the last good line's time has been written; or what
/// the system refused.
pub(super) fn run<R: Read, W: Write>(
    args: &WheelArgs,
    input: BufReader<R>,
    output: W,
) -> Result<Stats, Failure> {
    let mut simulation = Simulation::new(args, output)?;
    let read = simulation.read(input, args.until_ms);
    if read.is_ok() {
        simulation.finish(args.until_ms.unwrap_or(u64::MAX))?;
    }
    simulation.output.flush().map_err(Failure::output)?;
    read.map(|()| simulation.stats())
}

/// What `--stats` prints.
#[derive(Debug)]
pub(super) struct Stats {
    relocations: u64,
    cascades: u64,
    stale: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            relocations,
            cascades,
            stale,
        } = self;
        write!(
            f,
            "relocations={relocations} cascades={cascades} stale={stale}"
        )
    }
}

/// When a timer was touched last, and the delay it was given then.
#[derive(Debug, Clone, Copy)]
struct Span {
    at_ms: u64,
    delay_ms: u64,
}

impl Span {
    fn due_ms(self) -> u128 {
        u128::from(self.at_ms) + u128::from(self.delay_ms)
    }

    /// The tick that fires it: the first one after `at_ms` and not before the due time.
    fn tick_ms(self, interval_ms: u64) -> u128 {
        let earliest = self.due_ms().max(u128::from(self.at_ms) + 1);
        earliest.next_multiple_of(u128::from(interval_ms))
    }
}

/// A timer's payload in the wheel.
#[derive(Debug)]
struct Timer {
    value: Option<Box<str>>,
    span: Span,
}

type Pairs = Vec<(Box<str>, Timer)>;

struct Simulation<W> {
    wheel: ManualTimingWheel<Box<str>, Timer>,
    clock: ManualClock,
    /// Time zero.
    origin: Instant,
    interval_ms: u64,
    now_ms: u64,
    /// What the wheel handed out and is not printed yet.
    due: Arc<Mutex<Pairs>>,
    /// Spans of the pending timers that were moved since they were set.
    moved: HashMap<Box<str>, Span, RandomState>,
    output: Output<W>,
}

impl<W: Write> Simulation<W> {
    fn new(args: &WheelArgs, output: W) -> Result<Self, Failure> {
        let clock = ManualClock::new();
        let origin = clock.now();
        if origin
            .checked_add(Duration::from_millis(u64::MAX))
            .is_none()
        {
            return Err(Failure::System(
                "instants of this system do not reach 18446744073709551615 ms".to_owned(),
            ));
        }
        let due = Arc::new(Mutex::new(Pairs::new()));
        let sink = Arc::clone(&due);
        let wheel = TimingWheel::builder()
            .interval(Duration::from_millis(args.interval_ms))
            .slots(usize::try_from(args.slots).unwrap_or(usize::MAX))
            .unbounded_pending()
            .clock(clock.clone())
            .manual(move |key, timer| {
                sink.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((key, timer));
            })
            .map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Self {
            wheel,
            clock,
            origin,
            interval_ms: args.interval_ms,
            now_ms: 0,
            due,
            moved: HashMap::default(),
            output: Output::new(output),
        })
    }

    /// Applies the lines of `input`, none of which is later than `until_ms`.
    fn read<R: Read>(
        &mut self,
        mut input: BufReader<R>,
        until_ms: Option<u64>,
    ) -> Result<(), Failure> {
        let mut line = Vec::new();
        for number in 1_u64.. {
            if input.buffer().is_empty() {
                // The next read may wait; whoever feeds us line by line sees the events so far.
                self.output.flush().map_err(Failure::output)?;
            }
            line.clear();
            let length = input
                .read_until(b'\n', &mut line)
                .map_err(|error| Failure::System(format!("standard input: {error}")))?;
            if length == 0 {
                break;
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            if text.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
                continue;
            }
            let bad = |what: String| Failure::Usage(format!("line {number}: {what}"));
            let line = input::parse(text).map_err(bad)?;
            if line.at_ms < self.now_ms {
                return Err(bad(format!(
                    "time goes back, at_ms {} after {}",
                    line.at_ms, self.now_ms
                )));
            }
            if until_ms.is_some_and(|until_ms| line.at_ms > until_ms) {
                break;
            }
            self.apply(line)?;
        }
        Ok(())
    }

    fn apply(&mut self, line: Line<'_>) -> Result<(), Failure> {
        let at_ms = line.at_ms;
        self.advance(at_ms)?;
        match line.op {
            Op::Set {
                key,
                delay_ms,
                value,
            } => {
                self.forget_move(&key);
                let value = value.map(|value| value.into_owned().into_boxed_str());
                let timer = Timer {
                    value,
                    span: Span { at_ms, delay_ms },
                };
                self.wheel
                    .set_timer(
                        key.into_owned().into_boxed_str(),
                        timer,
                        Duration::from_millis(delay_ms),
                    )
                    .map_err(refused)?;
            }
            Op::Move { key, delay_ms } => {
                let delay = Duration::from_millis(delay_ms);
                if self.wheel.reschedule_timer(&*key, delay).map_err(refused)? {
                    self.moved
                        .insert(key.into_owned().into_boxed_str(), Span { at_ms, delay_ms });
                } else {
                    self.output
                        .missing(at_ms, "move", &key)
                        .map_err(Failure::output)?;
                }
            }
            Op::Remove { key } => {
                if self.wheel.take_timer(&*key).map_err(refused)?.is_some() {
                    self.forget_move(&key);
                } else {
                    self.output
                        .missing(at_ms, "remove", &key)
                        .map_err(Failure::output)?;
                }
            }
            Op::Drain => {
                for (key, timer) in self.drain()? {
                    self.output
                        .drained(at_ms, &key, timer.value.as_deref())
                        .map_err(Failure::output)?;
                }
            }
        }
        Ok(())
    }

    /// Moves time to `to_ms`: fires what is due at the ticks on the way and at `to_ms`.
    fn advance(&mut self, to_ms: u64) -> Result<(), Failure> {
        if to_ms == self.now_ms {
            // Whatever was due by now has fired, and nothing becomes due before the next tick.
            return Ok(());
        }
        let to = self.instant(to_ms);
        while let Some(tick) = self.wheel.next_deadline()
            && tick <= to
        {
            let tick_ms = tick.duration_since(self.origin).as_millis();
            if self.is_never(tick_ms) {
                break;
            }
            self.clock.set(tick);
            self.wheel.turn(tick);
            let mut due =
                std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
            for (key, timer) in due.drain(..) {
                self.forget_move(&key);
                self.output
                    .fired(tick_ms, &key, timer.value.as_deref())
                    .map_err(Failure::output)?;
            }
        }
        self.clock.set(to);
        self.now_ms = to_ms;
        if self.is_never(to_ms.into()) {
            self.fire_last()?;
        }
        Ok(())
    }

    /// Whether the wheel takes this tick for never. The number of a tick is a `u64`, and the
    /// greatest one means never to the wheel; at an interval of 1 ms it is a time like any other.
    fn is_never(&self, tick_ms: u128) -> bool {
        self.interval_ms == 1 && tick_ms == u128::from(u64::MAX)
    }

    /// The very last tick, `u64::MAX` at an interval of 1 ms: fires what is due at it and puts
    /// back what is due beyond it.
    fn fire_last(&mut self) -> Result<(), Failure> {
        for (key, timer) in self.drain()? {
            if timer.span.tick_ms(self.interval_ms) <= u128::from(u64::MAX) {
                self.output
                    .fired(u64::MAX.into(), &key, timer.value.as_deref())
                    .map_err(Failure::output)?;
            } else {
                self.wheel
                    .set_timer(key, timer, Duration::MAX)
                    .map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Runs on to `until_ms` and prints what is pending then.
    fn finish(&mut self, until_ms: u64) -> Result<(), Failure> {
        self.advance(until_ms)?;
        for (key, timer) in self.drain()? {
            self.output
                .pending(until_ms, &key, timer.value.as_deref(), timer.span.due_ms())
                .map_err(Failure::output)?;
        }
        Ok(())
    }

    /// Takes out every pending timer, in the order in which they would fire.
    fn drain(&mut self) -> Result<Pairs, Failure> {
        let mut pairs = Pairs::new();
        self.wheel
            .drain(|key, timer| pairs.push((key, timer)))
            .map_err(refused)?;
        for (key, timer) in &mut pairs {
            if let Some(span) = self.moved.remove(key) {
                timer.span = span;
            }
        }
        // The wheel has one tick for all that it can never reach; among these only the spans
        // know the order. The sort is stable, so the order of touch within a tick stays.
        pairs.sort_by_cached_key(|(_, timer)| timer.span.tick_ms(self.interval_ms));
        Ok(pairs)
    }

    fn forget_move(&mut self, key: &str) {
        // Most programs move few timers: a test is cheaper than hashing each key.
        if !self.moved.is_empty() {
            self.moved.remove(key);
        }
    }

    fn instant(&self, at_ms: u64) -> Instant {
        self.origin + Duration::from_millis(at_ms)
    }

    fn stats(&self) -> Stats {
        let stats = self.wheel.stats();
        Stats {
            relocations: stats.relocations,
            cascades: stats.cascades,
            stale: stats.stale,
        }
    }
}

/// The wheel takes every timer (no limit is set and nobody stops it); should it not, the
/// user learns its reason.
fn refused(error: impl fmt::Display) -> Failure {
    Failure::System(error.to_string())
}
