//! How long calls took over the last while, in memory that does not grow.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::BuildError;

/// Latencies are kept for one to two of these: nanoseconds.
const SPAN: u64 = 30_000_000_000;

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

/// Two groups of histograms that take turns. Times are nanoseconds of the record.
pub(super) struct Latency {
    state: Mutex<State>,
}

struct State {
    /// The number of the span that `current` is of.
    span: u64,
    current: Group,
    last: Group,
}

/// Most calls took as long in all as they ran, and are recorded once.
#[derive(Clone)]
struct Group {
    both: Histogram<u32>,
    /// The others, if there are any.
    apart: Option<Box<Apart>>,
}

#[derive(Clone)]
struct Apart {
    execute: Histogram<u32>,
    total: Histogram<u32>,
}

impl Latency {
    pub(super) fn new() -> Result<Self, BuildError> {
        let group = || {
            let both = Histogram::new_with_bounds(1, micros(MOST), 2)
                .map_err(|error| BuildError::new("latency", error.to_string(), "its constants"))?;
            Ok(Group { both, apart: None })
        };
        Ok(Latency {
            state: Mutex::new(State {
                span: 0,
                current: group()?,
                last: group()?,
            }),
        })
    }

    /// A call has run for so long, and has a result after so long, its fallback included.
    pub(super) fn note(&self, now: u64, executed: Option<Duration>, total: Option<Duration>) {
        let took = executed.map(micros);
        let in_all = match executed == total {
            true => took,
            false => total.map(micros),
        };
        self.at(now, |state| match (took, in_all) {
            (Some(took), Some(in_all)) if took == in_all => {
                state.current.both.saturating_record(took);
            }
            _ => state.current.note_apart(took, in_all),
        });
    }

    /// Of running, and in all.
    pub(super) fn summaries(&self, now: u64) -> [LatencySummary; 2] {
        let [current, last] = self.at(now, |state| [state.current.clone(), state.last.clone()]);
        let (current, last) = (current.split(), last.split());
        [summary(current.0, &last.0), summary(current.1, &last.1)]
    }

    /// The state with its spans where `now` has them. A clock that steps back changes nothing.
    fn at<R>(&self, now: u64, action: impl FnOnce(&mut State) -> R) -> R {
        let span = now / SPAN;
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

impl Group {
    #[cold]
    fn note_apart(&mut self, took: Option<u64>, in_all: Option<u64>) {
        let like = &self.both;
        let apart = self.apart.get_or_insert_with(|| {
            Box::new(Apart {
                execute: Histogram::new_from(like),
                total: Histogram::new_from(like),
            })
        });
        let each = [(&mut apart.execute, took), (&mut apart.total, in_all)];
        for (histogram, took) in each {
            if let Some(took) = took {
                histogram.saturating_record(took);
            }
        }
    }

    /// All that ran, and all in all.
    fn split(self) -> (Histogram<u32>, Histogram<u32>) {
        let mut each = (self.both.clone(), self.both);
        if let Some(apart) = self.apart {
            // They cannot differ in what they can hold.
            let _ = (each.0.add(&apart.execute), each.1.add(&apart.total));
        }
        each
    }

    fn reset(&mut self) {
        self.both.reset();
        self.apart = None;
    }
}

fn summary(mut current: Histogram<u32>, last: &Histogram<u32>) -> LatencySummary {
    let calls = current.len() + last.len();
    if current.add(last).is_err() || calls == 0 {
        return LatencySummary::default();
    }
    LatencySummary {
        calls,
        mean: Duration::from_secs_f64(current.mean() / 1e6),
        percentiles: LatencySummary::PERCENTS
            .map(|percent| Duration::from_micros(current.value_at_quantile(percent / 100.0))),
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
        let second = |s: u64| s * 1_000_000_000;
        let ms = Duration::from_millis;
        let latency = Latency::new().unwrap();
        assert_eq!(latency.summaries(0), [LatencySummary::default(); 2]);
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
        latency.note(second(60), Some(ms(5)), Some(ms(5)));
        latency.note(second(60), Some(ms(5)), Some(ms(50)));
        let [execute, total] = latency.summaries(second(60));
        assert_eq!((execute.calls, total.calls), (2, 2));
        near(execute.percentiles[8], ms(5));
        near(total.percentiles[8], ms(50));
        // A whole span without calls.
        assert_eq!(latency.summaries(second(120))[0].calls, 0);
        assert_eq!(latency.summaries(0)[0].calls, 0);
    }
}
