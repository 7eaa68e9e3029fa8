//! `TimingWheel` under a virtual clock against a naive model, with callbacks that use the wheel.
//!
//! Properties, after every burst of operations:
//! - what fires, and when: at the first tick that is after the call and not before it is due, once;
//! - in which order: on the manual wheel and on one shard by tick, then by last touch; on several
//!   shards by tick;
//! - every answer, of calls from outside and from callbacks, is the model's;
//! - every set is in exactly one of fired, removed, replaced, drained and pending, and as many
//!   values are alive as timers are pending;
//! - in the end `stop` returns what is left, in firing order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use wheelhouse_wheel::{
    Clock, ManualClock, SetError, TimingWheel, TryError, TrySetError, WeakTimingWheel,
};

use crate::support::counted::{Alive, Counted};
use crate::support::model::{Model, Tally};
use crate::support::program::{Answer, Config, Event, KEYS, Op, Script, Span, config, program};

#[derive(Debug)]
struct Value {
    counted: Counted,
    script: Script,
}

impl Value {
    fn id(&self) -> u32 {
        self.counted.id as u32
    }
}

type Wheel = TimingWheel<u8, Value>;

/// The wheel's surroundings, for calls from outside and from callbacks.
struct Real {
    clock: ManualClock,
    start: Instant,
    interval: Duration,
    ids: AtomicU32,
    alive: Alive,
    log: Mutex<VecDeque<Event>>,
}

impl Real {
    fn new(config: &Config) -> Arc<Self> {
        let clock = ManualClock::new();
        Arc::new(Real {
            start: clock.now(),
            clock,
            interval: config.interval,
            ids: AtomicU32::new(0),
            alive: Alive::default(),
            log: Mutex::default(),
        })
    }

