//! `RollingWindow` against a plain list of (time, value), under random programs.
//!
//! Properties, checked after every operation:
//! - a sum is that of the list's values in the buckets that end with the one of the read, G1 and G3;
//! - the buckets of `reduce_at` are those of the list, oldest first;
//! - a read changes nothing, also one that looks ahead or is behind;
//! - an instant before the latest bucket counts as that bucket, for adding and for reading;
//! - leaving out the unfinished bucket leaves out what the list has in it and nothing else;
//! - values that do not fit a word are counted like the others.

use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use wheelhouse_collection::{Bucket, ErrorCount, Outcome, Outcomes, RollingWindow, Sum};

/// Nanoseconds by which time moves before the operation, in either direction.
#[derive(Debug, Clone)]
enum Op {
    Add(i64, u64),
    Read(i64),
    /// A read at another time than the present.
    Look(i64),
    Clear,
}

fn ops(length: u64) -> impl Strategy<Value = Vec<Op>> {
    let length = length as i64;
    let step = prop_oneof![
        8 => 0..=length / 2 + 1,
        4 => 0..=3 * length,
        1 => Just(length),
        1 => -4 * length..0,
        1 => 0..=40 * length,
    ];
    let value = prop_oneof![8 => 0..100_u64, 1 => (1 << 26)..(1_u64 << 30)];
    let op = prop_oneof![
        8 => (step.clone(), value).prop_map(|(step, value)| Op::Add(step, value)),
        3 => step.clone().prop_map(Op::Read),
        3 => (-10 * length..=20 * length).prop_map(Op::Look),
        1 => Just(Op::Clear).boxed(),
    ];
    vec(op, 1..120)
}

/// The model: what was added, with the number of the bucket that it belongs to.
struct List {
    length: u64,
    buckets: u64,
    ignores_current: bool,
    /// The latest bucket that anything was added to.
    latest: u64,
    values: Vec<(u64, u64)>,
}

impl List {
    fn bucket(&self, nanos: u64) -> u64 {
        (nanos / self.length).max(self.latest)
    }

    fn add(&mut self, nanos: u64, value: u64) {
        self.latest = self.bucket(nanos);
        self.values.push((self.latest, value));
    }

    /// Count and sum of each bucket at this time, oldest first, that is not after the latest.
    fn buckets(&self, nanos: u64) -> Vec<Sum> {
        let last = self.bucket(nanos);
        let end = match self.ignores_current {
            true => last,
            false => last + 1,
        };
        // Bucket -n + 1 and on, shifted: the window is full of empty buckets at its start.
        (last + 1..last + 1 + self.buckets)
            .map(|shifted| shifted.checked_sub(self.buckets))
            .filter(|bucket| bucket.is_none_or(|bucket| bucket < end && bucket <= self.latest))
            .map(|bucket| {
                let values = self.values.iter().filter(|(at, _)| Some(*at) == bucket);
                values.fold(Sum::default(), |total, (_, value)| Sum {
                    count: total.count + 1,
                    sum: total.sum + value,
                })
            })
            .collect()
    }
}

fn total(buckets: &[Sum]) -> Sum {
    buckets.iter().fold(Sum::default(), |total, bucket| Sum {
        count: total.count + bucket.count,
        sum: total.sum + bucket.sum,
    })
}

fn check(window: &RollingWindow<Sum>, list: &List, start: Instant, nanos: u64) {
    let now = start + Duration::from_nanos(nanos);
    let expected = list.buckets(nanos);
    assert_eq!(window.snapshot_at(now), total(&expected), "at {nanos}");
    let buckets = window.reduce_at(now, Vec::new(), |mut all, bucket| {
        all.push(bucket);
        all
    });
    assert_eq!(buckets, expected, "at {nanos}");
}

fn run(buckets: u64, length: u64, ignores_current: bool, ops: Vec<Op>) {
    let start = Instant::now();
    let mut window =
        RollingWindow::starting_at(start, buckets as usize, Duration::from_nanos(length)).unwrap();
    if ignores_current {
        window = window.ignoring_current();
    }
    let mut list = List {
        length,
        buckets,
        ignores_current,
        latest: 0,
        values: Vec::new(),
    };
    let mut now = 0_u64;
    let mut furthest = 0;
    for op in ops {
        match op {
            Op::Add(step, value) => {
                now = now.saturating_add_signed(step);
                window.add_at(start + Duration::from_nanos(now), value);
                list.add(now, value);
            }
            Op::Read(step) => now = now.saturating_add_signed(step),
            Op::Look(distance) => {
                check(&window, &list, start, now.saturating_add_signed(distance));
            }
            Op::Clear => {
                window.clear();
                list.values.clear();
            }
        }
        check(&window, &list, start, now);
        furthest = now.max(furthest);
    }
    check(&window, &list, start, furthest + 100 * length);
    check(&window, &list, start, now);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn agrees_with_a_list(
        (buckets, length, ignores_current, ops) in (1..=12_u64, 1..=50_u64, any::<bool>())
            .prop_flat_map(|(buckets, length, ignores)| {
                (Just(buckets), Just(length), Just(ignores), ops(length))
            })
    ) {
        run(buckets, length, ignores_current, ops);
    }

    /// The buckets of outcomes count what their names say.
    #[test]
    fn outcomes_are_counted_by_kind(kinds in vec((any::<bool>(), any::<bool>()), 0..200)) {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let three = RollingWindow::<Outcomes>::starting_at(start, 4, second).unwrap();
        let two = RollingWindow::<ErrorCount>::starting_at(start, 4, second).unwrap();
        for &(error, slow) in &kinds {
            three.add_at(start, Outcome::new(error, slow));
            two.add_at(start, Outcome::new(error, slow));
        }
        let expected = Outcomes {
            requests: kinds.len() as u64,
            errors: kinds.iter().filter(|(error, _)| *error).count() as u64,
            slow: kinds.iter().filter(|(_, slow)| *slow).count() as u64,
        };
        prop_assert_eq!(three.snapshot_at(start), expected);
        let two = Outcomes::from(two.snapshot_at(start));
        prop_assert_eq!((two.requests, two.errors), (expected.requests, expected.errors));
    }
}

/// A bucket of four counters, each with the least room that a word can give: it is emptied all the
/// time.
struct Narrow([u64; 4]);

impl Bucket for Narrow {
    type Value = usize;
    type Counters = [u32; 4];
    const BITS: &'static [u32] = &[13, 13, 13, 13];

    fn increments(which: usize) -> [u64; 4] {
        std::array::from_fn(|index| u64::from(index == which))
    }

    fn from_counts(counts: [u64; 4]) -> Self {
        Narrow(counts)
    }
}

#[test]
fn words_that_fill_up_are_emptied_in_time() {
    let start = Instant::now();
    let window = RollingWindow::<Narrow>::starting_at(start, 2, Duration::from_secs(1)).unwrap();
    let mut expected = [0; 4];
    for value in 0..100_000 {
        let which = value % 7 % 4;
        window.add_at(start, which);
        expected[which] += 1;
        if value % 1000 == 0 {
            assert_eq!(window.snapshot_at(start).0, expected);
        }
    }
    assert_eq!(window.snapshot_at(start).0, expected);
    let after = start + Duration::from_secs(1);
    assert_eq!(window.snapshot_at(after).0, expected);
    window.add_at(after, 3);
    expected[3] += 1;
    assert_eq!(window.snapshot_at(after).0, expected);
}
