//! The policies by name, and how `--set` builds them.

use std::{ops::RangeInclusive, time::Duration};

use wheelhouse_resilience::ThrottleMode;

use super::{
    engine,
    models::{
        failsafe::{self, Failsafe},
        go_zero::{self, GoZero},
        gobreaker::{self, Gobreaker},
        hystrix::{self, Hystrix},
        polly::{self, Polly},
        recloser::{self, Recloser},
        resilience4j::{self, Resilience4j},
    },
    scenario::Scenario,
    series::Series,
    settings::Settings,
    shipped::Shipped,
    tally::Figures,
};

const YEAR: Duration = Duration::from_secs(366 * 86_400);
const MOST_BUCKETS: u64 = 10_000;
const MOST_CALLS: u64 = 1_000_000;
const SHARE: RangeInclusive<f64> = 0.0..=1.0;

/// The names, ours first.
pub(super) const NAMES: [&str; 14] = [
    "default",
    "error-rate",
    "consecutive",
    "throttle-sre",
    "throttle-go-zero-2022",
    "throttle-go-zero",
    "adaptive",
    "model-go-zero",
    "model-gobreaker",
    "model-hystrix",
    "model-resilience4j",
    "model-polly",
    "model-failsafe-rs",
    "model-recloser",
];

/// A policy that was built.
#[derive(Debug)]
pub(super) enum Chosen {
    Shipped(Shipped),
    GoZero(GoZero),
    Gobreaker(Gobreaker),
    Hystrix(Hystrix),
    Resilience4j(Resilience4j),
    Polly(Polly),
    Failsafe(Failsafe),
    Recloser(Recloser),
}

impl Chosen {
    /// Builds the policy of that name.
    ///
    /// # Errors
    ///
    /// Names what is unknown or out of range.
    pub(super) fn build(name: &str, set: &mut Settings, seed: u64) -> Result<Self, String> {
        set.begin(name);
        let throttle = |mode, set: &mut Settings| Shipped::throttle(mode, set, seed);
        match name {
            "default" => Shipped::standard(set, seed).map(Self::Shipped),
            "error-rate" => Shipped::error_rate(set, seed).map(Self::Shipped),
            "consecutive" => Shipped::consecutive(set, seed).map(Self::Shipped),
            "throttle-sre" => throttle(ThrottleMode::Sre, set).map(Self::Shipped),
            "throttle-go-zero-2022" => throttle(ThrottleMode::GoZero2022, set).map(Self::Shipped),
            "throttle-go-zero" => throttle(ThrottleMode::GoZero, set).map(Self::Shipped),
            "adaptive" => throttle(ThrottleMode::Adaptive, set).map(Self::Shipped),
            "model-go-zero" => go_zero(set).map(|set| Self::GoZero(GoZero::new(set, seed))),
            "model-gobreaker" => gobreaker(set).map(|set| Self::Gobreaker(Gobreaker::new(set))),
            "model-hystrix" => hystrix(set).map(|set| Self::Hystrix(Hystrix::new(set))),
            "model-resilience4j" => {
                resilience4j(set).map(|set| Self::Resilience4j(Resilience4j::new(set)))
            }
            "model-polly" => polly(set).map(|set| Self::Polly(Polly::new(set))),
            "model-failsafe-rs" => {
                failsafe(set).map(|set| Self::Failsafe(Failsafe::new(set, seed)))
            }
            "model-recloser" => recloser(set).map(|set| Self::Recloser(Recloser::new(set))),
            _ => Err(format!(
                "{name:?} is not a policy; there are {}",
                NAMES.join(", ")
            )),
        }
    }

    /// Drives it through the scenario.
    pub(super) fn run(
        self,
        scenario: &Scenario,
        seed: u64,
        series: Option<&mut Series>,
    ) -> Figures {
        match self {
            Self::Shipped(policy) => engine::run(policy.seat(), scenario, seed, series),
            Self::GoZero(policy) => engine::run(policy, scenario, seed, series),
            Self::Gobreaker(policy) => engine::run(policy, scenario, seed, series),
            Self::Hystrix(policy) => engine::run(policy, scenario, seed, series),
            Self::Resilience4j(policy) => engine::run(policy, scenario, seed, series),
            Self::Polly(policy) => engine::run(policy, scenario, seed, series),
            Self::Failsafe(policy) => engine::run(policy, scenario, seed, series),
            Self::Recloser(policy) => engine::run(policy, scenario, seed, series),
        }
    }
}

/// A time that may be nothing.
fn any_time() -> RangeInclusive<Duration> {
    Duration::ZERO..=YEAR
}

/// A time of at least so many milliseconds.
fn from_ms(least: u64) -> RangeInclusive<Duration> {
    Duration::from_millis(least)..=YEAR
}

