//! How long calls took over the last while, in memory that does not grow.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::BuildError;

/// Latencies are kept for one to two of these.
const SPAN: Duration = Duration::from_secs(30);

/// The longest that is told apart.
const MOST: Duration = Duration::from_secs(600);

/// How long calls took: the mean, and the times that so many per cent of them did not exceed, to two
/// digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LatencySummary {
    /// How many calls there were.
    pub calls: u64,
    /// The mean.
    pub mean: Duration,
    /// The times, by [`PERCENTS`](Self::PERCENTS).
    pub percentiles: [Duration; 9],
}

impl LatencySummary {
    /// Of how many per cent [`percentiles`](Self::percentiles) are, as the Hystrix dashboard has them.
    pub const PERCENTS: [f64; 9] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 100.0];
}

/// Two pairs of histograms that take turns.
pub(super) struct Latency {
    start: Instant,
    state: Mutex<State>,
}

struct State {
    /// The number of the span that `current` is of.
    span: u128,
    current: Pair,
    last: Pair,
}

struct Pair {
    execute: Histogram<u32>,
    total: Histogram<u32>,
}

impl Latency {
    pub(super) fn new(start: Instant) -> Result<Self, BuildError> {
        let state = State {
            span: 0,
            current: Pair::new()?,
            last: Pair::new()?,
        };
        Ok(Latency {
            start,
            state: Mutex::new(state),
        })
    }

    /// A call has run for so long, and has a result after so long, its fallback included.
    pub(super) fn note(&self, now: Instant, executed: Option<Duration>, total: Option<Duration>) {
        self.at(now, |state| {
            let both = [
                (&mut state.current.execute, executed),
                (&mut state.current.total, total),
            ];
            for (histogram, took) in both {
                if let Some(took) = took {
                    histogram.saturating_record(micros(took));
                }
            }
        });
    }

    /// Of running, and in all.
    pub(super) fn summaries(&self, now: Instant) -> [LatencySummary; 2] {
        let mut both = self.at(now, |state| {
            let (current, last) = (&state.current, &state.last);
            [
                (&current.execute, &last.execute),
                (&current.total, &last.total),
            ]
            .map(|(current, last)| [current.clone(), last.clone()])
        });
        both.each_mut().map(|[current, last]| {
            let calls = current.len() + last.len();
            if current.add(&*last).is_err() || calls == 0 {
                return LatencySummary::default();
            }
            LatencySummary {
                calls,
                mean: Duration::from_secs_f64(current.mean() / 1e6),
                percentiles: LatencySummary::PERCENTS.map(|percent| {
                    Duration::from_micros(current.value_at_quantile(percent / 100.0))
                }),
            }
        })
    }

    /// The state with its spans where `now` has them. A clock that steps back changes nothing.
    fn at<R>(&self, now: Instant, action: impl FnOnce(&mut State) -> R) -> R {
        let span = now.saturating_duration_since(self.start).as_nanos() / SPAN.as_nanos();
        let mut state = self.state.lock();
        if span > state.span {
            let state = &mut *state;
            std::mem::swap(&mut state.current, &mut state.last);
            if span > state.span + 1 {
                state.last.reset();
            }
            state.current.reset();
            state.span = span;
        }
        action(&mut state)
    }
}

impl Pair {
    fn new() -> Result<Self, BuildError> {
        let histogram = || {
            Histogram::new_with_bounds(1, micros(MOST), 2)
                .map_err(|error| BuildError::new("latency", error.to_string(), "its constants"))
        };
        Ok(Pair {
            execute: histogram()?,
            total: histogram()?,
        })
    }

    fn reset(&mut self) {
        self.execute.reset();
        self.total.reset();
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let start = Instant::now();
        let second = |s| start + Duration::from_secs(s);
        let ms = Duration::from_millis;
        let latency = Latency::new(start).unwrap();
        assert_eq!(latency.summaries(start), [LatencySummary::default(); 2]);
        latency.note(second(1), Some(ms(100)), None);
        latency.note(second(29), Some(ms(200)), None);
        latency.note(second(29), None, Some(Duration::MAX));
        let [execute, total] = latency.summaries(second(59));
        assert_eq!((execute.calls, total.calls), (2, 1));
        let near = |found: Duration, right: Duration| {
            assert!(
                found.abs_diff(right) <= right / 100,
                "{found:?} for {right:?}"
            );
        };
        near(execute.mean, ms(150));
        near(execute.percentiles[0], ms(100));
        near(execute.percentiles[8], ms(200));
        near(total.percentiles[4], MOST);
        latency.note(second(60), Some(ms(5)), None);
        assert_eq!(latency.summaries(second(60))[0].calls, 1);
        // A whole span without calls.
        assert_eq!(latency.summaries(second(120))[0].calls, 0);
        assert_eq!(latency.summaries(start)[0].calls, 0);
    }
}
