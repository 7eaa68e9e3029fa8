//! go-zero's breaker: client-side throttling by the book of Google's SREs, made stricter the longer
//! nothing succeeds and milder the longer nothing fails.
//!
//! Over a window of buckets, total counts all that was asked for, local rejections too. With
//! w = max(min_k, k − (k − min_k) · failing / buckets) a call is rejected with the probability
//! (total − protection − w · accepts) / (total + 1), times (buckets − working) / buckets. failing
//! and working are the trailing runs of buckets in which something failed and nothing succeeded,
//! and the reverse; buckets without either end no run. Once nothing has passed for `force_pass`, a
//! call does. Any error is a failure, that of a cancelled context too.

use fastrand::Rng;

use super::super::policy::{Admitted, Outcome, Policy};
use super::SECOND;

/// The constants of the library.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) window: u64,
    pub(crate) buckets: usize,
    pub(crate) k: f64,
    pub(crate) min_k: f64,
    pub(crate) protection: u64,
    pub(crate) force_pass: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            window: 10 * SECOND,
            buckets: 40,
            k: 1.5,
            min_k: 1.1,
            protection: 5,
            force_pass: SECOND,
        }
    }
}

/// The throttle.
#[derive(Debug)]
pub(crate) struct GoZero {
    settings: Settings,
    window: Window,
    last_pass: Option<u64>,
    draws: Rng,
}

impl GoZero {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        let length = settings.window / settings.buckets.max(1) as u64;
        Self {
            window: Window::new(settings.buckets, length.max(1)),
            settings,
            last_pass: None,
            draws: Rng::with_seed(seed),
        }
    }

    /// Whether the call passes, and whether it was forced to.
    fn accept(&mut self, now: u64) -> Option<bool> {
        let seen = self.window.history(now);
        let buckets = self.settings.buckets as f64;
        let (k, min_k) = (self.settings.k, self.settings.min_k);
        let w = (k - (k - min_k) * seen.failing as f64 / buckets).max(min_k);
        let beyond = seen.total as f64 - self.settings.protection as f64 - w * seen.accepts as f64;
        let mut drop_ratio = beyond / (seen.total + 1) as f64;
        if drop_ratio <= 0.0 {
            return Some(false);
        }
        let waited = |last| now - last > self.settings.force_pass;
        if self.last_pass.is_some_and(waited) {
            self.last_pass = Some(now);
            return Some(true);
        }
        drop_ratio *= (buckets - seen.working as f64) / buckets;
        if self.draws.f64() < drop_ratio {
            return None;
        }
        self.last_pass = Some(now);
        Some(false)
    }
}

impl Policy for GoZero {
    type Token = ();

    fn admit(&mut self, now: u64) -> Option<Admitted<()>> {
        match self.accept(now) {
            Some(true) => Admitted::probe(()),
            Some(false) => Admitted::plain(()),
            None => {
                self.window.add(now, |bucket| bucket.total += 1);
                None
            }
        }
    }

    fn settle(&mut self, (): (), outcome: Outcome, now: u64) {
        self.window.add(now, |bucket| {
            bucket.total += 1;
            if outcome == Outcome::Success {
                bucket.successes += 1;
            } else {
                bucket.failures += 1;
            }
        });
    }

    fn transitions(&self) -> u64 {
        0
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Bucket {
    total: u64,
    successes: u64,
    failures: u64,
}

#[derive(Debug, Default)]
struct History {
    accepts: u64,
    total: u64,
    failing: usize,
    working: usize,
}

/// The library's rolling window: buckets are cleared by the additions that come after them.
#[derive(Debug)]
struct Window {
    buckets: Vec<Bucket>,
    length: u64,
    current: usize,
    began: u64,
}

impl Window {
    fn new(buckets: usize, length: u64) -> Self {
        Self {
            buckets: vec![Bucket::default(); buckets.max(1)],
            length,
            current: 0,
            began: 0,
        }
    }

    /// Bucket lengths since the current bucket began, at most all of them.
    fn span(&self, now: u64) -> usize {
        let span = (now - self.began) / self.length;
        self.buckets.len().min(span as usize)
    }

    fn add(&mut self, now: u64, change: impl FnOnce(&mut Bucket)) {
        let span = self.span(now);
        let len = self.buckets.len();
        if span > 0 {
            for step in 1..=span {
                self.buckets[(self.current + step) % len] = Bucket::default();
            }
            self.current = (self.current + span) % len;
            self.began = now - (now - self.began) % self.length;
        }
        change(&mut self.buckets[self.current]);
    }

    fn history(&self, now: u64) -> History {
        let span = self.span(now);
        let len = self.buckets.len();
        let oldest = self.current + span + 1;
        let mut seen = History::default();
        for step in 0..len - span {
            let bucket = self.buckets[(oldest + step) % len];
            seen.accepts += bucket.successes;
            seen.total += bucket.total;
            if bucket.failures > 0 {
                seen.working = 0;
            } else if bucket.successes > 0 {
                seen.working += 1;
            }
            if bucket.successes > 0 {
                seen.failing = 0;
            } else if bucket.failures > 0 {
                seen.failing += 1;
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_forgets_by_buckets() {
        let mut window = Window::new(4, 10);
        window.add(0, |bucket| bucket.total += 1);
        window.add(15, |bucket| bucket.total += 10);
        for (now, total) in [(15, 11), (39, 11), (40, 10), (49, 10), (50, 0), (900, 0)] {
            assert_eq!(window.history(now).total, total, "at {now}");
        }
        window.add(900, |bucket| bucket.total += 100);
        assert_eq!(window.history(900).total, 100);
    }

    #[test]
    fn trailing_runs_end_with_their_opposite_only() {
        let mut window = Window::new(6, 10);
        let mut at = 0;
        let mut bucket = |successes, failures| {
            window.add(at, |bucket| {
                bucket.total += 1;
                bucket.successes += successes;
                bucket.failures += failures;
            });
            let seen = window.history(at);
            at += 10;
            (seen.working, seen.failing)
        };
        assert_eq!(bucket(1, 0), (1, 0));
        assert_eq!(bucket(1, 0), (2, 0));
        assert_eq!(bucket(0, 1), (0, 1));
        assert_eq!(bucket(0, 0), (0, 1), "rejections only");
        assert_eq!(bucket(0, 1), (0, 2));
        assert_eq!(bucket(1, 1), (0, 0));
    }

    #[test]
    fn a_dead_backend_gets_one_call_a_second() {
        let mut throttle = GoZero::new(Settings::default(), 1);
        let mut passed = 0;
        for call in 0..40_000 {
            let now = call * 1_000_000;
            if throttle.admit(now).is_some() {
                throttle.settle((), Outcome::Failure, now);
                passed += u32::from(call >= 20_000);
            }
        }
        assert!((19..=60).contains(&passed), "{passed}");
    }
}
