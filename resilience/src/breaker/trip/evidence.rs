//! Evidence that goes up with a failure and down with a success: consecutive failures, and Cusum.
//!
//! Consecutive failures are evidence that a success takes away as a whole.
//!
//! # Ground rules
//!
//! - A success adds 1 to the word of its lane and does nothing else.
//! - A failure brings its lane's own evidence up to date: what it was at the lane's last failure, less
//!   the lane's successes since, and one failure more.
//! - When that reaches the look, it weighs, under the lock of [`Watch`]: it reads the counters of all
//!   lanes and moves the common evidence on by what has happened since the last weighing.
//!
//! # Invariants
//!
//! Let the truth be the evidence of all outcomes in the order in which they ended.
//!
//! - I1: the common evidence is never more than the truth. It moves on by all failures and successes
//!   since the last weighing, as if floors did not matter, which gives at most the truth; or it begins
//!   anew from a lower bound: the failure that weighs; or the lane's own evidence, if the last weighing
//!   was of the same lane, which made the two equal, and no other lane has had a success since.
//!   So nothing trips on failures that a success has outweighed.
//! - I2: on one lane it is the truth: a weighing makes it the lane's evidence, which is exact.
//! - I3: with several lanes it lacks at most what each had below the look before the first weighing,
//!   so a trip comes at most `lanes × (look − 1)` failures late.
//!
//! # Races considered
//!
//! - A success ends while somebody weighs: it is read now or at the next weighing. The failure that
//!   weighs may have ended before or after it.
//! - A success and a failure of one thread end while somebody weighs: the weighing has both, or neither,
//!   or the one that was first. It reads until no failure has been counted between.
//! - Two threads of a lane fail at the same time: each takes away the successes since the `at` that it
//!   found; if the other moves it meanwhile they are taken away twice, which errs on the side of I1.
//! - A reset while a thread fails: the failure may survive it, as if it had ended a moment later.

use std::time::Duration;

use wheelhouse_collection::Striped;

use crate::breaker::tally::{Carrier, Lane};
use crate::clock::{NEVER, nanos};
use crate::sync::{AtomicU64, Mutex, Ordering, fence};

/// The places of a carrier's lanes.
const PLACES: usize = Striped::<()>::COUNT;

/// The unit of Cusum is the threshold divided by this.
const UNITS: f64 = 32_768.0;

/// What outcomes weigh.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    up: u16,
    down: u16,
    trip: u16,
    /// A lane weighs when it has this much of its own.
    look: u16,
    /// Of [`Consecutive`](super::Consecutive), or [`NEVER`].
    pub(crate) interval: u64,
}

impl Weights {
    pub(super) fn consecutive(failures: u16, interval: Option<Duration>) -> Self {
        Weights {
            up: 1,
            down: failures,
            trip: failures,
            look: failures.div_ceil(PLACES as u16),
            interval: interval.map_or(NEVER, nanos),
        }
    }

    pub(super) fn cusum(normal: f64, bad: f64, threshold: f64) -> Self {
        let units = |evidence: f64| (evidence / threshold * UNITS).round().clamp(1.0, UNITS) as u16;
        let up = units((bad / normal).ln());
        Weights {
            up,
            down: units(((1.0 - normal) / (1.0 - bad)).ln()),
            trip: UNITS as u16,
            look: (UNITS as u16 / PLACES as u16).min(up.saturating_mul(3)),
            interval: NEVER,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.down < self.trip {
            true => "cusum",
            false => "consecutive failures",
        }
    }

    /// The evidence after a failure that `successes` came before.
    #[inline]
    pub(crate) fn after_failure(&self, before: u16, successes: u64) -> u16 {
        let down = successes.saturating_mul(u64::from(self.down));
        let before = u64::from(before).saturating_sub(down) as u16;
        before.saturating_add(self.up)
    }
}

/// The common evidence of one policy.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) weights: Weights,
    /// The number of the interval that the evidence is from.
    epoch: AtomicU64,
    watch: Mutex<Watch>,
}

