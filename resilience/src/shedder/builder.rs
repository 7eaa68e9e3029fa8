//! [`ShedderBuilder`]: what a shedder can be told before it is built.

use std::fmt;
use std::time::Duration;

use wheelhouse_wheel::{Clock, SystemClock};

use super::Shedder;
use super::heat::WHOLE;
use crate::{BuildError, CpuMeter, CpuSource};

/// Settings of a [`Shedder`]; see [`Shedder::builder`].
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::Shedder;
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let shedder = Shedder::builder()
///     .name("api")
///     .threshold(800)
///     .sample_period(Duration::from_millis(50))
///     .build()?;
/// assert_eq!(shedder.name(), "api");
/// # Ok(()) }
/// ```
#[must_use]
pub struct ShedderBuilder {
    pub(super) name: String,
    pub(super) threshold: u32,
    pub(super) cool_off: Duration,
    pub(super) window: Duration,
    pub(super) buckets: usize,
    pub(super) sample_period: Duration,
    pub(super) clock: Box<dyn Clock>,
    pub(super) cpu: Option<Box<dyn CpuSource>>,
    cpu_limit: Option<f64>,
}

impl ShedderBuilder {
    pub(super) fn new() -> Self {
        ShedderBuilder {
            name: "shedder".to_owned(),
            threshold: 900,
            cool_off: Duration::from_secs(1),
            window: Duration::from_secs(5),
            buckets: 50,
            sample_period: Duration::from_millis(250),
            clock: Box::new(SystemClock),
            cpu: None,
            cpu_limit: None,
        }
    }

    /// The name in metrics and events, "shedder" by default.
    ///
    /// ```
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// assert_eq!(Shedder::builder().name("api").build()?.name(), "api");
    /// # Ok(()) }
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The smoothed processor usage from which on it sheds, in thousandths of what may be used: 0 to
    /// 999, 900 by default. With 0 it holds to what is sustainable whatever the usage.
    ///
    /// ```
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let shedder = Shedder::builder().threshold(800).build()?;
    /// let refused = Shedder::builder().threshold(1000).build().unwrap_err();
    /// assert_eq!(refused.argument(), "threshold");
    /// # Ok(()) }
    /// ```
    pub fn threshold(mut self, thousandths: u32) -> Self {
        self.threshold = thousandths;
        self
    }

    /// How long after the usage was last seen at the threshold it goes on to shed what is too much,
    /// one second by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let shedder = Shedder::builder().cool_off(Duration::from_millis(500)).build()?;
    /// # Ok(()) }
    /// ```
    pub fn cool_off(mut self, cool_off: Duration) -> Self {
        self.cool_off = cool_off;
        self
    }

    /// Over how long it looks for the best throughput and latency, and in how many buckets: 5 s in
    /// 50 by default. The unfinished bucket is left out, so there are at least two.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let shedder = Shedder::builder().window(Duration::from_secs(10), 100).build()?;
    /// assert!(Shedder::builder().window(Duration::from_secs(10), 1).build().is_err());
    /// # Ok(()) }
    /// ```
    pub fn window(mut self, window: Duration, buckets: usize) -> Self {
        self.window = window;
        self.buckets = buckets;
        self
    }

    /// How often the processor usage is sampled, 250 ms by default. The average keeps 0.95 of itself
    /// over each: with the default it takes 12 s from idle until a full load is seen as 900, and with
    /// 50 ms about 2.5 s.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let shedder = Shedder::builder().sample_period(Duration::from_millis(50)).build()?;
    /// assert!(Shedder::builder().sample_period(Duration::ZERO).build().is_err());
    /// # Ok(()) }
    /// ```
    pub fn sample_period(mut self, period: Duration) -> Self {
        self.sample_period = period;
        self
    }

    /// Where it reads time, [`SystemClock`] by default.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Priority, Shedder};
    /// use wheelhouse_wheel::ManualClock;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let clock = ManualClock::new();
    /// let shedder = Shedder::builder().clock(clock.clone()).cpu(|_| Some(1.0)).build()?;
    /// clock.advance(Duration::from_millis(250));
    /// let _ = shedder.try_acquire(Priority::Normal);
    /// assert!(shedder.stats().is_hot);
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// Where it learns the processor usage, a [`CpuMeter`] of this process by default.
    ///
    /// ```
    /// use wheelhouse_resilience::{CpuMeter, Shedder};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let meter = CpuMeter::at_root("/host").with_limit(2.0)?;
    /// let shedder = Shedder::builder().cpu(meter).build()?;
    /// # Ok(()) }
    /// ```
    pub fn cpu(mut self, source: impl CpuSource) -> Self {
        self.cpu = Some(Box::new(source));
        self
    }

    /// How many processors the default [`CpuMeter`] takes for the limit, instead of the limit that it
    /// reads. Only without a source of one's own.
    ///
    /// ```
    /// use wheelhouse_resilience::Shedder;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let shedder = Shedder::builder().cpu_limit(1.5).build()?;
    /// assert!(Shedder::builder().cpu_limit(0.0).build().is_err());
    /// # Ok(()) }
    /// ```
    pub fn cpu_limit(mut self, processors: f64) -> Self {
        self.cpu_limit = Some(processors);
        self
    }

    /// Builds the shedder.
    ///
    /// ```
    /// use wheelhouse_resilience::Shedder;
    ///
    /// let refused = Shedder::builder().threshold(1000).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "threshold is 1000; allowed are 0 to 999");
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when the threshold is above 999, a bucket of the window is shorter than a
    /// nanosecond, there are fewer than 2 or more than 1 048 576 buckets, the sample period is zero,
    /// or the limit is not a finite number above 0 or given beside a source.
    pub fn build(mut self) -> Result<Shedder, BuildError> {
        if f64::from(self.threshold) >= WHOLE {
            return Err(BuildError::new(
                "threshold",
                self.threshold.to_string(),
                "0 to 999",
            ));
        }
        if self.buckets < 2 {
            return Err(BuildError::new(
                "buckets",
                self.buckets.to_string(),
                "2 to 1048576",
            ));
        }
        if self.sample_period.is_zero() {
            let value = format!("{:?}", self.sample_period);
            return Err(BuildError::new("sample_period", value, "1ns and more"));
        }
        self.cpu = Some(match (self.cpu.take(), self.cpu_limit) {
            (None, None) => Box::new(CpuMeter::new()),
            (None, Some(limit)) => Box::new(CpuMeter::new().with_limit(limit)?),
            (Some(source), None) => source,
            (Some(_), Some(limit)) => {
                let allowed = "numbers without a cpu source of one's own";
                return Err(BuildError::new("cpu_limit", limit.to_string(), allowed));
            }
        });
        Shedder::from_builder(self)
    }
}

impl fmt::Debug for ShedderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShedderBuilder")
            .field("name", &self.name)
            .field("threshold", &self.threshold)
            .field("cool_off", &self.cool_off)
            .field("window", &self.window)
            .field("buckets", &self.buckets)
            .field("sample_period", &self.sample_period)
            .field("cpu_limit", &self.cpu_limit)
            .finish_non_exhaustive()
    }
}
