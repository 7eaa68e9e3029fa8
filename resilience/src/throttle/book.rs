//! What an adaptive throttle knows of the past: what happened in each of its buckets, and what follows
//! from that. Pure: time and totals are arguments. Used under a lock, once per bucket and
//! when the backend is in doubt.

use super::Totals;

/// The chance that a backend which fails as often as this one did is taken for dead at a failure.
const DOUBT: f64 = 1e-9;

/// The shortest and the longest run of failures that a backend is given up after.
const RUN: std::ops::RangeInclusive<f64> = 10.0..=200.0;

/// A call is overdue when it has taken this many times the mean.
const PATIENCE: f64 = 3.0;

/// How far the averages of load move at each edge.
const SHARE: f64 = 0.125;

/// The lower bits of what had happened at a moment: their differences matter, and wrap.
#[derive(Debug, Clone, Copy, Default)]
struct Snapshot {
    started: u32,
    succeeded: u32,
    failed: u32,
}

impl Snapshot {
    fn of(totals: &Totals) -> Self {
        Snapshot {
            started: totals.started as u32,
            succeeded: totals.succeeded as u32,
            failed: totals.failed as u32,
        }
    }

    fn ended(&self) -> u32 {
        self.succeeded.wrapping_add(self.failed)
    }

    fn in_flight(&self) -> u32 {
        difference(self.started, self.ended())
    }
}

/// A number of calls in two bytes: exact to 2 048, and beyond that to one in 2 048. The upper five bits
/// say how many times the others are doubled.
#[derive(Debug, Clone, Copy, Default)]
struct Short(u16);

impl Short {
    const DIGITS: u32 = 11;

    fn of(calls: u32) -> Self {
        let doublings = (u32::BITS - calls.leading_zeros()).saturating_sub(Self::DIGITS);
        let half = (1_u64 << doublings) >> 1;
        let digits = (u64::from(calls) + half) >> doublings;
        // Rounded up to one digit more it is a power of two.
        match digits >> Self::DIGITS {
            0 => Short((doublings << Self::DIGITS) as u16 | digits as u16),
            _ => Short(((doublings + 1) << Self::DIGITS) as u16 | (digits / 2) as u16),
        }
    }

    fn calls(self) -> u64 {
        u64::from(self.0 & ((1 << Self::DIGITS) - 1)) << (self.0 >> Self::DIGITS)
    }
}

/// A bucket between two edges.
#[derive(Debug, Clone, Copy, Default)]
struct Finished {
    succeeded: Short,
    failed: Short,
    /// At the edge that it began with.
    in_flight: Short,
}

/// The finished buckets of the window, and what was concluded at the last edge.
#[derive(Debug)]
pub(super) struct Book {
    /// One less than the window has, since the present one is not finished.
    buckets: Box<[Finished]>,
    /// Where the next goes.
    next: u16,
    /// How many count: those since the last cut.
    known: u16,
    /// At the last edge.
    edge: Snapshot,
    /// Failures since the last success, while the backend is in doubt.
    pub(super) run: u64,
    /// Successes since the backend was given up.
    pub(super) recovered: u64,
    /// The run at which the backend is given up.
    pub(super) limit: u64,
    /// Whether the backend was given up for not answering.
    pub(super) hung: bool,
    /// Moving averages over buckets with a success: calls in flight, and calls ended per bucket.
    load: Option<(f64, f64)>,
}

/// What the window says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    /// Nothing has succeeded for a while, and as many calls are overdue as would be given up on had
    /// they failed.
    pub(super) hangs: bool,
}

impl Book {
    /// At most 4096 buckets.
    pub(super) fn new(buckets: usize) -> Self {
        let mut book = Book {
            buckets: vec![Finished::default(); buckets - 1].into(),
            next: 0,
            known: 0,
            edge: Snapshot::default(),
            run: 0,
            recovered: 0,
            limit: 0,
            hung: false,
            load: None,
        };
        book.limit = book.limit_for(0, 0);
        book
    }

    /// Takes note of `passed` edges, at least one, the last of which was just now. What nobody has
    /// looked at since the edge before them counts as if it had just happened.
    pub(super) fn turn(&mut self, passed: u64, totals: &Totals) -> Seen {
        let before = self.edge;
        let now = Snapshot::of(totals);
        let in_flight = Short::of(before.in_flight());
        for left in (0..passed.min(self.buckets.len() as u64)).rev() {
            self.finish(match left {
                0 => Finished {
                    succeeded: Short::of(difference(now.succeeded, before.succeeded)),
                    failed: Short::of(difference(now.failed, before.failed)),
                    in_flight,
                },
                _ => Finished {
                    in_flight,
                    ..Finished::default()
                },
            });
        }
        self.edge = now;
        if now.succeeded != before.succeeded {
            self.measure_load(passed, &before, &now);
        }
        let (succeeded, failed) = self.window(totals);
        self.limit = self.limit_for(succeeded, failed.saturating_sub(self.run));
        Seen {
            succeeded,
            failed,
            hangs: self.hangs(),
        }
    }

