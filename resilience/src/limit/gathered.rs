//! Samples put together until it is time to look at them.

use std::time::{Duration, Instant};

use super::Sample;

/// A window with fewer calls than this goes on.
const LEAST_CALLS: u32 = 10;

#[derive(Debug)]
pub(super) struct Gathered {
    /// How long samples are put together; zero is not at all.
    window: Duration,
    since: Option<Instant>,
    calls: u32,
    good: u32,
    rtt_sum: Duration,
    in_flight: usize,
    dropped: bool,
}

impl Gathered {
    pub(super) fn new(window: Duration) -> Self {
        Gathered {
            window,
            since: None,
            calls: 0,
            good: 0,
            rtt_sum: Duration::ZERO,
            in_flight: 0,
            dropped: false,
        }
    }

    pub(super) fn add(&mut self, sample: &Sample, now: Instant) {
        self.since.get_or_insert(now);
        self.calls = self.calls.saturating_add(1);
        if let Some(rtt) = sample.rtt {
            self.good = self.good.saturating_add(1);
            self.rtt_sum = self.rtt_sum.saturating_add(rtt);
        }
        self.in_flight = self.in_flight.max(sample.in_flight);
        self.dropped |= sample.dropped;
    }

    /// All of it as one sample, if its time has come.
    pub(super) fn take_ripe(&mut self, now: Instant) -> Option<Sample> {
        let since = self.since?;
        let open = now.saturating_duration_since(since) < self.window || self.calls < LEAST_CALLS;
        if open && !self.window.is_zero() {
            return None;
        }
        let rtt = self.rtt_sum.checked_div(self.good);
        let sample = Sample {
            rtt,
            in_flight: self.in_flight,
            dropped: self.dropped,
        };
        *self = Gathered::new(self.window);
        Some(sample)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_after_its_time_and_ten_calls() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut gathered = Gathered::new(ms(100));
        assert_eq!(gathered.take_ripe(start), None);
        for call in 0..9 {
            gathered.add(&Sample::good(ms(10 + 2 * call), call as usize), start);
        }
        assert_eq!(gathered.take_ripe(start + ms(200)), None);
        gathered.add(&Sample::dropped(3), start + ms(99));
        assert_eq!(gathered.take_ripe(start + ms(99)), None);
        let expected = Sample {
            rtt: Some(ms(18)),
            in_flight: 8,
            dropped: true,
        };
        assert_eq!(gathered.take_ripe(start + ms(100)), Some(expected));
        assert_eq!(gathered.take_ripe(start + ms(500)), None);
    }

    #[test]
    fn drops_alone_have_no_time() {
        let now = Instant::now();
        let mut gathered = Gathered::new(Duration::ZERO);
        gathered.add(&Sample::dropped(3), now);
        assert_eq!(gathered.take_ripe(now), Some(Sample::dropped(3)));
    }
}
