//! A command as the Hystrix dashboard reads it.
//!
//! The keys, and which of them are required, are those that `hystrixCommand.js` of Netflix's dashboard
//! asserts; what stands for what follows `eventstream.go` of hystrix-go, but for two things: `errorCount`
//! has no rejections and short circuits, and `errorPercentage` is of the calls that ran.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Serialize, Serializer, ser::SerializeMap};
use wheelhouse_wheel::{Clock, TokioClock};

use crate::State;

use super::event::{Event, WINDOW};
use super::{LatencySummary, Shared};

impl Shared {
    pub(super) fn snapshot_json(&self) -> String {
        serde_json::to_string(&self.snapshot()).expect("every value has a form in JSON")
    }

    fn snapshot(&self) -> Snapshot<'_> {
        let settings = &self.settings;
        let stats = self.stats();
        let count = |event| stats.rolling.of(event);
        let state = self.breaker.as_ref().map(|breaker| breaker.state());
        let since_epoch = TokioClock.system_now().duration_since(UNIX_EPOCH);
        Snapshot {
            kind: "HystrixCommand",
            name: &self.name,
            group: &self.name,
            current_time: millis(since_epoch.unwrap_or_default()),
            reporting_hosts: 1,
            request_count: stats.rolling.requests(),
            error_count: stats.rolling.errors(),
            error_percentage: stats.rolling.error_percent().round() as u64,
            is_circuit_breaker_open: matches!(
                state,
                Some(State::Open | State::HalfOpen | State::ForcedOpen)
            ),
            rolling_count_success: count(Event::Success),
            rolling_count_failure: count(Event::Failure),
            rolling_count_timeout: count(Event::Timeout),
            rolling_count_thread_pool_rejected: count(Event::Rejected),
            rolling_count_short_circuited: count(Event::ShortCircuit),
            rolling_count_fallback_success: count(Event::FallbackSuccess),
            rolling_count_fallback_failure: count(Event::FallbackFailure),
            rolling_count_fallback_rejection: count(Event::FallbackRejected),
            rolling_count_semaphore_rejected: 0,
            rolling_count_bad_requests: 0,
            rolling_count_collapsed_requests: 0,
            rolling_count_exceptions_thrown: 0,
            rolling_count_responses_from_cache: 0,
            rolling_count_cancelled: count(Event::Cancelled),
            rolling_count_deadline_exceeded: count(Event::DeadlineExceeded),
            current_concurrent_execution_count: stats.in_flight,
            latency_execute_mean: millis(stats.execution.mean),
            latency_execute: Latencies(stats.execution),
            latency_total_mean: millis(stats.total.mean),
            latency_total: Latencies(stats.total),
            circuit_breaker_request_volume_threshold: settings.volume,
            circuit_breaker_sleep_window: millis(settings.sleep_window),
            circuit_breaker_error_threshold: settings.error_percent.unwrap_or(100.0),
            circuit_breaker_force_open: state == Some(State::ForcedOpen),
            circuit_breaker_force_closed: state == Some(State::ForcedClosed),
            circuit_breaker_enabled: state.is_some_and(|state| state != State::Disabled),
            isolation_strategy: "THREAD",
            isolation_thread_timeout: settings.timeout.map_or(0, millis),
            isolation_thread_interrupt_on_timeout: true,
            isolation_thread_pool_key_override: "",
            isolation_max_concurrent: self.places.permits(),
            fallback_max_concurrent: self.fallbacks.permits(),
            rolling_window: millis(WINDOW),
            request_cache_enabled: false,
            request_log_enabled: false,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Snapshot<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    group: &'a str,
    current_time: u64,
    reporting_hosts: u32,
    request_count: u64,
    error_count: u64,
    error_percentage: u64,
    is_circuit_breaker_open: bool,
    rolling_count_success: u64,
    rolling_count_failure: u64,
    rolling_count_timeout: u64,
    rolling_count_thread_pool_rejected: u64,
    rolling_count_short_circuited: u64,
    rolling_count_fallback_success: u64,
    rolling_count_fallback_failure: u64,
    rolling_count_fallback_rejection: u64,
    rolling_count_semaphore_rejected: u64,
    rolling_count_bad_requests: u64,
    rolling_count_collapsed_requests: u64,
    rolling_count_exceptions_thrown: u64,
    rolling_count_responses_from_cache: u64,
    /// These two are not Hystrix's: its dashboard ignores them.
    rolling_count_cancelled: u64,
    rolling_count_deadline_exceeded: u64,
    current_concurrent_execution_count: usize,
    #[serde(rename = "latencyExecute_mean")]
    latency_execute_mean: u64,
    latency_execute: Latencies,
    #[serde(rename = "latencyTotal_mean")]
    latency_total_mean: u64,
    latency_total: Latencies,
    #[serde(rename = "propertyValue_circuitBreakerRequestVolumeThreshold")]
    circuit_breaker_request_volume_threshold: u64,
    #[serde(rename = "propertyValue_circuitBreakerSleepWindowInMilliseconds")]
    circuit_breaker_sleep_window: u64,
    #[serde(rename = "propertyValue_circuitBreakerErrorThresholdPercentage")]
    circuit_breaker_error_threshold: f64,
    #[serde(rename = "propertyValue_circuitBreakerForceOpen")]
    circuit_breaker_force_open: bool,
    #[serde(rename = "propertyValue_circuitBreakerForceClosed")]
    circuit_breaker_force_closed: bool,
    #[serde(rename = "propertyValue_circuitBreakerEnabled")]
    circuit_breaker_enabled: bool,
    #[serde(rename = "propertyValue_executionIsolationStrategy")]
    isolation_strategy: &'static str,
    #[serde(rename = "propertyValue_executionIsolationThreadTimeoutInMilliseconds")]
    isolation_thread_timeout: u64,
    #[serde(rename = "propertyValue_executionIsolationThreadInterruptOnTimeout")]
    isolation_thread_interrupt_on_timeout: bool,
    #[serde(rename = "propertyValue_executionIsolationThreadPoolKeyOverride")]
    isolation_thread_pool_key_override: &'static str,
    #[serde(rename = "propertyValue_executionIsolationSemaphoreMaxConcurrentRequests")]
    isolation_max_concurrent: usize,
    #[serde(rename = "propertyValue_fallbackIsolationSemaphoreMaxConcurrentRequests")]
    fallback_max_concurrent: usize,
    #[serde(rename = "propertyValue_metricsRollingStatisticalWindowInMilliseconds")]
    rolling_window: u64,
    #[serde(rename = "propertyValue_requestCacheEnabled")]
    request_cache_enabled: bool,
    #[serde(rename = "propertyValue_requestLogEnabled")]
    request_log_enabled: bool,
}

/// In milliseconds, by per cent.
struct Latencies(LatencySummary);

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(LatencySummary::PERCENTS.len()))?;
        for (percent, time) in LatencySummary::PERCENTS.iter().zip(self.0.percentiles) {
            map.serialize_entry(&percent.to_string(), &millis(time))?;
        }
        map.end()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
