//! What the default breaker does in an outage, and what it does not do without one.

use std::time::Duration;

use wheelhouse_resilience::{Breaker, State};
use wheelhouse_wheel::ManualClock;

const SECOND: u64 = 1_000_000_000;

/// Calls that end at once, evenly; what `fails` says of the time since the start fails.
fn play(
    seed: u64,
    rps: u64,
    seconds: u64,
    mut fails: impl FnMut(u64) -> bool,
    mut seen: impl FnMut(u64, bool, bool),
) -> Breaker {
    let clock = ManualClock::new();
    let breaker = Breaker::builder()
        .clock(clock.clone())
        .seed(seed)
        .build()
        .unwrap();
    for call in 0..rps * seconds {
        let now = call * SECOND / rps;
        let failed = fails(now);
        let admitted = match breaker.try_acquire() {
            Ok(permit) if failed => {
                permit.failure();
                true
            }
            Ok(permit) => {
                permit.success();
                true
            }
            Err(_) => false,
        };
        seen(now, admitted, failed);
        clock.advance(Duration::from_nanos(SECOND / rps));
    }
    breaker
}

#[test]
fn outage_after_a_long_time_is_cut_off_soon_and_over_soon() {
    // Fewer seconds where there are more calls in each.
    for (rps, well_for) in [(10, 3600), (100, 3600), (1000, 300), (10_000, 30)] {
        let (from, to) = (well_for * SECOND, (well_for + 30) * SECOND);
        for seed in 1..=5 {
            let mut tripped = false;
            let (mut before, mut bad, mut rejected_well) = (0, 0, 0);
            let mut last_rejection = 0;
            let sick = |now| (from..to).contains(&now);
            play(seed, rps, well_for + 60, sick, |now, admitted, failed| {
                if failed && admitted {
                    bad += 1;
                    before += u64::from(!tripped);
                }
                if !admitted {
                    tripped = true;
                    assert!(now >= from, "rejected in health");
                    if now >= to {
                        rejected_well += 1;
                        last_rejection = now;
                    }
                }
            });
            assert!(before <= 20, "{before} before the trip at {rps}");
            assert!(bad <= 20 + 30, "{bad} failed at {rps}");
            let well = last_rejection.saturating_sub(to);
            assert!(well <= 2 * SECOND, "{well} ns to heal at {rps}");
            assert!(
                rejected_well <= rps * 3 / 2,
                "{rejected_well} dropped at {rps}"
            );
        }
    }
}

#[test]
fn a_fifth_of_errors_is_borne_for_an_hour() {
    for (rps, seconds) in [(10, 3600), (100, 3600), (1000, 1000)] {
        let mut random = fastrand::Rng::with_seed(rps);
        let fails = move |_| random.f64() < 0.2;
        let breaker = play(1, rps, seconds, fails, |_, admitted, _| assert!(admitted));
        assert_eq!(breaker.state(), State::Closed);
    }
}
