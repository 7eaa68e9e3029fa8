//! `Wheel` against a naive model, under random programs with re-entrant callbacks.
//!
//! Properties, checked after every operation and inside every callback:
//! - what is handed out is the least of the model by (deadline, last touch), G1
//!   and G3, and `advance` leaves nothing due behind;
//! - every value is dropped exactly once, by whoever got it, G2;
//! - `next_deadline`, `len`, `deadline`, `get` and `iter` agree with the model,
//!   G4;
//! - a key that is no longer pending does nothing, across compactions, G8;
//! - `validate` finds every internal invariant kept.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use wheelhouse_wheel::{Expired, TimerKey, Wheel};

/// A deadline, relative to the tick at which it is used.
#[derive(Debug, Clone, Copy)]
enum When {
    After(u64),
    /// Around a multiple of a power of two: where levels begin and end.
    Boundary {
        bit: u32,
        turns: u64,
        before: u64,
    },
    Absolute(u64),
}

impl When {
    fn tick(self, now: u64) -> u64 {
        match self {
            Self::After(ticks) => now.saturating_add(ticks),
            Self::Boundary { bit, turns, before } => {
                let turn = (now >> bit).saturating_add(turns);
                turn.saturating_mul(1 << bit).saturating_sub(before)
            }
            Self::Absolute(tick) => tick,
        }
    }
}

/// What a callback does. Indices choose among all keys ever given out.
#[derive(Debug, Clone)]
enum Action {
    Nothing,
    Insert(When),
    Remove(usize),
    Reschedule(usize, When),
    Advance(When),
    Pop(When),
    Compact,
    Drain,
    Panic,
}

#[derive(Debug, Clone)]
enum Op {
    Insert(When),
    InsertMany(u16, When, u64),
    Remove(usize),
    RemoveLast,
    RemoveMost(u64),
    Reschedule(usize, When),
    RescheduleMost(When),
    Advance(When, Vec<Action>),
    Pop(When),
    NextDeadline,
    Drain,
    Clear,
    Compact,
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        8 => (0..40u64).prop_map(When::After),
        4 => (0..5_000u64).prop_map(When::After),
        2 => (0..10_000_000u64).prop_map(When::After),
        2 => any::<u64>().prop_map(|ticks| When::After(ticks >> (ticks % 64))),
        6 => (0..45u32, 1..4u64, 0..3u64)
            .prop_map(|(bit, turns, before)| When::Boundary { bit, turns, before: before.saturating_sub(1) }),
        1 => Just(When::Absolute(0)),
        1 => Just(When::Absolute(u64::MAX)),
        1 => Just(When::Absolute(u64::MAX - 1)),
        1 => (0..70_000u64).prop_map(|ticks| When::Absolute((1 << 32) - 35_000 + ticks)),
    ]
}

/// Where an advance goes: mostly near, so that programs stay interesting.
fn goal() -> impl Strategy<Value = When> {
    prop_oneof![
        16 => (0..30u64).prop_map(When::After),
        8 => (0..3_000u64).prop_map(When::After),
        4 => (0..40u32, 1..3u64, 0..2u64)
            .prop_map(|(bit, turns, before)| When::Boundary { bit, turns, before }),
        2 => (0..60u64).prop_map(When::Absolute),
        1 => (0..2_000u64).prop_map(|before| When::Absolute(u64::MAX - before)),
        1 => Just(When::Absolute(u64::MAX)),
        1 => Just(When::Absolute((1 << 32) - 300)),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        8 => Just(Action::Nothing),
        6 => when().prop_map(Action::Insert),
        6 => any::<usize>().prop_map(Action::Remove),
        6 => (any::<usize>(), when()).prop_map(|(i, when)| Action::Reschedule(i, when)),
        1 => goal().prop_map(Action::Advance),
        1 => goal().prop_map(Action::Pop),
        1 => Just(Action::Compact),
        1 => Just(Action::Drain),
        2 => Just(Action::Panic),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => when().prop_map(Op::Insert),
        1 => (200..1_500u16, when(), 1..2_000u64)
            .prop_map(|(n, when, spread)| Op::InsertMany(n, when, spread)),
        8 => any::<usize>().prop_map(Op::Remove),
        3 => Just(Op::RemoveLast),
        1 => any::<u64>().prop_map(Op::RemoveMost),
        14 => (any::<usize>(), when()).prop_map(|(i, when)| Op::Reschedule(i, when)),
        1 => when().prop_map(Op::RescheduleMost),
        14 => (goal(), vec(action(), 0..12)).prop_map(|(goal, actions)| Op::Advance(goal, actions)),
        6 => goal().prop_map(Op::Pop),
        8 => Just(Op::NextDeadline),
        1 => Just(Op::Drain),
        1 => Just(Op::Clear),
        2 => Just(Op::Compact),
    ]
}

