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

mod support {
    pub(crate) mod counted;
}

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use wheelhouse_wheel::{
    Clock, ManualClock, SetError, Stats, TimingWheel, TryError, TrySetError, WeakTimingWheel,
};

use support::counted::{Alive, Counted};

const KEYS: u8 = 12;
const NEVER: u64 = u64::MAX;

#[derive(Debug, Clone)]
enum Op {
    Set(u8, Span, Script),
    TrySet(u8, Span, Script),
    Replace(u8, Span, Script),
    Move(u8, Span),
    TryMove(u8, Span),
    Reschedule(u8, Span),
    Remove(u8),
    TryRemove(u8),
    Take(u8),
    Drain,
    Contains(u8),
    Deadline(u8),
    NextDeadline,
    Len,
    Flush,
    /// From outside: time jumps.
    Advance(Span),
    /// From outside: time goes from deadline to deadline.
    RunFor(Span),
}

/// A length of time in the wheel's own measure, so that programs mean something at any interval.
#[derive(Debug, Clone, Copy)]
enum Span {
    /// So many intervals and tenths of one.
    Ticks(u32, u32),
    Exactly(Duration),
}

/// What a callback does.
#[derive(Debug, Clone, Default)]
struct Script {
    ops: Arc<[Op]>,
    panics: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Done,
    Full,
    Busy,
    Value(Option<u32>),
    Was(bool),
    Pairs(Vec<(u8, u32)>),
    /// Nanoseconds since the wheel was built.
    At(Option<u128>),
    Count(usize),
}

#[derive(Debug, Clone)]
struct Config {
    interval: Duration,
    slots: usize,
    shards: usize,
    channel: usize,
    max_pending: Option<usize>,
}

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

/// What callbacks saw.
#[derive(Debug)]
enum Event {
    Fired(u8, u32),
    Answered(Op, Answer),
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

impl Span {
    fn of(self, interval: Duration) -> Duration {
        match self {
            Span::Ticks(ticks, tenths) => interval * ticks + interval * tenths / 10,
            Span::Exactly(duration) => duration,
        }
    }
}

struct Entry {
    tick: u64,
    /// When it was last set or moved.
    touch: u64,
    id: u32,
    script: Script,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Tally {
    set: u64,
    pending: u64,
    fired: u64,
    removed: u64,
    moved: u64,
    replaced: u64,
    drained: u64,
    panicked: u64,
}

impl Tally {
    fn of(stats: &Stats) -> Self {
        assert_eq!((stats.returned, stats.dropped), (0, 0));
        Tally {
            set: stats.set,
            pending: stats.pending,
            fired: stats.fired,
            removed: stats.removed,
            moved: stats.moved,
            replaced: stats.replaced,
            drained: stats.drained,
            panicked: stats.panicked,
        }
    }
}

struct Model {
    config: Config,
    /// Whether it is the wheel without a thread: pairs are taken out one by one, and nobody but
    /// the caller empties the channel.
    manual: bool,
    now: u128,
    entries: BTreeMap<u8, Entry>,
    touches: u64,
    ids: u32,
    tally: Tally,
    /// Commands in the channels, at most; exactly so where `exact_channel`.
    queued: usize,
    /// Taken out at their tick, callback not begun.
    begun_not: usize,
}

impl Model {
    fn new(config: &Config, manual: bool) -> Self {
        Model {
            config: config.clone(),
            manual,
            now: 0,
            entries: BTreeMap::new(),
            touches: 0,
            ids: 0,
            tally: Tally::default(),
            queued: 0,
            begun_not: 0,
        }
    }

    fn exact_channel(&self) -> bool {
        self.manual && self.config.max_pending.is_none()
    }

    /// The first tick that is after now and not before now and the delay.
    fn tick(&self, delay: Span) -> u64 {
        let interval = self.config.interval.as_nanos();
        let due = self.now + delay.of(self.config.interval).as_nanos();
        let tick = (self.now / interval + 1).max(due.div_ceil(interval));
        u64::try_from(tick).unwrap_or(NEVER)
    }

    fn at(&self, tick: u64) -> Option<u128> {
        (tick != NEVER).then(|| u128::from(tick) * self.config.interval.as_nanos())
    }

    fn touch(&mut self) -> u64 {
        self.touches += 1;
        self.touches
    }

    /// A command went into a channel, or was applied with those before it.
    fn sent(&mut self) {
        if self.queued < self.config.channel {
            self.queued += 1;
        } else if self.exact_channel() {
            self.queued = 0;
        }
    }

