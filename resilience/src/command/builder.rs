//! The choices of a [`Command`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wheelhouse_wheel::{Clock, TokioClock};

use crate::bulkhead::MAX_PERMITS;
use crate::contain::Contained;
use crate::text;
use crate::{Breaker, BuildError, Bulkhead, Closing, ErrorRate};

use super::event::{CommandEvent, Tally, WINDOW, WINDOW_BUCKETS};
use super::latency::Latency;
use super::meters::Meters;
use super::progress::Abandoned;
use super::record::{Hook, Record};
use super::{Command, Settings, Shared};

/// The choices of a [`Command`]. `None` switches off the part that it is given for.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_resilience::Command;
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let search = Command::builder("search")
///     .timeout(Duration::from_millis(200))
///     .max_concurrent(50)
///     .error_percent(None)
///     .build()?;
/// assert_eq!((search.bulkhead().permits(), search.breaker().is_none()), (50, true));
/// # Ok(()) }
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct CommandBuilder {
    name: String,
    settings: Settings,
    hook: Option<Box<Hook>>,
}

impl CommandBuilder {
    pub(super) fn new(name: String) -> Self {
        CommandBuilder {
            name,
            settings: Settings {
                timeout: Some(Duration::from_secs(1)),
                max_concurrent: Some(10),
                fallback_max_concurrent: Some(10),
                volume: 20,
                error_percent: Some(50.0),
                sleep_window: Duration::from_secs(5),
            },
            hook: None,
        }
    }