/// A number of calls that fits the memory.
fn calls(set: &mut Settings, key: &'static str, default: usize) -> Result<usize, String> {
    let calls = set.whole(key, default as u64, 1..=MOST_CALLS)?;
    usize::try_from(calls).map_err(|error| format!("--set: {key}: {error}"))
}

/// A count in 32 bits.
fn count(set: &mut Settings, key: &'static str, default: u32) -> Result<u32, String> {
    let count = set.whole(key, default.into(), 0..=u32::MAX.into())?;
    u32::try_from(count).map_err(|error| format!("--set: {key}: {error}"))
}

fn go_zero(set: &mut Settings) -> Result<go_zero::Settings, String> {
    let plain = go_zero::Settings::default();
    let buckets = set.whole("buckets", plain.buckets as u64, 1..=MOST_BUCKETS)?;
    Ok(go_zero::Settings {
        window: set.nanos("window", plain.window, from_ms(10))?,
        buckets: usize::try_from(buckets).unwrap_or(plain.buckets),
        k: set.number("k", plain.k, 1.0..=1000.0)?,
        min_k: set.number("min-k", plain.min_k, 1.0..=1000.0)?,
        protection: set.whole("protection", plain.protection, 0..=MOST_CALLS)?,
        force_pass: set.nanos("force-pass", plain.force_pass, any_time())?,
    })
}

fn gobreaker(set: &mut Settings) -> Result<gobreaker::Settings, String> {
    let plain = gobreaker::Settings::default();
    Ok(gobreaker::Settings {
        max_requests: count(set, "max-requests", plain.max_requests)?.max(1),
        interval: set.nanos("interval", plain.interval, any_time())?,
        timeout: set.nanos("timeout", plain.timeout, from_ms(1))?,
        tolerated: count(set, "tolerated", plain.tolerated)?,
    })
}

fn hystrix(set: &mut Settings) -> Result<hystrix::Settings, String> {
    let plain = hystrix::Settings::default();
    Ok(hystrix::Settings {
        max_concurrent: set.whole("max-concurrent", plain.max_concurrent, 1..=MOST_CALLS)?,
        volume: set.whole("volume", plain.volume, 0..=u64::from(u32::MAX))?,
        sleep: set.nanos("sleep", plain.sleep, any_time())?,
        error_percent: set.whole("error-percent", plain.error_percent, 0..=101)?,
    })
}

fn resilience4j(set: &mut Settings) -> Result<resilience4j::Settings, String> {
    let plain = resilience4j::Settings::default();
    Ok(resilience4j::Settings {
        failure_rate: set.number("failure-rate", plain.failure_rate, SHARE)?,
        window: calls(set, "window", plain.window)?,
        minimum: calls(set, "minimum", plain.minimum)?,
        wait: set.nanos("wait", plain.wait, from_ms(1))?,
        permitted: calls(set, "permitted", plain.permitted)?,
    })
}

fn polly(set: &mut Settings) -> Result<polly::Settings, String> {
    let plain = polly::Settings::default();
    Ok(polly::Settings {
        failure_ratio: set.number("failure-ratio", plain.failure_ratio, SHARE)?,
        minimum_throughput: set.whole(
            "minimum-throughput",
            plain.minimum_throughput,
            2..=u64::from(u32::MAX),
        )?,
        sampling: set.nanos("sampling", plain.sampling, from_ms(500))?,
        break_duration: set.nanos("break-duration", plain.break_duration, from_ms(500))?,
    })
}

fn failsafe(set: &mut Settings) -> Result<failsafe::Settings, String> {
    let plain = failsafe::Settings::default();
    let minimum = count(set, "minimum", u32::try_from(plain.minimum).unwrap_or(0))?;
    Ok(failsafe::Settings {
        success_rate: set.number("success-rate", plain.success_rate, SHARE)?,
        minimum: minimum.into(),
        window: set.nanos("window", plain.window, from_ms(5000))?,
        consecutive: count(set, "consecutive", plain.consecutive)?,
        backoff: set.nanos("backoff", plain.backoff, from_ms(1000))?,
        backoff_max: set.nanos("backoff-max", plain.backoff_max, from_ms(1000))?,
        jitter: set.flag("jitter", plain.jitter)?,
    })
}

fn recloser(set: &mut Settings) -> Result<recloser::Settings, String> {
    let plain = recloser::Settings::default();
    Ok(recloser::Settings {
        error_rate: set.number("error-rate", plain.error_rate, SHARE)?,
        closed_len: calls(set, "closed-len", plain.closed_len)?,
        half_open_len: calls(set, "half-open-len", plain.half_open_len)?,
        open_wait: set.nanos("open-wait", plain.open_wait, any_time())?,
    })
}
