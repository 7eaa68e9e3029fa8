//! Models of how the threads of a window meet, on the shipped code.
//!
//! Each names the guarantee that it checks and a mutation that makes it fail.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loom::thread;

use super::blocks::Blocks;
use super::bucket::{Bucket, Carry, Outcome, Outcomes};
use super::count::CountWindow;
use super::shared::Shared;
use crate::sync::{AtomicU64, Ordering};

/// Counts each value twice: both counts are always the same.
#[derive(Debug, PartialEq)]
struct Twice(u64, u64);

impl Bucket for Twice {
    type Value = u64;
    type Counters = [u32; 2];

    fn increments(value: u64) -> [u64; 2] {
        [value, value]
    }

    fn from_counts([one, other]: [u64; 2]) -> Self {
        Twice(one, other)
    }
}

/// Of the bucket of 10 ns.
const FIRST: u64 = 5;
const SECOND: u64 = 15;
const THIRD: u64 = 25;

/// More than fits a word.
const GREAT: u64 = 1 << 20;

/// A window of two buckets in which 1 has been added to the first.
fn window() -> Arc<Shared<Twice>> {
    let window = Shared::new(Instant::now(), 2, Duration::from_nanos(10));
    window.add(0, FIRST, 1);
    Arc::new(window)
}

fn both(count: u64) -> Twice {
    Twice(count, count)
}

/// G1 and I3: two writers come to the edge at once, and each of the three values is in its bucket.
/// Fails when `turn` stores the edge before it has emptied the words.
#[test]
fn bucket_is_claimed_once_and_each_value_is_in_its_own() {
    loom::model(|| {
        let window = window();
        let others = window.clone();
        let other = thread::spawn(move || others.add(1, SECOND, 2));
        window.add(0, SECOND, 4);
        other.join().expect("the writer does not panic");
        assert_eq!(window.buckets_at(SECOND), [both(1), both(6)]);
        assert_eq!(window.snapshot(SECOND), both(7));
    });
}

/// I3: a writer that is late is counted in the bucket that has begun meanwhile, and not lost. Fails
/// when `turn` empties the words by a load and a store.
#[test]
fn late_value_is_counted_in_one_bucket() {
    loom::model(|| {
        let window = window();
        let others = window.clone();
        let other = thread::spawn(move || others.add(0, FIRST, 2));
        window.add(0, SECOND, 4);
        other.join().expect("the writer does not panic");
        let buckets = window.buckets_at(SECOND);
        assert!(
            buckets == [both(3), both(4)] || buckets == [both(1), both(6)],
            "{buckets:?}"
        );
    });
}

/// G1 and G2: a read during a turn has what was added before it, once. Fails when `snapshot` does not
/// look at the sequence again, and when `turn` does not run as a section.
#[test]
fn read_during_a_turn_misses_nothing_and_counts_nothing_twice() {
    loom::model(|| {
        let window = window();
        let others = window.clone();
        let other = thread::spawn(move || others.add(1, SECOND, 2));
        let seen = window.snapshot(SECOND);
        assert!(seen == both(1) || seen == both(3), "{seen:?}");
        other.join().expect("the writer does not panic");
        assert_eq!(window.snapshot(SECOND), both(3));
    });
}

/// G2: a read while one writer uses its word and another the row never finds the counts apart. Fails
/// when the row is folded and published outside a section.
#[test]
fn counts_of_one_value_are_seen_together() {
    loom::model(|| {
        let window = window();
        let (great, small) = (window.clone(), window.clone());
        let great = thread::spawn(move || great.add(0, FIRST, GREAT));
        let small = thread::spawn(move || small.add(1, FIRST, 2));
        let Twice(one, other) = window.snapshot(FIRST);
        assert_eq!(one, other);
        great.join().expect("the writer does not panic");
        small.join().expect("the writer does not panic");
        assert_eq!(window.snapshot(FIRST), both(GREAT + 3));
    });
}

/// G3: a reader that looks ahead takes nothing from the others. Fails when `snapshot` uses whatever
/// view it finds, without comparing it with its own time.
#[test]
fn look_ahead_leaves_the_window_where_it_is() {
    loom::model(|| {
        let window = window();
        let others = window.clone();
        let ahead = thread::spawn(move || others.snapshot(THIRD));
        window.add(0, SECOND, 2);
        let seen = ahead.join().expect("the reader does not panic");
        assert!(seen == both(0) || seen == both(2), "{seen:?}");
        assert_eq!(window.snapshot(SECOND), both(3));
        assert_eq!(window.snapshot(THIRD), both(2));
    });
}