/// As of the last weighing. Of counters the low halves, which is enough to tell how far they moved.
#[derive(Debug, Default)]
struct Watch {
    evidence: u16,
    /// Whose it was; `None` when nobody has weighed since a reset.
    by: Option<u8>,
    failures: u32,
    successes: [u32; PLACES],
}

impl Evidence {
    pub(crate) fn new(weights: Weights) -> Self {
        Evidence {
            weights,
            epoch: AtomicU64::new(0),
            watch: Mutex::new(Watch::default()),
        }
    }

    /// Takes note of a failure of this lane, and says whether it trips, and which failure of the lane
    /// it is.
    #[inline]
    pub(crate) fn failed(&self, carrier: &Carrier, place: usize, lane: &Lane) -> (bool, u64) {
        let (own, failures) = carrier.fail(lane, &self.weights);
        let trips = own >= self.weights.look && self.weigh(carrier, place, lane, own);
        (trips, failures)
    }

    #[inline(never)]
    fn weigh(&self, carrier: &Carrier, place: usize, lane: &Lane, own: u16) -> bool {
        let mut watch = self.watch.lock();
        let now = count(carrier);
        let mut successes = 0_u64;
        let mut others = false;
        for (at, (new, old)) in now.successes.iter().zip(&watch.successes).enumerate() {
            let more = new.wrapping_sub(*old);
            successes += u64::from(more);
            others |= at != place && more > 0;
        }
        let failures = u64::from(now.failures.wrapping_sub(watch.failures));
        let weights = &self.weights;
        let moved = u64::from(watch.evidence)
            .saturating_add(failures.saturating_mul(u64::from(weights.up)))
            .saturating_sub(successes.saturating_mul(u64::from(weights.down)));
        let same = watch.by.is_none_or(|by| usize::from(by) == place);
        let anew = if same && !others { own } else { weights.up };
        let evidence = moved.max(u64::from(anew)).min(u64::from(u16::MAX)) as u16;
        *watch = Watch {
            evidence,
            by: Some(place as u8),
            ..now
        };
        lane.set_evidence(own, evidence);
        evidence >= weights.trip
    }

    /// Forgets all evidence.
    pub(crate) fn reset(&self, carrier: &Carrier) {
        let mut watch = self.watch.lock();
        carrier.each(Lane::clear_evidence);
        *watch = count(carrier);
    }

    /// Forgets the evidence of an earlier interval.
    pub(crate) fn renew(&self, carrier: &Carrier, now: u64) {
        let epoch = now / self.weights.interval;
        // Relaxed, both: who comes first in an interval resets, and that takes a lock.
        let old = self.epoch.load(Ordering::Relaxed);
        if epoch > old
            && self
                .epoch
                .compare_exchange(old, epoch, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.reset(carrier);
        }
    }
}

/// What there is, as a new watch without evidence: of one moment, as far as failures go. They are read
/// before the successes and after them, and once more for each that is counted meanwhile. Otherwise a
/// failure would be taken for later than a success that has outweighed it, or the other way round.
fn count(carrier: &Carrier) -> Watch {
    let mut failures = all_failures(carrier);
    loop {
        let mut watch = Watch::default();
        let mut place = 0;
        carrier.each_counted(|_, successes| {
            watch.successes[place] = successes as u32;
            place += 1;
        });
        // Acquire: with the Release of a success that was read above. A failure of before it is seen
        // below.
        fence(Ordering::Acquire);
        watch.failures = all_failures(carrier);
        if watch.failures == failures {
            return watch;
        }
        failures = watch.failures;
    }
}

/// The low half of the sum.
fn all_failures(carrier: &Carrier) -> u32 {
    let mut failures = 0_u32;
    carrier.each(|lane| failures = failures.wrapping_add(lane.failures() as u32));
    failures
}
