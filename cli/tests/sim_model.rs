//! `sim wheel` against an independent model, line for line, on random programs.
//!
//! Properties:
//! P1. The output is that of the model: every event, in order, byte for byte.
//! P2. With a bad line somewhere, the output is the model's up to the last good line's time.
//! P3. The number of slots does not change the output.
//!
//! The model keeps all timers in one list, looks at each of them at every step, and computes
//! in 128 bits. It shares no code with the program.

mod program;

use program::wheelhouse;
use proptest::{prelude::*, sample::select};

#[derive(Debug, Clone)]
enum Op {
    Set {
        key: &'static str,
        delay_ms: u64,
        value: Option<&'static str>,
    },
    Move {
        key: &'static str,
        delay_ms: u64,
    },
    Remove {
        key: &'static str,
    },
    Drain,
}

#[derive(Debug, Clone)]
struct Program {
    interval_ms: u64,
    slots: u64,
    until_ms: Option<u64>,
    /// Milliseconds since the line before, and the operation.
    lines: Vec<(u64, Op)>,
}

impl Program {
    /// The operations at their times.
    fn timed(&self) -> impl Iterator<Item = (u64, &Op)> {
        self.lines.iter().scan(0_u64, |now_ms, (wait_ms, op)| {
            *now_ms = now_ms.saturating_add(*wait_ms);
            Some((*now_ms, op))
        })
    }

    fn args(&self, slots: u64) -> Vec<String> {
        let mut args = vec![
            "sim".to_owned(),
            "wheel".to_owned(),
            format!("--interval-ms={}", self.interval_ms),
            format!("--slots={slots}"),
        ];
        args.extend(
            self.until_ms
                .map(|until_ms| format!("--until-ms={until_ms}")),
        );
        args
    }

