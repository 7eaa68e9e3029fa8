//! When calls arrive, exact to the nanosecond, whatever the rate.

use super::scenario::Arrivals;

/// Calls a second: a fraction, so that no sum of rounded distances drifts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    calls: u64,
    /// In so many seconds.
    seconds: u64,
}

/// Digits after the point that a rate may have.
const DECIMALS: usize = 3;
const MOST: u64 = 10_000_000;
const NANOS: u64 = 1_000_000_000;
/// Calls at one instant in bursty arrivals.
const BURST: u64 = 10;

impl Rate {
    /// A call every five seconds.
    pub(super) const SPARSE: Self = Self {
        calls: 1,
        seconds: 5,
    };

    /// Whole calls a second.
    #[cfg(test)]
    pub(super) fn of(calls: u64) -> Self {
        Self { calls, seconds: 1 }
    }

    /// Reads a rate, as in `1000` or `0.2`.
    ///
    /// # Errors
    ///
    /// What is allowed instead.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let refusal = || format!("{text:?} is not a number of calls a second in 0.001..={MOST}");
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = !whole.is_empty() && digits(whole) && digits(part);
        if !is_number || part.len() > DECIMALS || text.ends_with('.') {
            return Err(refusal());
        }
        let seconds = 10_u64.pow(u32::try_from(part.len()).map_err(|_| refusal())?);
        let calls: u64 = format!("{whole}{part}").parse().map_err(|_| refusal())?;
        if calls == 0 || calls > MOST * seconds {
            return Err(refusal());
        }
        Ok(Self { calls, seconds })
    }

    /// Calls a second.
    pub(super) fn per_second(self) -> f64 {
        self.calls as f64 / self.seconds as f64
    }

    /// The time in which `calls` of them arrive, in nanoseconds, rounded down.
    pub(super) fn nanos_per(self, calls: u64) -> u64 {
        let nanos = u128::from(calls) * u128::from(NANOS) * u128::from(self.seconds);
        u64::try_from(nanos / u128::from(self.calls)).unwrap_or(u64::MAX)
    }
}

/// The instants of arrival, in order.
#[derive(Debug)]
pub(super) struct Clockwork {
    next: u64,
    /// Left of what cannot be divided, in parts of `divisor`.
    left: u64,
    step: u64,
    step_left: u64,
    divisor: u64,
    spacing: Spacing,
}

#[derive(Debug)]
enum Spacing {
    Even,
    Bursty { at_instant: u64 },
    Poisson { mean: f64, draws: fastrand::Rng },
}

impl Clockwork {
    pub(super) fn new(rate: Rate, arrivals: Arrivals, seed: u64) -> Self {
        let burst = if arrivals == Arrivals::Bursty {
            BURST
        } else {
            1
        };
        let nanos = burst * NANOS * rate.seconds;
        let mut clockwork = Self {
            next: 0,
            left: 0,
            step: nanos / rate.calls,
            step_left: nanos % rate.calls,
            divisor: rate.calls,
            spacing: match arrivals {
                Arrivals::Even => Spacing::Even,
                Arrivals::Bursty => Spacing::Bursty { at_instant: 0 },
                Arrivals::Poisson => Spacing::Poisson {
                    mean: NANOS as f64 / rate.per_second(),
                    draws: fastrand::Rng::with_seed(seed),
                },
            },
        };
        if arrivals == Arrivals::Poisson {
            // Nothing sets the first call apart from the others.
            clockwork.advance();
        }
        clockwork
    }

    /// When the next call arrives.
    pub(super) fn next(&mut self) -> u64 {
        let at = self.next;
        self.advance();
        at
    }

    fn advance(&mut self) {
        match &mut self.spacing {
            Spacing::Even => {}
            Spacing::Bursty { at_instant } => {
                *at_instant += 1;
                if *at_instant < BURST {
                    return;
                }
                *at_instant = 0;
            }
            Spacing::Poisson { mean, draws } => {
                // The logarithm of 1 − u: u may be 0.
                let gap = -(1.0 - draws.f64()).ln() * *mean;
                self.next += gap.round() as u64;
                return;
            }
        }
        self.next += self.step;
        self.left += self.step_left;
        if self.left >= self.divisor {
            self.left -= self.divisor;
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_up_to_three_decimals() {
        assert_eq!(Rate::parse("1000"), Ok(Rate::of(1000)));
        assert_eq!(Rate::parse("0.2").map(Rate::per_second), Ok(0.2));
        assert_eq!(Rate::parse("0.001").map(Rate::per_second), Ok(0.001));
        assert_eq!(Rate::parse("10000000").map(Rate::per_second), Ok(1e7));
        for text in [
            "", "0", "0.0", "-1", "+1", "1e3", ".5", "1.", "0.0001", "10000001", "1.2.3",
        ] {
            assert!(Rate::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn even_arrivals_do_not_drift() {
        let mut clockwork = Clockwork::new(Rate::of(7), Arrivals::Even, 1);
        for call in 0..7_000_u64 {
            assert_eq!(clockwork.next(), call * NANOS / 7);
        }
        assert_eq!(clockwork.next(), 1000 * NANOS);
    }

    #[test]
    fn bursts_are_ten_at_an_instant() {
        let mut clockwork = Clockwork::new(Rate::of(1000), Arrivals::Bursty, 1);
        let times: Vec<_> = (0..30).map(|_| clockwork.next() / 1_000_000).collect();
        let wanted: Vec<_> = (0..30).map(|call| call / 10 * 10).collect();
        assert_eq!(times, wanted);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread() {
        let mut clockwork = Clockwork::new(Rate::of(1000), Arrivals::Poisson, 1);
        let mut times: Vec<_> = (0..100_000).map(|_| clockwork.next()).collect();
        assert!(times.is_sorted());
        let seconds = times[99_999] as f64 / 1e9;
        assert!((98.0..102.0).contains(&seconds), "{seconds}");
        // A share of e⁻¹ of the gaps is longer than the mean.
        times.dedup();
        let long = times
            .windows(2)
            .filter(|pair| pair[1] - pair[0] > 1_000_000)
            .count();
        assert!((35_800..37_800).contains(&long), "{long}");
    }
}