    /// A call that applied the channel of one key.
    fn applied_one(&mut self) {
        if self.manual || self.config.shards == 1 {
            self.queued = 0;
        }
    }

    /// Whether a `try_` form is refused, which the model knows only where nobody else empties the
    /// channel.
    fn busy(&mut self, answer: &Answer) -> bool {
        let busy = *answer == Answer::Busy;
        let may_be = self.queued >= self.config.channel;
        assert!(!busy || may_be, "busy, but the channel has room");
        assert!(
            busy || !may_be || !self.exact_channel(),
            "a full channel took a command"
        );
        busy
    }

    fn put(&mut self, key: u8, delay: Span, script: &Script) -> Result<Option<u32>, ()> {
        let id = self.ids;
        self.ids += 1;
        let full = self
            .config
            .max_pending
            .is_some_and(|max| self.entries.len() + self.begun_not >= max);
        if full && !self.entries.contains_key(&key) {
            return Err(());
        }
        let entry = Entry {
            tick: self.tick(delay),
            touch: self.touch(),
            id,
            script: script.clone(),
        };
        self.tally.set += 1;
        let old = self.entries.insert(key, entry);
        self.tally.replaced += u64::from(old.is_some());
        Ok(old.map(|old| old.id))
    }

    fn shift(&mut self, key: u8, delay: Span) -> bool {
        let (tick, touch) = (self.tick(delay), self.touch());
        let Some(entry) = self.entries.get_mut(&key) else {
            return false;
        };
        (entry.tick, entry.touch) = (tick, touch);
        self.tally.moved += 1;
        true
    }

    fn remove(&mut self, key: u8) -> Option<u32> {
        let entry = self.entries.remove(&key)?;
        self.tally.removed += 1;
        Some(entry.id)
    }

    /// Everything in firing order.
    fn in_order(&self) -> Vec<(u8, u32)> {
        let mut all: Vec<_> = self.entries.iter().collect();
        all.sort_by_key(|(_, entry)| (entry.tick, entry.touch));
        all.into_iter()
            .map(|(key, entry)| (*key, entry.id))
            .collect()
    }

    /// Whether `pairs` is everything, in an order that is promised.
    fn is_everything(&self, pairs: &[(u8, u32)]) -> bool {
        let expected = self.in_order();
        if self.manual || self.config.shards == 1 {
            return pairs == expected;
        }
        let ticks = |pairs: &[(u8, u32)]| -> Vec<Option<u64>> {
            let tick = |pair: &(u8, u32)| Some(self.entries.get(&pair.0)?.tick);
            pairs.iter().map(tick).collect()
        };
        let sorted = |pairs: &[(u8, u32)]| {
            let mut pairs = pairs.to_vec();
            pairs.sort_unstable();
            pairs
        };
        ticks(pairs) == ticks(&expected) && sorted(pairs) == sorted(&expected)
    }

    /// Does what the wheel did, and says what it had to answer.
    fn call(&mut self, op: &Op, answer: &Answer) -> Answer {
        match op {
            Op::Set(key, delay, script) => match self.put(*key, *delay, script) {
                Ok(_) => {
                    self.sent();
                    Answer::Done
                }
                Err(()) => Answer::Full,
            },
            Op::TrySet(key, delay, script) => {
                if self.busy(answer) {
                    self.ids += 1;
                    return Answer::Busy;
                }
                match self.put(*key, *delay, script) {
                    Ok(_) => {
                        self.sent();
                        Answer::Done
                    }
                    Err(()) => Answer::Full,
                }
            }
            Op::Replace(key, delay, script) => {
                self.applied_one();
                match self.put(*key, *delay, script) {
                    Ok(old) => Answer::Value(old),
                    Err(()) => Answer::Full,
                }
            }
            Op::Move(key, delay) => {
                self.shift(*key, *delay);
                self.sent();
                Answer::Done
            }
            Op::TryMove(key, delay) => {
                if self.busy(answer) {
                    return Answer::Busy;
                }
                self.shift(*key, *delay);
                self.sent();
                Answer::Done
            }
            Op::Reschedule(key, delay) => {
                self.applied_one();
                Answer::Was(self.shift(*key, *delay))
            }
            Op::Remove(key) => {
                self.remove(*key);
                self.sent();
                Answer::Done
            }
            Op::TryRemove(key) => {
                if self.busy(answer) {
                    return Answer::Busy;
                }
                self.remove(*key);
                self.sent();
                Answer::Done
            }
            Op::Take(key) => {
                self.applied_one();
                Answer::Value(self.remove(*key))
            }
            Op::Drain => {
                self.queued = 0;
                let expected = self.in_order();
                let Answer::Pairs(pairs) = answer else {
                    return Answer::Pairs(expected);
                };
                let right = self.is_everything(pairs);
                self.tally.drained += self.entries.len() as u64;
                self.entries.clear();
                Answer::Pairs(if right { pairs.clone() } else { expected })
            }
            Op::Contains(key) => {
                self.applied_one();
                Answer::Was(self.entries.contains_key(key))
            }
            Op::Deadline(key) => {
                self.applied_one();
                Answer::At(self.entries.get(key).and_then(|entry| self.at(entry.tick)))
            }
            Op::NextDeadline => {
                self.queued = 0;
                Answer::At(self.next_tick().and_then(|tick| self.at(tick)))
            }
            Op::Len => {
                self.queued = 0;
                Answer::Count(self.entries.len())
            }
            Op::Flush => {
                self.queued = 0;
                Answer::Done
            }
            Op::Advance(_) | Op::RunFor(_) => unreachable!("time moves by `fire_until`"),
        }
    }

