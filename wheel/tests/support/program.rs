//! Random programs for the keyed wheel and its model.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

pub(crate) const KEYS: u8 = 12;

/// A call, from outside or from a callback.
#[derive(Debug, Clone)]
pub(crate) enum Op {
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
pub(crate) enum Span {
    /// So many intervals and tenths of one.
    Ticks(u32, u32),
    Exactly(Duration),
}

/// What a callback does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) ops: Arc<[Op]>,
    pub(crate) panics: bool,
}

/// What a call returned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
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

/// How the wheel is built.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) interval: Duration,
    pub(crate) slots: usize,
    pub(crate) shards: usize,
    pub(crate) channel: usize,
    pub(crate) max_pending: Option<usize>,
}

/// What callbacks saw.
#[derive(Debug)]
pub(crate) enum Event {
    Fired(u8, u32),
    Answered(Op, Answer),
}

impl Span {
    pub(crate) fn of(self, interval: Duration) -> Duration {
        match self {
            Span::Ticks(ticks, tenths) => interval * ticks + interval * tenths / 10,
            Span::Exactly(duration) => duration,
        }
    }
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

pub(crate) fn program() -> impl Strategy<Value = Vec<Vec<Op>>> {
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

pub(crate) fn config() -> impl Strategy<Value = Config> {
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
