//! The shipped breakers and throttles on the virtual clock, and how `--set` builds them.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use wheelhouse_resilience::{
    Breaker, BreakerBuilder, BuildError, Closing, Consecutive, Cusum, ErrorRate, Permit,
    ThrottleMode,
};
use wheelhouse_wheel::Clock;

use super::{
    policy::{Admitted, Outcome, Policy},
    settings::Settings,
};

const YEAR: Duration = Duration::from_secs(366 * 86_400);
const ANY_TIME: RangeInclusive<Duration> = Duration::ZERO..=YEAR;
const MOST_BUCKETS: u64 = 4096;
const MOST: u64 = u32::MAX as u64;

/// A shipped breaker and the clock that it reads.
#[derive(Debug)]
pub(super) struct Shipped {
    breaker: Breaker,
    clock: VirtualClock,
}

/// The breaker in its seat: its permits borrow it, which is what a caller's do.
#[derive(Debug)]
pub(super) struct Seat<'a> {
    shipped: &'a Shipped,
}

/// Time as the engine says it.
#[derive(Debug, Clone)]
struct VirtualClock {
    start: Instant,
    nanos: Arc<AtomicU64>,
}

impl VirtualClock {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            nanos: Arc::default(),
        }
    }

    fn set(&self, now: u64) {
        // Relaxed, and in `now`: the engine and the breaker run on one thread.
        self.nanos.store(now, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.start + Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

impl Shipped {
    pub(super) fn seat(&self) -> Seat<'_> {
        Seat { shipped: self }
    }

    /// `Breaker::builder`: evidence in the order of the calls, or an error rate.
    pub(super) fn standard(set: &mut Settings, seed: u64) -> Result<Self, String> {
        let (p0, p1) = (1e-9..=0.999_999, 1e-9..=0.999_999);
        let evidence = Cusum::new()
            .rates(set.number("p0", 0.2, p0)?, set.number("p1", 0.7, p1)?)
            .threshold(set.number("h", 1e9_f64.ln(), 1e-3..=1e6)?);
        let rate = error_rate(set)?;
        let plain = Defaults {
            cool_down: Duration::from_secs(1),
            jitter: 0.1,
            probe_interval: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            successes: 1,
            ramp: Duration::from_millis(500),
        };
        let builder = Breaker::builder().trip_on(evidence).trip_on(rate);
        circuit(builder, set, seed, &plain)
    }

    /// `Breaker::error_rate`.
    pub(super) fn error_rate(set: &mut Settings, seed: u64) -> Result<Self, String> {
        let builder = Breaker::error_rate().trip_on(error_rate(set)?);
        let plain = Defaults {
            cool_down: Duration::from_secs(5),
            jitter: 0.0,
            probe_interval: Duration::from_millis(200),
            lease: Duration::from_secs(10),
            successes: 2,
            ramp: Duration::ZERO,
        };
        circuit(builder, set, seed, &plain)
    }

    /// `Breaker::consecutive`.
    pub(super) fn consecutive(set: &mut Settings, seed: u64) -> Result<Self, String> {
        let failures = small(set, "failures", 6, 1..=65_535)?;
        let interval = set.span("interval", Duration::ZERO, ANY_TIME)?;
        let trip =
            Consecutive::failures(failures).interval((!interval.is_zero()).then_some(interval));
        let plain = Defaults {
            cool_down: Duration::from_secs(60),
            jitter: 0.0,
            probe_interval: Duration::ZERO,
            lease: Duration::from_secs(60),
            successes: 1,
            ramp: Duration::ZERO,
        };
        circuit(Breaker::consecutive().trip_on(trip), set, seed, &plain)
    }

    /// `Breaker::throttle` in one of its modes.
    pub(super) fn throttle(
        mode: ThrottleMode,
        set: &mut Settings,
        seed: u64,
    ) -> Result<Self, String> {
        let (k, protection) = match mode {
            ThrottleMode::Sre => (2.0, 0),
            ThrottleMode::GoZero | ThrottleMode::GoZero2022 => (1.5, 5),
            _ => (2.0, 5),
        };
        let clock = VirtualClock::new();
        let window = set.span("window", Duration::from_secs(10), from_ms(10))?;
        let buckets = small(set, "buckets", 40, 1..=MOST_BUCKETS)?;
        let mut builder = Breaker::throttle()
            .mode(mode)
            .window(window, buckets as usize)
            .k(set.number("k", k, 1.1..=1e6)?)
            .protection(set.whole("protection", protection, 0..=MOST)?)
            .clock(clock.clone())
            .seed(seed);
        if mode == ThrottleMode::Adaptive {
            let interval = set.span("probe-interval", Duration::from_secs(1), from_ms(1))?;
            builder = builder.probe_interval(interval);
        }
        let breaker = builder.build().map_err(refused)?;
        Ok(Self { breaker, clock })
    }
}

impl<'a> Policy for Seat<'a> {
    type Token = Permit<'a>;

    #[inline]
    fn admit(&mut self, now: u64) -> Option<Admitted<Permit<'a>>> {
        self.shipped.clock.set(now);
        let permit = self.shipped.breaker.try_acquire().ok()?;
        Some(Admitted {
            probe: permit.is_probe(),
            token: permit,
        })
    }

    #[inline]
    fn settle(&mut self, permit: Permit<'a>, outcome: Outcome, now: u64) {
        self.shipped.clock.set(now);
        match outcome {
            Outcome::Success => permit.success(),
            Outcome::Failure => permit.failure(),
            Outcome::Cancelled => drop(permit),
        }
    }

    fn transitions(&self) -> u64 {
        self.shipped.breaker.stats().transitions
    }
}