    fn next_tick(&self) -> Option<u64> {
        self.entries.values().map(|entry| entry.tick).min()
    }

    /// Jumps to `now` and follows what the callbacks did.
    fn fire_until(&mut self, now: u128, log: &mut VecDeque<Event>) -> usize {
        self.now = now;
        self.queued = 0;
        let mut fired = 0;
        while let Some(tick) = self.next_tick()
            && self.at(tick).is_some_and(|at| at <= now)
        {
            let mut due: Vec<u8> = (0..KEYS)
                .filter(|key| {
                    self.entries
                        .get(key)
                        .is_some_and(|entry| entry.tick == tick)
                })
                .collect();
            due.sort_by_key(|key| self.entries[key].touch);
            if self.manual {
                due.truncate(1);
            }
            let mut batch: Vec<(u8, Entry)> = due
                .into_iter()
                .map(|key| (key, self.entries.remove(&key).expect("it is due")))
                .collect();
            while !batch.is_empty() {
                let Some(Event::Fired(key, id)) = log.pop_front() else {
                    panic!("tick {tick}: {:?} did not fire", batch[0].0);
                };
                let place = batch
                    .iter()
                    .position(|(due, entry)| (*due, entry.id) == (key, id))
                    .unwrap_or_else(|| panic!("tick {tick}: {key} ({id}) is not due"));
                let in_order = self.manual || self.config.shards == 1;
                assert!(place == 0 || !in_order, "tick {tick}: {key} fired too soon");
                let (_, entry) = batch.remove(place);
                self.begun_not = batch.len();
                self.tally.fired += 1;
                fired += 1;
                self.follow(&entry.script, log);
                if self.manual {
                    // The next pair is taken out after what this callback sent.
                    self.queued = 0;
                }
            }
        }
        self.queued = 0;
        fired
    }

    fn follow(&mut self, script: &Script, log: &mut VecDeque<Event>) {
        for op in &*script.ops {
            let Some(Event::Answered(done, answer)) = log.pop_front() else {
                panic!("the callback did not do {op:?}");
            };
            let expected = self.call(op, &answer);
            assert_eq!(answer, expected, "in a callback: {done:?}");
        }
        self.tally.panicked += u64::from(script.panics);
    }

    fn check(&mut self, real: &Real, wheel: &Wheel) {
        wheel.flush().unwrap();
        self.queued = 0;
        assert!(
            real.log.lock().unwrap().is_empty(),
            "more fired than was due"
        );
        let observations = (0..KEYS)
            .flat_map(|key| [Op::Contains(key), Op::Deadline(key)])
            .chain([Op::Len, Op::NextDeadline]);
        for op in observations {
            let answer = real.call(wheel, &op);
            let expected = self.call(&op, &answer);
            assert_eq!(answer, expected, "{op:?}");
        }
        self.tally.pending = self.entries.len() as u64;
        let stats = wheel.stats();
        assert_eq!(Tally::of(&stats), self.tally);
        let left = stats.fired + stats.removed + stats.replaced + stats.drained;
        assert_eq!(stats.set, left + stats.pending);
        assert_eq!(real.alive.count(), self.entries.len() as isize);
    }