    fn input(&self) -> Vec<String> {
        self.timed()
            .map(|(at_ms, op)| match op {
                Op::Set {
                    key,
                    delay_ms,
                    value: Some(value),
                } => format!(
                    r#"{{"at_ms":{at_ms},"op":"set","key":{},"delay_ms":{delay_ms},"value":{}}}"#,
                    json(key),
                    json(value)
                ),
                Op::Set {
                    key,
                    delay_ms,
                    value: None,
                } => format!(
                    r#"{{"op":"set","delay_ms":{delay_ms},"key":{},"at_ms":{at_ms}}}"#,
                    json(key)
                ),
                Op::Move { key, delay_ms } => format!(
                    r#"{{"at_ms":{at_ms},"op":"move","key":{},"delay_ms":{delay_ms}}}"#,
                    json(key)
                ),
                Op::Remove { key } => {
                    format!(
                        r#"{{ "at_ms": {at_ms}, "op": "remove", "key": {} }}"#,
                        json(key)
                    )
                }
                Op::Drain => format!(r#"{{"at_ms":{at_ms},"op":"drain"}}"#),
            })
            .collect()
    }

    fn run(&self, slots: u64, input: &[String]) -> program::Outcome {
        let args = self.args(slots);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        wheelhouse(&args, (input.join("\n") + "\n").as_bytes())
    }
}

fn json(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// A pending timer of the model.
#[derive(Debug)]
struct Timer {
    key: &'static str,
    value: Option<&'static str>,
    at_ms: u64,
    delay_ms: u64,
    /// Counts sets and moves.
    touch: u64,
}

impl Timer {
    fn due_ms(&self) -> u128 {
        u128::from(self.at_ms) + u128::from(self.delay_ms)
    }
}

#[derive(Debug)]
struct Model {
    interval_ms: u64,
    timers: Vec<Timer>,
    touches: u64,
    output: String,
}

impl Model {
    fn new(interval_ms: u64) -> Self {
        Model {
            interval_ms,
            timers: Vec::new(),
            touches: 0,
            output: String::new(),
        }
    }

    /// The first multiple of the interval that is after the touch and not before the due time.
    fn tick(&self, timer: &Timer) -> u128 {
        let interval = u128::from(self.interval_ms);
        let mut tick = timer.due_ms() / interval * interval;
        while tick < timer.due_ms() || tick <= u128::from(timer.at_ms) {
            tick += interval;
        }
        tick
    }

    /// Takes out the timers that fire by `by`, in the order in which they do.
    fn take_by(&mut self, by: u128) -> Vec<(u128, Timer)> {
        let mut taken = Vec::new();
        for timer in std::mem::take(&mut self.timers) {
            let tick = self.tick(&timer);
            if tick <= by {
                taken.push((tick, timer));
            } else {
                self.timers.push(timer);
            }
        }
        taken.sort_by_key(|(tick, timer)| (*tick, timer.touch));
        taken
    }

    fn fire_by(&mut self, by_ms: u64) {
        for (tick, timer) in self.take_by(by_ms.into()) {
            self.print(format!(
                r#"{{"at_ms":{tick},"event":"fired","key":{},"value":{}}}"#,
                json(timer.key),
                timer.value.map_or("null".to_owned(), json)
            ));
        }
    }

    fn apply(&mut self, at_ms: u64, op: &Op) {
        self.fire_by(at_ms);
        self.touches += 1;
        let touch = self.touches;
        let place = |timers: &[Timer], key: &str| timers.iter().position(|timer| timer.key == key);
        match *op {
            Op::Set {
                key,
                delay_ms,
                value,
            } => {
                self.timers.retain(|timer| timer.key != key);
                self.timers.push(Timer {
                    key,
                    value,
                    at_ms,
                    delay_ms,
                    touch,
                });
            }
            Op::Move { key, delay_ms } => match place(&self.timers, key) {
                Some(index) => {
                    let value = self.timers.remove(index).value;
                    self.timers.push(Timer {
                        key,
                        value,
                        at_ms,
                        delay_ms,
                        touch,
                    });
                }
                None => self.missing(at_ms, "move", key),
            },
            Op::Remove { key } => match place(&self.timers, key) {
                Some(index) => drop(self.timers.remove(index)),
                None => self.missing(at_ms, "remove", key),
            },
            Op::Drain => {
                for (_, timer) in self.take_by(u128::MAX) {
                    self.print(format!(
                        r#"{{"at_ms":{at_ms},"event":"drained","key":{},"value":{}}}"#,
                        json(timer.key),
                        timer.value.map_or("null".to_owned(), json)
                    ));
                }
            }
        }
    }

    fn missing(&mut self, at_ms: u64, op: &str, key: &str) {
        let key = json(key);
        self.print(format!(
            r#"{{"at_ms":{at_ms},"event":"missing","op":"{op}","key":{key}}}"#
        ));
    }

    fn finish(&mut self, until_ms: u64) {
        self.fire_by(until_ms);
        for (_, timer) in self.take_by(u128::MAX) {
            let due_ms = timer.due_ms();
            self.print(format!(
                r#"{{"at_ms":{until_ms},"event":"pending","key":{},"value":{},"due_ms":{due_ms}}}"#,
                json(timer.key),
                timer.value.map_or("null".to_owned(), json)
            ));
        }
    }

    fn print(&mut self, line: String) {
        self.output.push_str(&line);
        self.output.push('\n');
    }
}

fn expected(program: &Program) -> String {
    let mut model = Model::new(program.interval_ms);
    let until_ms = program.until_ms.unwrap_or(u64::MAX);
    for (at_ms, op) in program.timed().take_while(|(at_ms, _)| *at_ms <= until_ms) {
        model.apply(at_ms, op);
    }
    model.finish(until_ms);
    model.output
}

fn programs() -> impl Strategy<Value = Program> {
    let interval = prop_oneof![
        4 => Just(1_u64),
        12 => 1..=1000_u64,
        1 => select(vec![u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 63, 10_000_000_000_000]),
    ];
    let slots = prop_oneof![1..=12_u64, 1..=4096_u64];
    (interval, slots).prop_flat_map(|(interval_ms, slots)| {
        let until = prop_oneof![
            3 => Just(None),
            1 => (0..20_000_u64).prop_map(Some),
            1 => any::<u64>().prop_map(Some),
        ];
        let lines = prop::collection::vec((waits(), ops(interval_ms, slots)), 0..60);
        (until, lines).prop_map(move |(until_ms, lines)| Program {
            interval_ms,
            slots,
            until_ms,
            lines,
        })
    })
}

fn waits() -> impl Strategy<Value = u64> {
    prop_oneof![
        40 => Just(0),
        40 => 0..20_u64,
        20 => 0..3000_u64,
        5 => 0..5_000_000_u64,
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

fn ops(interval_ms: u64, slots: u64) -> impl Strategy<Value = Op> {
    let circle_ms = interval_ms.saturating_mul(slots);
    let delays = prop_oneof![
        2 => Just(0_u64),
        10 => 0..30_u64,
        10 => 0..5000_u64,
        // About the turns of the wheel, where circles are counted.
        6 => (0..4_u64, 0..3_u64).prop_map(move |(turns, more)| {
            circle_ms.saturating_mul(turns).saturating_add(more).saturating_sub(1)
        }),
        4 => (0..64_u32, 0..3_u64).prop_map(|(bits, more)| (1_u64 << bits).saturating_add(more).saturating_sub(1)),
        2 => any::<u64>(),
        1 => (0..3000_u64).prop_map(|less| u64::MAX - less),
    ];
    let key = select(vec!["a", "b", "c", "d", "e", "f", "", "k\"\\\n\u{1}é🦀"]);
    let value = select(vec![None, Some(""), Some("x"), Some("\t\u{7f}\u{2028}/")]);
    (0..20, key, delays, value).prop_map(|(kind, key, delay_ms, value)| match kind {
        0..=9 => Op::Set {
            key,
            delay_ms,
            value,
        },
        10..=15 => Op::Move { key, delay_ms },
        16..=18 => Op::Remove { key },
        _ => Op::Drain,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn p1_p3_the_output_is_the_models_for_any_slots(program in programs(), other in 1..=70_000_u64) {
        let expected = expected(&program);
        let input = program.input();
        for slots in [program.slots, other] {
            let outcome = program.run(slots, &input);
            prop_assert_eq!(&outcome.stdout, &expected);
            prop_assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
        }
    }

    #[test]
    fn p2_a_bad_line_stops_at_the_last_good_lines_time(
        mut program in programs(),
        at in any::<prop::sample::Index>(),
    ) {
        program.until_ms = None;
        let mut input = program.input();
        let good = at.index(input.len() + 1);
        input.insert(good, r#"{"at_ms":18446744073709551615,"op":"fly"}"#.to_owned());

        let mut model = Model::new(program.interval_ms);
        for (at_ms, op) in program.timed().take(good) {
            model.apply(at_ms, op);
        }
        let outcome = program.run(program.slots, &input);
        prop_assert_eq!(&outcome.stdout, &model.output);
        prop_assert_eq!(outcome.code, Some(2));
        let message =
            format!("error: line {}: unknown op \"fly\", expected set, move, remove or drain\n", good + 1);
        prop_assert_eq!(&outcome.stderr, &message);
    }
}

/// A longer program than the random ones: the wheel turns thousands of times.
#[test]
fn a_long_program_agrees_too() {
    const KEYS: &[&str] = &[
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n",
    ];
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        // A linear congruential generator (Knuth's MMIX constants), upper bits.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let lines = (0..20_000)
        .map(|_| {
            let key = KEYS[random(14) as usize];
            let op = match random(10) {
                0..=4 => Op::Set {
                    key,
                    delay_ms: random(2000),
                    value: Some("v"),
                },
                5..=7 => Op::Move {
                    key,
                    delay_ms: random(80),
                },
                8 => Op::Remove { key },
                _ => Op::Set {
                    key,
                    delay_ms: random(1 << 20),
                    value: None,
                },
            };
            (random(12), op)
        })
        .collect();
    let program = Program {
        interval_ms: 7,
        slots: 10,
        until_ms: None,
        lines,
    };
    let outcome = program.run(program.slots, &program.input());
    assert!(outcome.stdout.lines().count() > 5000);
    assert_eq!(outcome.stdout, expected(&program));
}
