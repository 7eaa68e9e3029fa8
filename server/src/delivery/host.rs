//! Who may be called now: a breaker and a bulkhead for each origin; and slots for those who may not.
//!
//! # Slots
//!
//! What is put off comes again in a slot of its own. Slots of an origin lie as far apart as its calls
//! take, divided by how many may run at once: by Little's law it can serve as many, so that it neither
//! idles while tasks wait nor do a million tasks come again at one instant. None is more than a minute
//! away; those that would be are spread over the second half of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wheelhouse_cache::Cache;
use wheelhouse_resilience::{
    Breaker, BreakerStats, Bulkhead, OwnedPermit, Reason, Registry, Rejected, bulkhead,
};

use super::{BuildError, IDLE, ORIGINS};
use crate::engine::Hold;

/// How far apart slots are.
const SHORTEST: Duration = Duration::from_micros(200);
const LONGEST: Duration = Duration::from_millis(20);
/// How far away a slot is at most.
const FURTHEST: Duration = Duration::from_secs(60);
/// How long a breaker is left alone that cannot say when to come again.
const UNKNOWN: Duration = Duration::from_secs(1);
/// The weight of the last call in the mean of how long calls take.
const WEIGHT: f64 = 0.1;

pub(super) struct Hosts {
    breakers: Registry,
    hosts: Cache<Arc<str>, Arc<Host>>,
    per_origin: usize,
}

/// One origin.
pub(super) struct Host {
    bulkhead: Bulkhead,
    slots: Mutex<Slots>,
}

struct Slots {
    last: Instant,
    /// How long calls take in the mean, in seconds.
    mean: f64,
}

/// The leave to call an origin once.
pub(super) struct Leave {
    host: Arc<Host>,
    permit: OwnedPermit,
    _place: bulkhead::OwnedPermit,
}

impl Hosts {
    pub(super) fn new(per_origin: usize) -> Result<Self, BuildError> {
        let breakers = Registry::builder()
            .default_breaker(Breaker::builder())
            .max_names(ORIGINS)
            .idle(IDLE)
            .build()?;
        let hosts = Cache::builder()
            .name("origins")
            .capacity(ORIGINS as u64)
            .time_to_idle(IDLE)
            .build()?;
        Ok(Hosts {
            breakers,
            hosts,
            per_origin,
        })
    }

    pub(super) fn admit(&self, origin: &Arc<str>) -> Result<Leave, Hold> {
        let made = self.hosts.take(Arc::clone(origin), |_| {
            Arc::new(Host {
                // It waits for nobody: whoever finds it full gets a slot.
                bulkhead: Bulkhead::new(self.per_origin),
                slots: Mutex::new(Slots {
                    last: Instant::now(),
                    mean: 0.0,
                }),
            })
        });
        // Making one neither fails nor asks for itself.
        let host = made.map_err(|_| Hold { wait: UNKNOWN })?;
        let Ok(place) = host.bulkhead.try_acquire_owned() else {
            return Err(host.hold(Duration::ZERO, self.per_origin));
        };
        match self.breakers.get(origin).try_acquire_owned() {
            Ok(permit) => Ok(Leave {
                host,
                permit,
                _place: place,
            }),
            Err(rejected) => Err(host.hold(rest(&rejected), self.per_origin)),
        }
    }

    pub(super) fn breakers(&self) -> Vec<(Arc<str>, BreakerStats)> {
        self.breakers.all()
    }
}

/// How long there is no use in asking again. While a probe is under way the breaker knows only when it
/// is given up, which may be long after it has succeeded.
fn rest(rejected: &Rejected) -> Duration {
    match (rejected.reason(), rejected.retry_after()) {
        // The next may be let through.
        (Reason::Ramp, _) => Duration::ZERO,
        (Reason::Open | Reason::ProbeInterval, Some(rest)) => rest,
        (_, rest) => rest.map_or(UNKNOWN, |rest| rest.min(UNKNOWN)),
    }
}

impl Host {
    fn hold(&self, from: Duration, per_origin: usize) -> Hold {
        let wait = self.slots.lock().next(Instant::now(), from, per_origin);
        Hold { wait }
    }
}