type Ledger = Rc<RefCell<Vec<u32>>>;

/// A value that counts its drops.
#[derive(Debug)]
struct Token {
    id: usize,
    drops: Ledger,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.drops.borrow_mut()[self.id] += 1;
    }
}

#[derive(Debug, Clone, Copy)]
struct Timer {
    deadline: u64,
    touch: u64,
    never: bool,
}

#[derive(Debug, Default)]
struct Model {
    tick: u64,
    touches: u64,
    timers: BTreeMap<usize, Timer>,
    keys: Vec<TimerKey>,
    drops: Ledger,
    script: VecDeque<Action>,
}

impl Model {
    fn timer(&mut self, deadline: u64) -> Timer {
        self.touches += 1;
        Timer {
            deadline: deadline.max(self.tick.saturating_add(1)),
            touch: self.touches,
            never: self.tick == u64::MAX,
        }
    }

    fn insert(&mut self, wheel: &mut Wheel<Token>, deadline: u64) {
        let id = self.keys.len();
        self.drops.borrow_mut().push(0);
        let drops = Rc::clone(&self.drops);
        self.keys.push(wheel.insert(deadline, Token { id, drops }));
        let timer = self.timer(deadline);
        self.timers.insert(id, timer);
    }

    fn remove(&mut self, wheel: &mut Wheel<Token>, choice: usize) {
        if self.keys.is_empty() {
            return;
        }
        let id = choice % self.keys.len();
        let removed = wheel.remove(self.keys[id]).map(|token| token.id);
        let expected = self.timers.remove(&id).map(|_| id);
        assert_eq!(removed, expected, "removal of {id}");
        if removed.is_some() {
            assert_eq!(self.drops.borrow()[id], 1, "{id} was dropped at once");
        }
    }

    fn reschedule(&mut self, wheel: &mut Wheel<Token>, choice: usize, when: When) {
        if self.keys.is_empty() {
            return;
        }
        let id = choice % self.keys.len();
        let deadline = when.tick(self.tick);
        let moved = wheel.reschedule(self.keys[id], deadline);
        assert_eq!(moved, self.timers.contains_key(&id), "move of {id}");
        if moved {
            let timer = self.timer(deadline);
            self.timers.insert(id, timer);
        }
    }

    /// The timer that comes out next, if one is due by `now`.
    fn first_due(&self, now: u64) -> Option<usize> {
        let due = self
            .timers
            .iter()
            .filter(|(_, t)| t.deadline <= now && !t.never);
        due.min_by_key(|(_, t)| (t.deadline, t.touch))
            .map(|(&id, _)| id)
    }

    fn handed_out(&mut self, expired: &Expired<Token>, now: u64) {
        let id = self.first_due(now).expect("something is due");
        assert_eq!(expired.value.id, id, "G3 by {now}: {:?}", self.timers);
        assert_eq!(expired.key, self.keys[id]);
        assert_eq!(
            Some(expired.deadline),
            self.timers.remove(&id).map(|t| t.deadline)
        );
    }

    fn advance(&mut self, wheel: &mut Wheel<Token>, now: u64) {
        let forward = now >= self.tick;
        if forward {
            self.tick = now;
        }
        wheel.advance(now, |wheel, expired| {
            assert!(forward, "an earlier tick hands nothing out");
            self.handed_out(&expired, now);
            assert_eq!(wheel.tick(), self.tick);
            wheel.validate();
            let action = self.script.pop_front().unwrap_or(Action::Nothing);
            self.act(wheel, action);
            wheel.validate();
        });
        assert!(
            !forward || self.first_due(now).is_none(),
            "G1: left at {now}"
        );
    }

    fn pop(&mut self, wheel: &mut Wheel<Token>, now: u64) {
        let forward = now >= self.tick;
        if forward {
            self.tick = now;
        }
        match wheel.pop_expired(now) {
            Some(expired) => {
                assert!(forward, "an earlier tick hands nothing out");
                self.handed_out(&expired, now);
            }
            None => assert!(
                !forward || self.first_due(now).is_none(),
                "G1: left at {now}"
            ),
        }
    }