/// What differs between the presets of the circuit.
struct Defaults {
    cool_down: Duration,
    jitter: f64,
    probe_interval: Duration,
    lease: Duration,
    successes: u64,
    ramp: Duration,
}

fn circuit(
    builder: BreakerBuilder,
    set: &mut Settings,
    seed: u64,
    plain: &Defaults,
) -> Result<Shipped, String> {
    let clock = VirtualClock::new();
    let cool_down = set.span("cool-down", plain.cool_down, ANY_TIME)?;
    let cap = cool_down.max(Duration::from_secs(60));
    let mut builder = builder
        .clock(clock.clone())
        .seed(seed)
        .cool_down(cool_down)
        .growth(set.number("growth", 1.0, 1.0..=1000.0)?)
        .max_cool_down(set.span("max-cool-down", cap, ANY_TIME)?)
        .jitter(set.number("jitter", plain.jitter, 0.0..=1.0)?)
        .stable_after(set.span("stable-after", Duration::from_secs(60), ANY_TIME)?)
        .max_probes(small(set, "max-probes", 1, 1..=MOST)?)
        .probe_interval(set.span("probe-interval", plain.probe_interval, ANY_TIME)?)
        .lease(set.span("lease", plain.lease, from_ms(1))?)
        .closing(Closing::successes(small(
            set,
            "closing-successes",
            plain.successes,
            1..=MOST,
        )?))
        .ramp(set.span("ramp", plain.ramp, ANY_TIME)?);
    // 0 is what cannot be built, so it can mean none.
    let in_flight = small(set, "max-in-flight", 0, 0..=MOST)?;
    if in_flight > 0 {
        builder = builder.max_in_flight(in_flight);
    }
    let breaker = builder.build().map_err(refused)?;
    Ok(Shipped { breaker, clock })
}

fn error_rate(set: &mut Settings) -> Result<ErrorRate, String> {
    let window = set.span("window", Duration::from_secs(10), from_ms(1))?;
    let buckets = small(set, "buckets", 40, 1..=MOST_BUCKETS)?;
    Ok(ErrorRate::above(set.number("error-rate", 0.5, 0.0..=1.0)?)
        .within(window, buckets as usize)
        .minimum(set.whole("minimum", 200, 0..=MOST)?))
}

fn small(
    set: &mut Settings,
    key: &'static str,
    default: u64,
    range: RangeInclusive<u64>,
) -> Result<u32, String> {
    let number = set.whole(key, default, range)?;
    u32::try_from(number).map_err(|error| format!("--set: {key}: {error}"))
}

/// A time of at least so many milliseconds.
fn from_ms(least: u64) -> RangeInclusive<Duration> {
    Duration::from_millis(least)..=YEAR
}

/// What only the breaker itself can know to be wrong, such as two values that do not go together.
#[expect(
    clippy::needless_pass_by_value,
    reason = "it is what `map_err` hands over"
)]
fn refused(error: BuildError) -> String {
    format!("--set: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::breaker::{engine, rate::Rate, scenario::Scenario};

    /// With nothing set a policy is what its builder builds.
    #[test]
    fn what_is_not_set_is_as_the_breaker_has_it() {
        let no_settings = || Settings::new(&[]).expect("nothing is wrong with nothing");
        let clock = VirtualClock::new;
        let circuit = |builder: BreakerBuilder, clock: &VirtualClock| {
            builder.clock(clock.clone()).seed(1).build()
        };
        let throttle = |mode, clock: &VirtualClock| {
            let builder = Breaker::throttle().mode(mode);
            builder.clock(clock.clone()).seed(1).build()
        };
        type Build = Box<dyn Fn(&VirtualClock) -> Result<Breaker, BuildError>>;
        let pairs: Vec<(Result<Shipped, String>, Build)> = vec![
            (
                Shipped::standard(&mut no_settings(), 1),
                Box::new(move |clock| circuit(Breaker::builder(), clock)),
            ),
            (
                Shipped::error_rate(&mut no_settings(), 1),
                Box::new(move |clock| circuit(Breaker::error_rate(), clock)),
            ),
            (
                Shipped::consecutive(&mut no_settings(), 1),
                Box::new(move |clock| circuit(Breaker::consecutive(), clock)),
            ),
            (
                Shipped::throttle(ThrottleMode::Sre, &mut no_settings(), 1),
                Box::new(move |clock| throttle(ThrottleMode::Sre, clock)),
            ),
            (
                Shipped::throttle(ThrottleMode::GoZero, &mut no_settings(), 1),
                Box::new(move |clock| throttle(ThrottleMode::GoZero, clock)),
            ),
            (
                Shipped::throttle(ThrottleMode::GoZero2022, &mut no_settings(), 1),
                Box::new(move |clock| throttle(ThrottleMode::GoZero2022, clock)),
            ),
            (
                Shipped::throttle(ThrottleMode::Adaptive, &mut no_settings(), 1),
                Box::new(move |clock| throttle(ThrottleMode::Adaptive, clock)),
            ),
        ];
        for (number, (shipped, plain)) in pairs.into_iter().enumerate() {
            let shipped = shipped.expect("its own defaults are in range");
            let clock = clock();
            let breaker = plain(&clock).expect("a preset builds");
            let plain = Shipped { breaker, clock };
            for name in ["flapping", "brownout", "hang"] {
                let scenario = Scenario::load(name, Rate::of(200)).expect("a known name");
                let figures = |shipped: &Shipped| engine::run(shipped.seat(), &scenario, 1, None);
                assert_eq!(figures(&shipped), figures(&plain), "{number} in {name}");
            }
        }
    }
}