/// I4: of a value that comes during `clear` all stays or nothing, and of one from before nothing.
/// Fails when `clear` leaves the words alone.
#[test]
fn clear_and_turn_leave_all_or_nothing_of_a_value() {
    loom::model(|| {
        let window = window();
        let others = window.clone();
        let other = thread::spawn(move || others.add(0, SECOND, 2));
        window.clear();
        other.join().expect("the writer does not panic");
        let left = window.snapshot(SECOND);
        assert!(left == both(0) || left == both(2), "{left:?}");
        window.add(0, SECOND, 4);
        assert_eq!(window.snapshot(SECOND), both(left.0 + 4));
    });
}

/// What has left a line, on the line itself.
#[derive(Debug)]
struct Gone(AtomicU64);

impl Gone {
    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Carry<Twice> for Gone {
    fn taken(&self, [count, _]: &[u64; 2]) {
        self.0.fetch_add(*count, Ordering::Relaxed);
    }
}

/// [`window`], with lanes.
fn window_with_lanes() -> Arc<Shared<Twice, Gone>> {
    let lane = || Gone(AtomicU64::new(0));
    let window = Shared::carrying(Instant::now(), 2, Duration::from_nanos(10), lane);
    window.add(0, FIRST, 1);
    Arc::new(window)
}

/// I4 for lanes: while another thread turns the window, what this one has added is on its line or has
/// left it, and never both or neither. Fails when `with_carried` does not look at the sequence again.
#[test]
fn a_lane_has_each_value_once_while_another_turns() {
    loom::model(|| {
        let window = window_with_lanes();
        let others = window.clone();
        let other = thread::spawn(move || others.add(1, SECOND, 2));
        let seen = window.with_carried(0, |gone, on_line| gone.count() + on_line.0);
        assert_eq!(seen, 1);
        other.join().expect("the writer does not panic");
    });
}

/// I4 for all lanes: a sum over them while two threads add, one of which turns the window, has what was
/// there before, and of the others each or not. Fails when `with_all_carried` does not take the lock, and
/// when `take` does not tell what it has taken.
#[test]
fn lanes_together_lose_nothing() {
    loom::model(|| {
        let window = window_with_lanes();
        let writers = [(1, 2), (0, 4)].map(|(stripe, value)| {
            let window = window.clone();
            thread::spawn(move || window.add(stripe, SECOND, value))
        });
        let sum = || {
            let mut sum = 0;
            window.with_all_carried(|gone, on_line| sum += gone.count() + on_line.0);
            sum
        };
        let seen = sum();
        assert!([1, 3, 5, 7].contains(&seen), "{seen}");
        for writer in writers {
            writer.join().expect("the writer does not panic");
        }
        assert_eq!(sum(), 7);
        assert_eq!(window.snapshot(SECOND), both(7));
    });
}

/// I6: the outcome that makes a stripe due and the next come at once, and both are counted. Fails when
/// `share` stores what is left instead of exchanging it.
#[test]
fn block_leaves_a_stripe_whole() {
    loom::model(|| {
        let window = Arc::new(CountWindow::new(32).expect("in range"));
        for _ in 0..7 {
            window.add(Outcome::Failure);
        }
        let others = window.clone();
        let other = thread::spawn(move || others.add(Outcome::Success));
        window.add(Outcome::Failure);
        let seen = window.snapshot();
        assert!(seen.errors <= seen.requests, "{seen:?}");
        other.join().expect("the writer does not panic");
        let (requests, errors, slow) = (9, 8, 0);
        let all = Outcomes {
            requests,
            errors,
            slow,
        };
        assert_eq!(window.snapshot(), all);
    });
}

/// I8: two writers come round to the same place, and the sums are of what it holds. Fails when `push`
/// replaces the block by a load and a store.
#[test]
fn sums_are_of_what_the_circle_holds() {
    loom::model(|| {
        let blocks = Arc::new(Blocks::new(8));
        let others = blocks.clone();
        let other = thread::spawn(move || others.push(&[0b111]));
        blocks.push(&[0b1]);
        other.join().expect("the writer does not panic");
        let errors = blocks.newest(8).errors;
        assert!(errors == 1 || errors == 3, "{errors}");
        blocks.push(&[0]);
        assert!(blocks.is_clean());
    });
}