    fn finish(&mut self, bucket: Finished) {
        let buckets = self.buckets.len();
        self.buckets[usize::from(self.next)] = bucket;
        self.next = ((usize::from(self.next) + 1) % buckets) as u16;
        self.known = (usize::from(self.known) + 1).min(buckets) as u16;
    }

    /// Successes and failures in the window.
    pub(super) fn window(&self, totals: &Totals) -> (u64, u64) {
        let now = Snapshot::of(totals);
        let present = (
            u64::from(difference(now.succeeded, self.edge.succeeded)),
            u64::from(difference(now.failed, self.edge.failed)),
        );
        self.latest(usize::from(self.known))
            .fold(present, |(succeeded, failed), bucket| {
                (
                    succeeded + bucket.succeeded.calls(),
                    failed + bucket.failed.calls(),
                )
            })
    }

    /// So many of the latest buckets, the newest first.
    fn latest(&self, buckets: usize) -> impl Iterator<Item = &Finished> {
        let (newer, older) = self.buckets.split_at(usize::from(self.next));
        newer.iter().rev().chain(older.iter().rev()).take(buckets)
    }

    /// Forgets what was before: the window begins now, and how long calls take is to be learnt anew.
    pub(super) fn cut(&mut self, totals: &Totals) {
        self.edge = Snapshot::of(totals);
        self.known = 0;
        self.run = 0;
        self.load = None;
    }

    /// A run that a backend which fails with the rate of the window shows with a chance of
    /// [`DOUBT`]: ln DOUBT / ln rate, the rate being (failed + 1) / (all + 2).
    fn limit_for(&self, succeeded: u64, failed: u64) -> u64 {
        let rate = (failed + 1) as f64 / (succeeded + failed + 2) as f64;
        (DOUBT.ln() / rate.ln())
            .clamp(*RUN.start(), *RUN.end())
            .ceil() as u64
    }

    fn measure_load(&mut self, passed: u64, before: &Snapshot, now: &Snapshot) {
        let in_flight = f64::from(before.in_flight().max(now.in_flight()));
        let ended = f64::from(difference(now.ended(), before.ended())) / passed as f64;
        let (old_flight, old_ended) = self.load.unwrap_or((in_flight, ended));
        self.load = Some((
            old_flight + SHARE * (in_flight - old_flight),
            old_ended + SHARE * (ended - old_ended),
        ));
    }

    /// Whether nothing has succeeded lately and too many calls have taken longer than [`PATIENCE`]
    /// times the mean, of which at least a bucket: by Little's law the mean is what is in flight over
    /// what ends in a time. Calls may overtake one another, so there are at least as many.
    fn hangs(&self) -> bool {
        let Some((in_flight, ended)) = self.load else {
            return false;
        };
        // One more, since an edge may be looked at up to a bucket late.
        let buckets = (PATIENCE * in_flight / ended).ceil().max(1.0) + 1.0;
        if buckets > f64::from(self.known) {
            return false;
        }
        let mut started = 0;
        let (mut succeeded, mut failed) = (0, 0);
        for bucket in self.latest(buckets as usize) {
            started = bucket.in_flight.calls();
            succeeded += bucket.succeeded.calls();
            failed += bucket.failed.calls();
        }
        succeeded == 0 && started.saturating_sub(failed) >= self.limit
    }
}

