//! What an adaptive throttle knows of the past: the totals at the edges of its buckets, and what
//! follows from them. Pure: time and totals are arguments. Used under a lock, once per bucket and
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

/// The lower bits of what had happened by an edge: their differences matter, and wrap.
#[derive(Debug, Clone, Copy, Default)]
struct Snapshot {
    /// Without those that ended without a verdict.
    started: u32,
    succeeded: u32,
    failed: u32,
}

impl Snapshot {
    fn of(totals: &Totals) -> Self {
        let unjudged = totals.ignored.wrapping_add(totals.stale);
        Snapshot {
            started: totals.started.wrapping_sub(unjudged) as u32,
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

/// Snapshots at the edges of the window, the newest at `newest`, and what was concluded at the last.
#[derive(Debug)]
pub(super) struct Book {
    edges: Box<[Snapshot]>,
    newest: usize,
    /// How many of the edges count: those since the last cut, at least one.
    known: usize,
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
    pub(super) fn new(buckets: usize) -> Self {
        let mut book = Book {
            edges: vec![Snapshot::default(); buckets].into(),
            newest: 0,
            known: 1,
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
        let before = self.edges[self.newest];
        let now = Snapshot::of(totals);
        for left in (0..passed.min(self.edges.len() as u64)).rev() {
            self.newest = (self.newest + 1) % self.edges.len();
            self.edges[self.newest] = if left == 0 { now } else { before };
            self.known = (self.known + 1).min(self.edges.len());
        }
        if now.succeeded != before.succeeded {
            self.measure_load(passed, &before, &now);
        }
        let (succeeded, failed) = self.window(totals);
        self.limit = self.limit_for(succeeded, failed.saturating_sub(self.run));
        Seen {
            succeeded,
            failed,
            hangs: self.hangs(&now),
        }
    }

    /// Successes and failures in the window.
    pub(super) fn window(&self, totals: &Totals) -> (u64, u64) {
        let oldest = &self.edges[self.back(self.known - 1)];
        let now = Snapshot::of(totals);
        (
            u64::from(difference(now.succeeded, oldest.succeeded)),
            u64::from(difference(now.failed, oldest.failed)),
        )
    }

    /// Forgets what was before: the window begins now, and how long calls take is to be learnt anew.
    pub(super) fn cut(&mut self, totals: &Totals) {
        self.edges[self.newest] = Snapshot::of(totals);
        self.known = 1;
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
    fn hangs(&self, now: &Snapshot) -> bool {
        let Some((in_flight, ended)) = self.load else {
            return false;
        };
        // One more, since an edge may be looked at up to a bucket late.
        let edges = (PATIENCE * in_flight / ended).ceil().max(1.0) + 1.0;
        if edges > (self.known - 1) as f64 {
            return false;
        }
        let then = &self.edges[self.back(edges as usize)];
        let overdue = u64::from(difference(then.started, now.ended()));
        now.succeeded == then.succeeded && overdue >= self.limit
    }

    /// The index of the edge that many before the newest.
    fn back(&self, edges: usize) -> usize {
        (self.newest + self.edges.len() - edges) % self.edges.len()
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
            ..Totals::default()
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
                ignored: 15 * edge,
                ..totals(25 * edge, 10 * edge, 0)
            };
            assert!(!book.turn(1, &ended).hangs);
        }
        for edge in 100..110_u64 {
            let ended = Totals {
                ignored: 15 * 99 + 25 * (edge - 99),
                ..totals(25 * edge, 10 * 99, 0)
            };
            assert!(!book.turn(1, &ended).hangs);
        }
    }
}