    fn drain(&mut self, wheel: &mut Wheel<Token>) {
        let mut expected: Vec<_> = std::mem::take(&mut self.timers).into_iter().collect();
        expected.sort_by_key(|(_, t)| (t.deadline, t.touch));
        let expected = expected
            .into_iter()
            .map(|(id, t)| (self.keys[id], t.deadline, id));
        let drained = wheel.drain().map(|e| (e.key, e.deadline, e.value.id));
        assert!(drained.eq(expected), "drain in firing order");
    }

    fn act(&mut self, wheel: &mut Wheel<Token>, action: Action) {
        match action {
            Action::Nothing => {}
            Action::Insert(when) => self.insert(wheel, when.tick(self.tick)),
            Action::Remove(choice) => self.remove(wheel, choice),
            Action::Reschedule(choice, when) => self.reschedule(wheel, choice, when),
            Action::Advance(when) => self.advance(wheel, when.tick(self.tick)),
            Action::Pop(when) => self.pop(wheel, when.tick(self.tick)),
            Action::Compact => wheel.compact(),
            Action::Drain => self.drain(wheel),
            Action::Panic => resume_unwind(Box::new("planned")),
        }
    }

    fn apply(&mut self, wheel: &mut Wheel<Token>, op: Op) {
        match op {
            Op::Insert(when) => self.insert(wheel, when.tick(self.tick)),
            Op::InsertMany(count, when, spread) => {
                for i in 0..u64::from(count) {
                    let base = when.tick(self.tick);
                    self.insert(wheel, base.saturating_add(i * 31 % spread));
                }
            }
            Op::Remove(choice) => self.remove(wheel, choice),
            Op::RemoveLast => self.remove(wheel, self.keys.len().wrapping_sub(1)),
            Op::RemoveMost(seed) => {
                for id in self.timers.keys().copied().collect::<Vec<_>>() {
                    let random = (id as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    if !random.is_multiple_of(100) {
                        self.remove(wheel, id);
                    }
                }
            }
            Op::Reschedule(choice, when) => self.reschedule(wheel, choice, when),
            Op::RescheduleMost(when) => {
                for id in self.timers.keys().copied().collect::<Vec<_>>() {
                    if id % 7 != 0 {
                        self.reschedule(wheel, id, when);
                    }
                }
            }
            Op::Advance(when, actions) => {
                self.script = actions.into();
                let now = when.tick(self.tick);
                let run = AssertUnwindSafe(|| self.advance(wheel, now));
                if let Err(panic) = catch_unwind(run)
                    && panic.downcast_ref() != Some(&"planned")
                {
                    resume_unwind(panic);
                }
            }
            Op::Pop(when) => self.pop(wheel, when.tick(self.tick)),
            Op::NextDeadline => self.check_next_deadline(wheel),
            Op::Drain => self.drain(wheel),
            Op::Clear => {
                wheel.clear();
                self.timers.clear();
            }
            Op::Compact => wheel.compact(),
        }
    }

    fn check_next_deadline(&self, wheel: &mut Wheel<Token>) {
        let least = self.timers.values().map(|t| t.deadline).min();
        assert_eq!(wheel.next_deadline(), least, "G4");
    }

    fn check(&self, wheel: &Wheel<Token>) {
        wheel.validate();
        assert_eq!(wheel.len(), self.timers.len());
        assert_eq!(wheel.tick(), self.tick);
        for (id, &key) in self.keys.iter().enumerate() {
            let timer = self.timers.get(&id);
            assert_eq!(wheel.deadline(key), timer.map(|t| t.deadline));
            assert_eq!(wheel.get(key).map(|token| token.id), timer.map(|_| id));
            let gone = u32::from(timer.is_none());
            assert_eq!(self.drops.borrow()[id], gone, "G2: drops of {id}");
        }
        let mut seen: Vec<_> = wheel
            .iter()
            .map(|(key, d, token)| (token.id, key, d))
            .collect();
        seen.sort_unstable();
        let expected = self
            .timers
            .iter()
            .map(|(&id, t)| (id, self.keys[id], t.deadline));
        assert!(seen.into_iter().eq(expected), "iter");
    }
}

proptest! {
    #[test]
    fn agrees_with_the_model(
        slots in prop::sample::select(vec![1, 2, 10, 64, 256, 4096]),
        ops in vec(op(), 1..100),
    ) {
        let mut wheel = Wheel::with_slots(slots).expect("a legal number");
        let mut model = Model::default();
        for op in ops {
            model.apply(&mut wheel, op);
            model.check(&wheel);
        }
        drop(wheel);
        prop_assert!(model.drops.borrow().iter().all(|&drops| drops == 1), "G2");
    }
}
