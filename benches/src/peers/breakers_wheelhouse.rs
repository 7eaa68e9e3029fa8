//! `wheelhouse_…`: our breakers and the throttle.
//!
//! Settings: the presets with their own numbers, on the system's clock; `wheelhouse_count` has those
//! of `recloser`, an error rate of 0.5 over a hundred calls; `wheelhouse_rate_coarse` is
//! `wheelhouse_rate` on a `CoarseClock` that `Timers` refresh every millisecond. Open lasts an hour. A
//! throttle is never quite open of itself, so it is forced to be.

use std::fmt;
use std::marker::PhantomData;
use std::sync::LazyLock;
use std::time::Duration;

use wheelhouse_resilience::{
    Breaker, BreakerBuilder, BuildError, CallError, CoarseClock, Consecutive, Cusum, ErrorRate,
    Timers,
};
use wheelhouse_wheel::SystemClock;

use super::{CallBreaker, Opens};

const HOUR: Duration = Duration::from_secs(3600);
const TICK: Duration = Duration::from_millis(1);

/// The adapter of a kind of breaker.
pub struct Ours<K> {
    breaker: Breaker,
    kind: PhantomData<K>,
}

impl<K> Ours<K> {
    fn of(builder: &BreakerBuilder) -> Self {
        Self::built(builder.clone().cool_down(HOUR).build())
    }

    fn built(breaker: Result<Breaker, BuildError>) -> Self {
        Self {
            breaker: breaker.expect("the settings are in range"),
            kind: PhantomData,
        }
    }

    /// The breaker itself.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }
}

impl<K> fmt::Debug for Ours<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ours").field(&self.breaker).finish()
    }
}

/// The clock of the process, and the timers that refresh it for as long as it runs.
fn coarse_clock() -> CoarseClock {
    static CLOCK: LazyLock<(Timers, CoarseClock)> = LazyLock::new(|| {
        let timers = Timers::new(SystemClock).expect("the system has a thread for the timers");
        let clock = timers.coarse_clock(TICK);
        (timers, clock)
    });
    CLOCK.1.clone()
}

/// How a kind of breaker is made.
pub trait Kind: Sync + Sized {
    /// A new one.
    fn make() -> Ours<Self>;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident => $make:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Kind for $name {
            fn make() -> Ours<Self> {
                $make
            }
        }
    )*};
}

kinds! {
    /// An error rate over 10 s.
    Rate => Ours::of(&Breaker::error_rate());
    /// The same on a coarse clock.
    RateCoarse => Ours::of(&Breaker::error_rate().clock(coarse_clock()));
    /// An error rate over a hundred calls.
    Count => Ours::of(&Breaker::builder().trip_on(ErrorRate::above(0.5).last(100).minimum(100)));
    /// Failures in a row.
    InARow => Ours::of(&Breaker::consecutive().trip_on(Consecutive::failures(6)));
    /// Evidence in the order of the calls.
    Evidence => Ours::of(&Breaker::builder().trip_on(Cusum::new()));
    /// Evidence or an error rate.
    Standard => Ours::of(&Breaker::builder());
    /// The throttle.
    Throttle => Ours::built(Breaker::throttle().build());
}

impl<K: Kind> CallBreaker for Ours<K> {
    fn new() -> Self {
        K::make()
    }

    #[inline]
    fn call(&self, number: u64, fails: bool) -> Option<u64> {
        let work = || if fails { Err(number) } else { Ok(number) };
        match self.breaker.call(work) {
            Ok(number) | Err(CallError::Failed(number)) => Some(number),
            Err(_) => None,
        }
    }

    fn counted(&self) -> Option<(u64, u64)> {
        let stats = self.breaker.stats();
        Some((stats.successes, stats.failures))
    }
}

impl Opens for Ours<Rate> {}
impl Opens for Ours<RateCoarse> {}
impl Opens for Ours<Count> {}
impl Opens for Ours<InARow> {}
impl Opens for Ours<Evidence> {}
impl Opens for Ours<Standard> {}

impl Opens for Ours<Throttle> {
    fn opened() -> Self {
        let throttle = Self::new();
        throttle.breaker.force_open();
        throttle
    }
}