    fn call(&self, wheel: &Wheel, op: &Op) -> Answer {
        let span = |span: &Span| span.of(self.interval);
        let value = |script: &Script| {
            let id = self.ids.fetch_add(1, SeqCst);
            Value {
                counted: self.alive.value(u64::from(id)),
                script: script.clone(),
            }
        };
        match op {
            Op::Set(key, delay, script) => {
                match wheel.set_timer(*key, value(script), span(delay)) {
                    Ok(()) => Answer::Done,
                    Err(SetError::Full(..)) => Answer::Full,
                    Err(error) => panic!("{error}"),
                }
            }
            Op::TrySet(key, delay, script) => {
                match wheel.try_set_timer(*key, value(script), span(delay)) {
                    Ok(()) => Answer::Done,
                    Err(TrySetError::Full(..)) => Answer::Full,
                    Err(TrySetError::Busy(..)) => Answer::Busy,
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Replace(key, delay, script) => {
                match wheel.replace_timer(*key, value(script), span(delay)) {
                    Ok(old) => Answer::Value(old.map(|old| old.id())),
                    Err(SetError::Full(..)) => Answer::Full,
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Move(key, delay) => {
                wheel.move_timer(*key, span(delay)).unwrap();
                Answer::Done
            }
            Op::TryMove(key, delay) => tried(wheel.try_move_timer(*key, span(delay))),
            Op::Reschedule(key, delay) => {
                Answer::Was(wheel.reschedule_timer(key, span(delay)).unwrap())
            }
            Op::Remove(key) => {
                wheel.remove_timer(*key).unwrap();
                Answer::Done
            }
            Op::TryRemove(key) => tried(wheel.try_remove_timer(*key)),
            Op::Take(key) => Answer::Value(wheel.take_timer(key).unwrap().map(|old| old.id())),
            Op::Drain => {
                let mut pairs = Vec::new();
                let count = wheel
                    .drain(|key, value| pairs.push((key, value.id())))
                    .unwrap();
                assert_eq!(count, pairs.len());
                Answer::Pairs(pairs)
            }
            Op::Contains(key) => Answer::Was(wheel.contains(key)),
            Op::Deadline(key) => Answer::At(wheel.deadline(key).map(|at| self.since_start(at))),
            Op::NextDeadline => Answer::At(wheel.next_deadline().map(|at| self.since_start(at))),
            Op::Len => Answer::Count(wheel.len()),
            Op::Flush => {
                wheel.flush().unwrap();
                Answer::Done
            }
            Op::Advance(_) | Op::RunFor(_) => unreachable!("time moves outside of callbacks"),
        }
    }

    fn since_start(&self, at: Instant) -> u128 {
        at.duration_since(self.start).as_nanos()
    }

    fn callback(&self, wheel: &Wheel, key: u8, value: &Value) {
        let note = |event| self.log.lock().unwrap().push_back(event);
        note(Event::Fired(key, value.id()));
        for op in &*value.script.ops {
            let answer = self.call(wheel, op);
            note(Event::Answered(op.clone(), answer));
        }
        if value.script.panics {
            // Without the panic hook and its message.
            std::panic::resume_unwind(Box::new("a callback's own panic"));
        }
    }
}

fn tried(outcome: Result<(), TryError<u8>>) -> Answer {
    match outcome {
        Ok(()) => Answer::Done,
        Err(TryError::Busy(_)) => Answer::Busy,
        Err(error) => panic!("{error}"),
    }
}

/// Asks the wheel everything that can be asked.
fn check(real: &Real, wheel: &Wheel, model: &mut Model) {
    assert!(
        real.log.lock().unwrap().is_empty(),
        "more fired than was due"
    );
    let questions = (0..KEYS)
        .flat_map(|key| [Op::Contains(key), Op::Deadline(key)])
        .chain([Op::Flush, Op::Len, Op::NextDeadline]);
    for op in questions {
        let answer = real.call(wheel, &op);
        let expected = model.call(&op, &answer);
        assert_eq!(answer, expected, "{op:?}");
    }
    let stats = wheel.stats();
    assert_eq!(Tally::of(&stats), model.tally());
    let left = stats.fired + stats.removed + stats.replaced + stats.drained;
    assert_eq!(stats.set, left + stats.pending);
    assert_eq!(real.alive.count(), model.len() as isize);
}

fn check_stop(real: &Real, wheel: &Wheel, model: &Model) {
    let left = wheel.stop();
    let pairs: Vec<(u8, u32)> = left.iter().map(|(key, value)| (*key, value.id())).collect();
    assert!(
        model.is_everything(&pairs),
        "stop returned {pairs:?}, not {:?}",
        model.in_order()
    );
    assert_eq!(wheel.stats().returned, pairs.len() as u64);
    drop(left);
    assert_eq!(real.alive.count(), 0);
}

fn builder(config: &Config, clock: &ManualClock) -> wheelhouse_wheel::Builder {
    let builder = TimingWheel::builder()
        .interval(config.interval)
        .slots(config.slots)
        .shards(config.shards)
        .channel(config.channel)
        .clock(clock.clone());
    match config.max_pending {
        Some(max) => builder.max_pending(max),
        None => builder.unbounded_pending(),
    }
}

fn run_manual(config: &Config, program: &[Vec<Op>]) {
    let real = Real::new(config);
    let mut model = Model::new(config, true);
    let handle: Arc<Mutex<Option<WeakTimingWheel<u8, Value>>>> = Arc::default();
    let mut wheel = builder(config, &real.clock)
        .manual({
            let (real, handle) = (real.clone(), handle.clone());
            move |key, value: Value| {
                let wheel = handle.lock().unwrap().as_ref().and_then(|w| w.upgrade());
                real.callback(&wheel.expect("it is being turned"), key, &value);
            }
        })
        .unwrap();
    *handle.lock().unwrap() = Some(wheel.downgrade());
    let turn_to = |wheel: &mut wheelhouse_wheel::ManualTimingWheel<u8, Value>,
                   model: &mut Model,
                   to: Instant| {
        real.clock.set(to);
        let turned = wheel.turn(to);
        let mut log = real.log.lock().unwrap();
        assert_eq!(turned, model.fire_until(real.since_start(to), &mut log));
    };
    for burst in program {
        for op in burst {
            match op {
                Op::Advance(span) => {
                    let to = real.clock.now() + span.of(config.interval);
                    turn_to(&mut wheel, &mut model, to);
                }
                Op::RunFor(span) => {
                    let end = real.clock.now() + span.of(config.interval);
                    while let Some(next) = wheel.next_deadline()
                        && next <= end
                    {
                        turn_to(&mut wheel, &mut model, next);
                    }
                    turn_to(&mut wheel, &mut model, end);
                }
                op => {
                    let answer = real.call(&wheel, op);
                    let expected = model.call(op, &answer);
                    assert_eq!(answer, expected, "{op:?}");
                }
            }
        }
        check(&real, &wheel, &mut model);
    }
    check_stop(&real, &wheel, &model);
}

fn run_threaded(config: &Config, program: &[Vec<Op>]) {
    let real = Real::new(config);
    let mut model = Model::new(config, false);
    let wheel = builder(config, &real.clock)
        .build_cyclic(|wheel: WeakTimingWheel<u8, Value>| {
            let real = real.clone();
            move |key, value: Value| {
                let wheel = wheel.upgrade().expect("the test holds a handle");
                real.callback(&wheel, key, &value);
            }
        })
        .unwrap();
    for burst in program {
        for op in burst {
            match op {
                Op::Advance(span) => {
                    real.clock.advance(span.of(config.interval));
                    let now = real.since_start(real.clock.now());
                    model.fire_until(now, &mut real.log.lock().unwrap());
                }
                Op::RunFor(span) => {
                    let span = span.of(config.interval);
                    let end = model.now + span.as_nanos();
                    real.clock.run_for(span);
                    assert_eq!(real.since_start(real.clock.now()), end);
                    let mut log = real.log.lock().unwrap();
                    while let Some(next) = model.next_tick().and_then(|tick| model.at(tick))
                        && next <= end
                    {
                        model.fire_until(next, &mut log);
                    }
                    model.fire_until(end, &mut log);
                }
                op => {
                    let answer = real.call(&wheel, op);
                    let expected = model.call(op, &answer);
                    assert_eq!(answer, expected, "{op:?}");
                }
            }
        }
        check(&real, &wheel, &mut model);
    }
    check_stop(&real, &wheel, &model);
}

proptest! {
    // Eight times what proptest is told, or does without being told: a case is cheap.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.saturating_mul(8),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_manual_wheel_does_what_the_model_does(config in config(), program in program()) {
        run_manual(&config, &program);
    }

    #[test]
    fn the_threaded_wheel_does_what_the_model_does(config in config(), program in program()) {
        run_threaded(&config, &program);
    }
}
