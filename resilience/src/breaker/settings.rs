//! What a breaker was built with, apart from its name, its clock and its policies.

use std::time::Duration;

use super::{Closing, HalfOpenEnd, Verdict};
use crate::BuildError;
use crate::clock::{NEVER, nanos};

/// Times in nanoseconds. Shared by the breakers of one builder.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) cool_down: u64,
    pub(crate) growth: f64,
    /// `None`: a minute, or the cool-down if that is longer.
    pub(crate) max_cool_down: Option<u64>,
    /// The share by which a cool-down may be longer.
    pub(crate) jitter: f64,
    /// How long a breaker stays closed until the growth begins anew.
    pub(crate) stable_after: u64,
    pub(crate) max_probes: u32,
    pub(crate) probe_interval: u64,
    /// How long a probe may take.
    pub(crate) lease: u64,
    pub(crate) expired: Verdict,
    pub(crate) max_half_open: u64,
    pub(crate) half_open_end: HalfOpenEnd,
    pub(crate) closing: Closing,
    pub(crate) ramp: u64,
    /// [`NEVER`]: calls are not timed.
    pub(crate) slow_after: u64,
    pub(crate) max_in_flight: Option<u32>,
    pub(crate) cancelled: Verdict,
    /// Disabled for good, whatever anybody says.
    pub(crate) exempt: bool,
}

impl Settings {
    /// Of the default breaker.
    pub(crate) fn new() -> Self {
        Settings {
            cool_down: nanos(Duration::from_secs(1)),
            growth: 1.0,
            max_cool_down: None,
            jitter: 0.1,
            stable_after: nanos(Duration::from_secs(60)),
            max_probes: 1,
            probe_interval: nanos(Duration::from_secs(1)),
            lease: nanos(Duration::from_secs(10)),
            expired: Verdict::Failure,
            max_half_open: NEVER,
            half_open_end: HalfOpenEnd::Open,
            closing: Closing::successes(1),
            ramp: nanos(Duration::from_millis(500)),
            slow_after: NEVER,
            max_in_flight: None,
            cancelled: Verdict::Ignored,
            exempt: false,
        }
    }

    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if !(self.growth >= 1.0 && self.growth.is_finite()) {
            let value = self.growth.to_string();
            return Err(BuildError::new("growth", value, "1 and more"));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            let value = self.jitter.to_string();
            return Err(BuildError::new("jitter", value, "0 to 1"));
        }
        if self.max_probes == 0 {
            return Err(BuildError::new("max_probes", "0", "1 and more"));
        }
        if self.max_in_flight == Some(0) {
            return Err(BuildError::new("max_in_flight", "0", "1 and more, or none"));
        }
        if let Some(cap) = self.max_cool_down
            && cap < self.cool_down
        {
            let value = format!("{:?}", Duration::from_nanos(cap));
            let allowed = format!(
                "{:?} (the cool-down) and more",
                Duration::from_nanos(self.cool_down)
            );
            return Err(BuildError::new("max_cool_down", value, allowed));
        }
        self.closing.check()
    }

    /// The cool-down of the opening that `level` others came before without a stable time between.
    /// `random` is from 0 to 1.
    pub(crate) fn cool_down(&self, level: u32, random: f64) -> u64 {
        let growth = self.growth.powi(i32::try_from(level).unwrap_or(i32::MAX));
        // A product that is too great, or no number, is more than any cap.
        let minute = nanos(Duration::from_secs(60));
        let cap = self.max_cool_down.unwrap_or(minute.max(self.cool_down));
        let grown = (self.cool_down as f64 * growth).min(cap as f64);
        let base = if level == 0 || growth == 1.0 || self.cool_down == 0 {
            self.cool_down
        } else {
            grown as u64
        };
        base.saturating_add((base as f64 * self.jitter * random) as u64)
            .min(NEVER - 1)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn cool_down_grows_up_to_its_cap() {
        let mut settings = Settings::new();
        settings.growth = 2.0;
        settings.max_cool_down = Some(5_000_000_000);
        let seconds: Vec<u64> = (0..5)
            .map(|level| settings.cool_down(level, 0.0) / 1_000_000_000)
            .collect();
        assert_eq!(seconds, [1, 2, 4, 5, 5]);
        assert_eq!(settings.cool_down(u32::MAX, 0.0), 5_000_000_000);
        assert_eq!(settings.cool_down(0, 1.0), 1_100_000_000);
    }

    #[test]
    fn cool_down_saturates() {
        let mut settings = Settings::new();
        settings.cool_down = NEVER - 1;
        settings.max_cool_down = None;
        settings.growth = 1e300;
        for level in [0, 1, 7, u32::MAX] {
            assert!(settings.cool_down(level, 1.0) >= u64::MAX - 4096);
            assert!(settings.cool_down(level, 1.0) < NEVER);
        }
        settings.cool_down = 0;
        assert_eq!(settings.cool_down(9, 1.0), 0);
    }
}