impl Slots {
    /// The next slot that is at `from` or later: how long until then.
    fn next(&mut self, now: Instant, from: Duration, per_origin: usize) -> Duration {
        // A limit of calls is at most 65 536.
        #[expect(clippy::cast_precision_loss, reason = "it is small")]
        let apart = Duration::try_from_secs_f64(self.mean / per_origin as f64);
        let apart = apart.unwrap_or(LONGEST).clamp(SHORTEST, LONGEST);
        let slot = self.last.max(now + from.min(FURTHEST)) + apart;
        let wait = slot.saturating_duration_since(now);
        if wait > FURTHEST {
            return FURTHEST.mul_f64(0.5 + fastrand::f64() / 2.0);
        }
        self.last = slot;
        wait
    }

    fn took(&mut self, time: Duration) {
        self.mean += WEIGHT * (time.as_secs_f64() - self.mean);
    }
}

impl Leave {
    /// The permit to settle once the call has ended; the place stays with the leave.
    pub(super) fn begin(self) -> Started {
        Started {
            permit: Some(self.permit),
            host: self.host,
            begun: Instant::now(),
            _place: self._place,
        }
    }
}

/// A call under way. Dropped before it is settled, it has taken too long, which is a failure.
pub(super) struct Started {
    host: Arc<Host>,
    permit: Option<OwnedPermit>,
    begun: Instant,
    _place: bulkhead::OwnedPermit,
}

impl Started {
    pub(super) fn settle(mut self, settle: impl FnOnce(OwnedPermit)) {
        if let Some(permit) = self.permit.take() {
            settle(permit);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.host.slots.lock().took(self.begun.elapsed());
        if let Some(permit) = self.permit.take() {
            permit.failure();
        }
    }
}

#[cfg(test)]
mod tests {
    use wheelhouse_wheel::ManualClock;

    use super::*;

    /// Else one task that comes during a probe puts off all of its origin for as long as a probe may
    /// take, though the probe succeeds at once.
    #[test]
    fn a_probe_under_way_puts_off_no_longer_than_a_second() {
        let clock = ManualClock::new();
        let breaker = Breaker::builder().clock(clock.clone()).build().unwrap();
        while let Ok(permit) = breaker.try_acquire() {
            permit.failure();
        }
        let refused = || breaker.try_acquire().unwrap_err();
        let open = refused();
        assert_eq!(open.reason(), Reason::Open);
        assert_eq!(rest(&open), open.retry_after().unwrap());
        clock.advance(rest(&open));
        let probe = breaker.try_acquire().unwrap();
        let full = refused();
        assert_eq!(full.reason(), Reason::HalfOpenFull);
        assert!(full.retry_after().unwrap() > UNKNOWN, "{full:?}");
        assert_eq!(rest(&full), UNKNOWN);
        probe.success();
        let mut calls = (0..1_000).map(|_| breaker.try_acquire().map(|call| call.ignored()));
        let ramp = calls.find_map(Result::err).expect("it refuses some");
        assert_eq!(ramp.reason(), Reason::Ramp);
        assert_eq!(rest(&ramp), Duration::ZERO);
    }

    #[test]
    fn slots_follow_each_other_and_are_never_far() {
        let now = Instant::now();
        let mut slots = Slots {
            last: now,
            mean: 0.0,
        };
        assert_eq!(slots.next(now, Duration::ZERO, 64), SHORTEST);
        assert_eq!(slots.next(now, Duration::ZERO, 64), 2 * SHORTEST);
        let second = Duration::from_secs(1);
        assert_eq!(slots.next(now, second, 64), second + SHORTEST);
        // A call of ten seconds, a hundred times: the mean is near, and a slot is the longest.
        for _ in 0..100 {
            slots.took(10 * second);
        }
        let before = slots.next(now, Duration::ZERO, 64);
        assert_eq!(slots.next(now, Duration::ZERO, 64), before + LONGEST);
        for _ in 0..10_000 {
            let wait = slots.next(now, second, 64);
            assert!(wait >= second && wait <= FURTHEST, "{wait:?}");
        }
    }
}