/// How far `later` is ahead of `earlier`, 0 if it is behind.
fn difference(later: u32, earlier: u32) -> u32 {
    (later.wrapping_sub(earlier) as i32).max(0) as u32
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    fn totals(started: u64, succeeded: u64, failed: u64) -> Totals {
        Totals {
            started,
            succeeded,
            failed,
        }
    }

    #[test]
    fn counts_what_lies_between_its_edges() {
        let mut book = Book::new(3);
        let seen: Vec<(u64, u64)> = (1..=5)
            .map(|edge| {
                let verdict = book.turn(1, &totals(20 * edge, 10 * edge, edge));
                (verdict.succeeded, verdict.failed)
            })
            .collect();
        assert_eq!(seen, [(10, 1), (20, 2), (20, 2), (20, 2), (20, 2)]);
        assert_eq!(book.window(&totals(200, 57, 8)), (27, 5));
        // More edges than it has: what was seen before is forgotten.
        let verdict = book.turn(5, &totals(200, 57, 8));
        assert_eq!((verdict.succeeded, verdict.failed), (7, 3));
        let verdict = book.turn(5, &totals(200, 57, 8));
        assert_eq!((verdict.succeeded, verdict.failed), (0, 0));
    }

    #[test]
    fn short_numbers_are_near() {
        for calls in
            (0..=5000).chain((12..32).flat_map(|bit| [(1 << bit) - 1, 1 << bit, 3 << (bit - 1)]))
        {
            let near = Short::of(calls).calls();
            let off = near.abs_diff(u64::from(calls));
            assert!(off * 2048 <= u64::from(calls), "{calls}: {near}");
            assert!(calls > 2048 || off == 0, "{calls}: {near}");
        }
        assert_eq!(Short::of(u32::MAX).calls(), 1 << 32);
    }

    #[test]
    fn a_window_of_one_bucket_forgets_at_its_edge() {
        let mut book = Book::new(1);
        assert_eq!(book.window(&totals(9, 5, 4)), (5, 4));
        let seen = book.turn(1, &totals(9, 5, 4));
        assert_eq!((seen.succeeded, seen.failed, seen.hangs), (0, 0, false));
        assert_eq!(book.window(&totals(10, 6, 4)), (1, 0));
    }

    #[test]
    fn counters_wrap() {
        let mut book = Book::new(4);
        let end = u64::from(u32::MAX);
        book.turn(4, &totals(end, end - 2, 0));
        book.turn(4, &totals(end, end - 2, 0));
        let verdict = book.turn(1, &totals(end + 8, end + 5, 3));
        assert_eq!((verdict.succeeded, verdict.failed), (7, 3));
    }

    #[test]
    fn the_run_that_proves_death_depends_on_what_is_usual() {
        let book = Book::new(40);
        assert_eq!(book.limit_for(0, 0), 30);
        assert_eq!(book.limit_for(10_000, 0), 10);
        assert_eq!(book.limit_for(8_000, 2_000), 13);
        assert_eq!(book.limit_for(6_000, 4_000), 23);
        assert_eq!(book.limit_for(3_000, 7_000), 59);
        assert_eq!(book.limit_for(100, 9_900), 200);
    }

    /// R43: 100 calls a second that take 15 s, in a window of 10 s, are not overdue.
    #[test]
    fn r43_slow_is_not_hanging() {
        let mut book = Book::new(40);
        for edge in 1..400_u64 {
            let started = 25 * edge;
            let verdict = book.turn(1, &totals(started, started.saturating_sub(1500), 0));
            assert!(!verdict.hangs, "edge {edge}");
        }
    }

    /// R43: where calls take no time, three buckets without an answer are enough.
    #[test]
    fn r43_hanging_is_seen_before_a_timeout() {
        let mut book = Book::new(40);
        for edge in 1..100_u64 {
            assert!(!book.turn(1, &totals(25 * edge, 25 * edge, 0)).hangs);
        }
        let answered = 25 * 99;
        assert!(!book.turn(1, &totals(25 * 100, answered, 0)).hangs);
        assert!(!book.turn(1, &totals(25 * 101, answered, 0)).hangs);
        assert!(book.turn(1, &totals(25 * 102, answered, 0)).hangs);
    }

    /// After a silence, calls that have all just begun are not late.
    #[test]
    fn a_burst_after_a_silence_does_not_hang() {
        let mut book = Book::new(40);
        for edge in 1..100_u64 {
            book.turn(1, &totals(25 * edge, 25 * edge, 0));
        }
        assert!(!book.turn(100, &totals(25 * 99 + 64, 25 * 99, 0)).hangs);
        assert!(!book.turn(1, &totals(25 * 99 + 64, 25 * 99, 0)).hangs);
    }

    #[test]
    fn calls_without_a_verdict_are_not_in_flight() {
        let mut book = Book::new(40);
        for edge in 1..100_u64 {
            let ended = Totals {
                started: 10 * edge,
                ..totals(25 * edge, 10 * edge, 0)
            };
            assert!(!book.turn(1, &ended).hangs);
        }
        for edge in 100..110_u64 {
            let ended = Totals {
                started: 10 * 99,
                ..totals(25 * edge, 10 * 99, 0)
            };
            assert!(!book.turn(1, &ended).hangs);
        }
    }
}