    /// How long a call may take, from 1 ns; 1 s unless set. `None` is without a limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::Command;
    /// use wheelhouse_resilience::command::CommandError;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let second = Duration::from_secs(1);
    /// let command = Command::builder("search").timeout(second).build()?;
    /// let hangs = command.run(std::future::pending::<Result<(), ()>>()).await;
    /// assert_eq!(hangs, Err(CommandError::TimedOut(second)));
    /// # Ok(()) }
    /// ```
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.settings.timeout = timeout.into();
        self
    }

    /// How many calls may run at once, 0 to 2 147 483 647; 10 unless set. `None` is any number.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    /// use wheelhouse_resilience::command::CommandError;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let command = Command::builder("search").max_concurrent(0).build()?;
    /// let full = command.run(async { Ok::<_, ()>(7) }).await;
    /// assert!(matches!(full, Err(CommandError::Rejected(_))));
    /// # Ok(()) }
    /// ```
    pub fn max_concurrent(mut self, calls: impl Into<Option<usize>>) -> Self {
        self.settings.max_concurrent = calls.into();
        self
    }

    /// How many fallbacks may run at once, 0 to 2 147 483 647; 10 unless set. `None` is any number.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    /// use wheelhouse_resilience::command::FallbackError;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let command = Command::builder("search").fallback_max_concurrent(0).build()?;
    /// let result = command.run_or(async { Err("refused") }, |_| async { Ok::<_, ()>(7) }).await;
    /// assert!(matches!(result, Err(FallbackError::Rejected { .. })));
    /// # Ok(()) }
    /// ```
    pub fn fallback_max_concurrent(mut self, calls: impl Into<Option<usize>>) -> Self {
        self.settings.fallback_max_concurrent = calls.into();
        self
    }

    /// How many calls of the last 10 s there have to be before the breaker opens, from 1; 20 unless
    /// set.
    ///
    /// ```
    /// use wheelhouse_resilience::{Command, State};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let command = Command::builder("search").volume(2).build()?;
    /// for _ in 0..2 {
    ///     let _ = command.run(async { Err::<(), _>("refused") }).await;
    /// }
    /// assert_eq!(command.breaker().unwrap().state(), State::Open);
    /// # Ok(()) }
    /// ```
    pub fn volume(mut self, calls: u64) -> Self {
        self.settings.volume = calls;
        self
    }

    /// At how many per cent of errors among the calls of the last 10 s the breaker opens, above 0 up
    /// to 100; 50 unless set. `None` is without a breaker.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let command = Command::builder("search").error_percent(5.0).build()?;
    /// let refused = Command::builder("search").error_percent(0.0).build().unwrap_err();
    /// assert_eq!(refused.to_string(), "error_percent is 0; allowed are above 0 to 100");
    /// # Ok(()) }
    /// ```
    pub fn error_percent(mut self, percent: impl Into<Option<f64>>) -> Self {
        self.settings.error_percent = percent.into();
        self
    }

    /// How long the breaker stays open before it lets one call probe, from 1 ns; 5 s unless set.
    ///
    /// ```
    /// use std::time::Duration;
    /// use wheelhouse_resilience::{Command, State};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let minute = Duration::from_secs(60);
    /// let command = Command::builder("search").volume(1).sleep_window(minute).build()?;
    /// let _ = command.run(async { Err::<(), _>("refused") }).await;
    /// tokio::time::sleep(minute).await;
    /// assert_eq!(command.breaker().unwrap().state(), State::HalfOpen);
    /// # Ok(()) }
    /// ```
    pub fn sleep_window(mut self, length: Duration) -> Self {
        self.settings.sleep_window = length;
        self
    }

    /// Calls `hook` at every event, on the thread of the call, outside every lock. It may call back.
    /// If it panics it is counted, and the call goes on.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use wheelhouse_resilience::Command;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let logged = log.clone();
    /// let command = Command::builder("search")
    ///     .on_event(move |event| logged.lock().unwrap().push(event.event.name()))
    ///     .build()?;
    /// let _ = command.run(async { Err::<(), _>("refused") }).await;
    /// assert_eq!(*log.lock().unwrap(), ["failure"]);
    /// # Ok(()) }
    /// ```
    pub fn on_event(mut self, hook: impl Fn(&CommandEvent<'_>) + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Sets an option by its name, from text: for configuration files and command lines.
    ///
    /// The options are the methods `timeout`, `max_concurrent`, `fallback_max_concurrent`, `volume`,
    /// `error_percent` and `sleep_window`. Durations have a unit ("10s", "200ms"); a bare number is
    /// refused. "none" stands for `None`.
    ///
    /// ```
    /// use wheelhouse_resilience::Command;
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let command = Command::builder("search").set("timeout", "200ms")?.set("error_percent", "none")?;
    /// assert!(command.build()?.breaker().is_none());
    /// assert_eq!(Command::builder("search").set("timeout", "10").unwrap_err().argument(), "timeout");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError`] when there is no such option, or the text does not say a value of its kind.
    pub fn set(mut self, option: &str, value: &str) -> Result<Self, BuildError> {
        let time = || text::duration(option, value);
        let calls = || text::optional(value, || text::number(option, value, "a whole number"));
        let settings = &mut self.settings;
        match option {
            "timeout" => settings.timeout = text::optional(value, time)?,
            "max_concurrent" => settings.max_concurrent = calls()?,
            "fallback_max_concurrent" => settings.fallback_max_concurrent = calls()?,
            "volume" => settings.volume = text::number(option, value, "a whole number")?,
            "error_percent" => {
                let percent = || text::number(option, value, "a number");
                settings.error_percent = text::optional(value, percent)?;
            }
            "sleep_window" => settings.sleep_window = time()?,
            _ => return Err(BuildError::new("option", option, OPTIONS)),
        }
        Ok(self)
    }

    /// The command.
    ///
    /// # Errors
    ///
    /// [`BuildError`] when an argument is outside its range.
    pub fn build(self) -> Result<Command, BuildError> {
        let CommandBuilder {
            name,
            settings,
            hook,
        } = self;
        let positive = |argument, length: Duration| match length.is_zero() {
            true => Err(BuildError::new(argument, "0ns", "1ns and more")),
            false => Ok(()),
        };
        settings
            .timeout
            .map_or(Ok(()), |timeout| positive("timeout", timeout))?;
        positive("sleep_window", settings.sleep_window)?;
        if settings.volume == 0 {
            return Err(BuildError::new("volume", "0", "1 and more"));
        }
        let breaker = settings
            .error_percent
            .map(|percent| breaker(&name, &settings, percent));
        let places = |name: &str, argument, limit: Option<usize>| {
            let calls = limit.unwrap_or(MAX_PERMITS);
            let places = Bulkhead::builder(calls).name(name).build();
            places.map_err(|_| BuildError::new(argument, calls.to_string(), "0 to 2147483647"))
        };
        let now = TokioClock.now();
        let shared = Shared {
            places: places(&name, "max_concurrent", settings.max_concurrent)?,
            fallbacks: places(
                &format!("{name} fallback"),
                "fallback_max_concurrent",
                settings.fallback_max_concurrent,
            )?,
            breaker: breaker.transpose()?,
            record: Record {
                start: now.into(),
                tally: Tally::new(now).map_err(|error| {
                    BuildError::new("window", error.to_string(), "its constants")
                })?,
                latency: Latency::new()?,
                meters: Meters::new(&name),
                hook,
                hooks: Contained::default(),
                observers: Contained::default(),
            },
            abandoned: Arc::new(Abandoned::default()),
            settings,
            name: name.into_boxed_str(),
        };
        Ok(Command {
            shared: Arc::new(shared),
        })
    }
}

const OPTIONS: &str = "timeout, max_concurrent, fallback_max_concurrent, volume, error_percent and \
    sleep_window";

/// hystrix-go's: opens at the rate, not above it, and looks after every call and not only after errors:
/// a success can be the call that makes the volume, and one that leaves the window raises the rate.
/// After the sleep window one probe at a time, and one success closes.
fn breaker(name: &str, settings: &Settings, percent: f64) -> Result<Breaker, BuildError> {
    if !(percent > 0.0 && percent <= 100.0) {
        let value = percent.to_string();
        return Err(BuildError::new("error_percent", value, "above 0 to 100"));
    }
    // A hair less: a hundredth has no exact binary form, and at seven of a hundred 7 % is to trip.
    let share = percent / 100.0 * (1.0 - 4.0 * f64::EPSILON);
    let errors = ErrorRate::at_least(share)
        .within(WINDOW, WINDOW_BUCKETS)
        .minimum(settings.volume)
        .eager();
    Breaker::builder()
        .name(name)
        .clock(TokioClock)
        .trip_on(errors)
        .cool_down(settings.sleep_window)
        .growth(1.0)
        .jitter(0.0)
        .max_probes(1)
        .probe_interval(Duration::ZERO)
        .lease(settings.sleep_window)
        .closing(Closing::successes(1))
        .ramp(Duration::ZERO)
        .build()
}

impl fmt::Debug for CommandBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