    fn check_stop(&self, left: &[(u8, Value)]) {
        let left: Vec<(u8, u32)> = left.iter().map(|(key, value)| (*key, value.id())).collect();
        assert!(
            self.is_everything(&left),
            "stop returned {left:?}, not {:?}",
            self.in_order()
        );
    }
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
        model.check(&real, &wheel);
    }
    let left = wheel.stop();
    model.check_stop(&left);
    drop(left);
    assert_eq!(real.alive.count(), 0);
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
        model.check(&real, &wheel);
    }
    let left = wheel.stop();
    model.check_stop(&left);
    drop(left);
    assert_eq!(real.alive.count(), 0);
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        20 => (0u32..24, 0u32..10).prop_map(|(ticks, tenths)| Span::Ticks(ticks, tenths)),
        4 => (0u32..100_000, 0u32..10).prop_map(|(ticks, tenths)| Span::Ticks(ticks, tenths)),
        1 => Just(Span::Exactly(Duration::from_nanos(u64::MAX))),
        1 => Just(Span::Exactly(Duration::MAX)),
        1 => (0u64..20).prop_map(|ms| Span::Exactly(Duration::from_millis(ms))),
    ]
}

/// What callbacks do too; `depth` is how often their own scripts may set scripts.
fn op(depth: u32) -> BoxedStrategy<Op> {
    let key = || 0..KEYS;
    let script = if depth == 0 {
        Just(Script::default()).boxed()
    } else {
        (vec(op(depth - 1), 0..4), prop::bool::weighted(0.05))
            .prop_map(|(ops, panics)| Script {
                ops: ops.into(),
                panics,
            })
            .boxed()
    };
    prop_oneof![
        12 => (key(), span(), script.clone()).prop_map(|(k, d, s)| Op::Set(k, d, s)),
        3 => (key(), span(), script.clone()).prop_map(|(k, d, s)| Op::TrySet(k, d, s)),
        3 => (key(), span(), script).prop_map(|(k, d, s)| Op::Replace(k, d, s)),
        6 => (key(), span()).prop_map(|(k, d)| Op::Move(k, d)),
        2 => (key(), span()).prop_map(|(k, d)| Op::TryMove(k, d)),
        3 => (key(), span()).prop_map(|(k, d)| Op::Reschedule(k, d)),
        3 => key().prop_map(Op::Remove),
        1 => key().prop_map(Op::TryRemove),
        2 => key().prop_map(Op::Take),
        1 => Just(Op::Drain),
        1 => key().prop_map(Op::Contains),
        1 => key().prop_map(Op::Deadline),
        1 => Just(Op::NextDeadline),
        1 => Just(Op::Len),
        1 => Just(Op::Flush),
    ]
    .boxed()
}

fn program() -> impl Strategy<Value = Vec<Vec<Op>>> {
    let ticks = prop_oneof![
        8 => (0u32..16, 0u32..10),
        2 => (0u32..3000, 0u32..10),
        1 => (0u32..200_000, 0u32..10),
    ];
    let ticks = ticks.prop_map(|(ticks, tenths)| Span::Ticks(ticks, tenths));
    let step = prop_oneof![
        10 => op(2),
        2 => ticks.clone().prop_map(Op::Advance),
        2 => ticks.prop_map(Op::RunFor),
    ];
    vec(vec(step, 1..10), 1..12)
}

fn config() -> impl Strategy<Value = Config> {
    let intervals = [
        Duration::from_nanos(1),
        Duration::from_micros(100),
        Duration::from_millis(1),
        Duration::from_micros(1500),
        Duration::from_millis(7),
        Duration::from_secs(1),
    ];
    (
        prop::sample::select(intervals.to_vec()),
        prop::sample::select(vec![1usize, 2, 7, 64, 512, 5000]),
        prop::sample::select(vec![1usize, 3, 16]),
        prop::sample::select(vec![1usize, 2, 64]),
        prop::sample::select(vec![None, None, None, Some(4), Some(8)]),
    )
        .prop_map(|(interval, slots, shards, channel, max_pending)| Config {
            interval,
            slots,
            shards,
            channel,
            max_pending,
        })
}

proptest! {
    #[test]
    fn the_manual_wheel_does_what_the_model_does(config in config(), program in program()) {
        run_manual(&config, &program);
    }

    #[test]
    fn the_threaded_wheel_does_what_the_model_does(config in config(), program in program()) {
        run_threaded(&config, &program);
    }
}
