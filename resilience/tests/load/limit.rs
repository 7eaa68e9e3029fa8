//! `AdaptiveLimit` through its public face: what teaches it, its bounds, and limiters of its user's.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use wheelhouse_resilience::limit::{Aimd, Gradient2, Limiter, Sample, Vegas};
use wheelhouse_resilience::{AdaptiveLimit, Verdict};
use wheelhouse_wheel::{Clock, ManualClock};

const MS: Duration = Duration::from_millis(1);

/// Writes down its samples and leaves the limit alone.
#[derive(Clone, Default)]
struct Scribe(Arc<Mutex<Vec<Sample>>>);

impl Limiter for Scribe {
    fn update(&mut self, limit: f64, sample: &Sample) -> f64 {
        self.0.lock().unwrap().push(*sample);
        limit
    }
}

fn scribe() -> (AdaptiveLimit, Scribe, ManualClock) {
    let (scribe, clock) = (Scribe::default(), ManualClock::new());
    let limit = AdaptiveLimit::builder(scribe.clone())
        .clock(clock.clone())
        .build()
        .unwrap();
    (limit, scribe, clock)
}

#[test]
fn r50_only_calls_that_ended_well_give_a_round_trip_time() {
    let (limit, scribe, clock) = scribe();
    for call in 0..100 {
        let permit = limit.try_acquire().unwrap();
        let owned = limit.try_acquire_owned().unwrap();
        // Half of the calls are turned away at once, in each way that says nothing.
        match call % 8 {
            0 => permit.ignored(),
            1 => drop(permit),
            2 => permit.settle(Verdict::Ignored),
            3 => drop(
                std::thread::spawn(move || {
                    let _permit = owned;
                    std::panic::resume_unwind(Box::new("on purpose"))
                })
                .join(),
            ),
            _ => {
                clock.advance(MS * 10);
                permit.success();
            }
        }
    }
    let samples = scribe.0.lock().unwrap();
    assert_eq!(samples.len(), 48);
    assert!(
        samples
            .iter()
            .all(|sample| sample.rtt == Some(MS * 10) && !sample.dropped)
    );
    let stats = limit.stats();
    assert_eq!((stats.good, stats.dropped, stats.in_flight), (48, 0, 0));
}

#[test]
fn r50_rejects_do_not_pull_a_limiter_down_to_them() {
    // Calls of 10 ms, and as many that are refused at once. Were these samples, Vegas would take
    // their time for that of an idle server, and everything else for a queue.
    let clock = ManualClock::new();
    let vegas = Vegas::default().seed(1);
    let limit = AdaptiveLimit::builder(vegas)
        .max(200)
        .clock(clock.clone())
        .build()
        .unwrap();
    for _ in 0..500 {
        let batch: Vec<_> = std::iter::from_fn(|| limit.try_acquire().ok()).collect();
        let mut batch = batch.into_iter();
        let half = batch.len() / 2;
        batch
            .by_ref()
            .take(half)
            .for_each(|permit| permit.ignored());
        clock.advance(MS * 10);
        batch.for_each(|permit| permit.success());
    }
    assert_eq!(limit.limit(), 200);
}

#[test]
fn dropped_calls_are_told_without_a_time() {
    let (limit, scribe, clock) = scribe();
    let permits = [limit.try_acquire().unwrap(), limit.try_acquire().unwrap()];
    clock.advance(MS * 1000);
    for permit in permits {
        permit.settle(Verdict::Failure);
    }
    limit.try_acquire_owned().unwrap().dropped();
    let expected = [Sample::dropped(1), Sample::dropped(2), Sample::dropped(1)];
    assert_eq!(*scribe.0.lock().unwrap(), expected);
}

#[test]
fn a_call_beyond_the_limit_is_refused_and_the_limit_named() {
    let limit = AdaptiveLimit::builder(Scribe::default())
        .initial(2)
        .name("search")
        .build()
        .unwrap();
    let held = [limit.try_acquire().unwrap(), limit.try_acquire().unwrap()];
    let refused = limit.try_acquire().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the limit of 2 calls in flight is reached; try again later"
    );
    assert_eq!(limit.try_acquire_owned().unwrap_err().limit, 2);
    assert_eq!((limit.stats().rejected, limit.name()), (2, "search"));
    drop(held);
    assert!(limit.try_acquire().is_ok());
}

#[test]
fn arguments_out_of_range_are_named() {
    let builder = || AdaptiveLimit::builder(Scribe::default());
    let refused = |builder: wheelhouse_resilience::limit::AdaptiveLimitBuilder| {
        builder.build().unwrap_err().argument().to_owned()
    };
    assert_eq!(refused(builder().min(0)), "min");
    assert_eq!(refused(builder().min(5).max(4)), "max");
    assert_eq!(refused(builder().max(usize::MAX)), "max");
    assert_eq!(refused(builder().max(10).initial(11)), "initial");
    assert_eq!(refused(builder().min(30)), "initial");
}

/// Returns what it is told to.
struct Says(Vec<f64>);

impl Limiter for Says {
    fn update(&mut self, _limit: f64, _sample: &Sample) -> f64 {
        self.0
            .pop()
            .unwrap_or_else(|| std::panic::resume_unwind(Box::new("on purpose")))
    }
}

#[test]
fn whatever_the_limiter_says_the_limit_is_within_bounds() {
    let says = Says(vec![f64::NEG_INFINITY, f64::NAN, 7.9, f64::INFINITY]);
    let limit = AdaptiveLimit::builder(says)
        .initial(5)
        .min(3)
        .max(9)
        .build()
        .unwrap();
    let next = || {
        limit.try_acquire().unwrap().success();
        limit.limit()
    };
    assert_eq!([next(), next(), next(), next()], [9, 7, 7, 3]);
    // It has nothing more to say, and panics.
    assert_eq!([next(), next()], [3, 3]);
    assert_eq!(limit.stats().limiter_panics, 2);
}

#[test]
fn a_limiter_may_use_its_limit() {
    #[derive(Clone, Default)]
    struct Reentrant(Arc<Mutex<Option<AdaptiveLimit>>>, Arc<Mutex<u32>>);
    impl Limiter for Reentrant {
        fn update(&mut self, limit: f64, _sample: &Sample) -> f64 {
            let known = self.0.lock().unwrap().clone();
            let mut runs = self.1.lock().unwrap();
            *runs += 1;
            if *runs < 3 {
                known.unwrap().try_acquire().unwrap().success();
            }
            limit + 1.0
        }
    }
    let reentrant = Reentrant::default();
    let limit = AdaptiveLimit::builder(reentrant.clone()).build().unwrap();
    *reentrant.0.lock().unwrap() = Some(limit.clone());
    limit.try_acquire().unwrap().success();
    // Each run left one sample for the next, the second of a call to the next call.
    assert_eq!((limit.limit(), limit.stats().good), (22, 3));
    limit.try_acquire().unwrap().success();
    assert_eq!((limit.limit(), limit.stats().good), (23, 4));
    *reentrant.0.lock().unwrap() = None;
}

#[test]
fn a_window_shows_the_limiter_its_calls_as_one() {
    let (scribe, clock) = (Scribe::default(), ManualClock::new());
    let limit = AdaptiveLimit::builder(scribe.clone())
        .window(MS * 100)
        .clock(clock.clone())
        .build()
        .unwrap();
    for _ in 0..30 {
        let permit = limit.try_acquire().unwrap();
        clock.advance(MS * 10);
        permit.success();
    }
    let samples = scribe.0.lock().unwrap();
    // 100 ms after the first of each.
    assert_eq!(samples.len(), 2);
    assert!(
        samples
            .iter()
            .all(|sample| *sample == Sample::good(MS * 10, 1))
    );
}

/// A server that finishes a call every half millisecond and takes 10 ms for one that need not wait: 20
/// at once. It turns away what has waited for 100 ms. Clients use all that the limit allows; the mean
/// limit of the second half of 10 s.
fn settles_at(limiter: impl Limiter, window: Duration) -> f64 {
    let clock = ManualClock::new();
    let builder = AdaptiveLimit::builder(limiter).max(500).window(window);
    let limit = builder.clock(clock.clone()).build().unwrap();
    let mut queue = VecDeque::new();
    let mut sum = 0;
    for step in 0..20_000 {
        while let Ok(permit) = limit.try_acquire() {
            queue.push_back((clock.now(), permit));
        }
        clock.advance(MS / 2);
        let waited = |since| clock.now().duration_since(since);
        if let Some((_, permit)) = queue.pop_front_if(|(since, _)| waited(*since) >= MS * 10) {
            permit.success();
        }
        while let Some((_, permit)) = queue.pop_front_if(|(since, _)| waited(*since) >= MS * 100) {
            permit.dropped();
        }
        if step >= 10_000 {
            sum += limit.limit();
        }
    }
    sum as f64 / 10_000.0
}

#[test]
fn each_limiter_settles_where_its_rule_has_it() {
    // With a step of one, Vegas keeps three to six in the queue.
    let vegas = Vegas::default()
        .seed(3)
        .probe_multiplier(1_000_000)
        .unwrap();
    let vegas = settles_at(vegas, MS * 30);
    assert!((22.0..=27.0).contains(&vegas), "{vegas}");
    // AIMD climbs until calls are turned away, at ten times what the server works on at once.
    let aimd = settles_at(Aimd::default(), Duration::ZERO);
    assert!((100.0..=201.0).contains(&aimd), "{aimd}");
    // Gradient2 lets the queue grow for as long as the long run follows.
    let gradient = settles_at(Gradient2::default(), MS * 30);
    assert!((22.0..=201.0).contains(&gradient), "{gradient}");
}

/// Many threads: every sample arrives once, and none is lost to another that is at work.
#[test]
fn stress_no_sample_is_lost() {
    #[derive(Clone, Default)]
    struct Counts(Arc<Mutex<(u32, u32)>>);
    impl Limiter for Counts {
        fn update(&mut self, limit: f64, sample: &Sample) -> f64 {
            let mut counts = self.0.lock().unwrap();
            counts.0 += 1;
            counts.1 += u32::from(sample.dropped);
            limit
        }
    }
    let counts = Counts::default();
    let limit = AdaptiveLimit::builder(counts.clone())
        .initial(100)
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5000).for_each(|_| limit.try_acquire().unwrap().success()));
        }
    });
    limit.try_acquire().unwrap().dropped();
    let stats = limit.stats();
    assert_eq!((stats.good, stats.dropped, stats.in_flight), (20_000, 1, 0));
    let counts = counts.0.lock().unwrap();
    assert!((1..=20_001).contains(&counts.0));
    assert_eq!(counts.1, 1);
}

#[test]
fn a_call_runs_the_limiter_twice_at_most() {
    /// While it looks at a call another one ends, again and again.
    struct Busy(Arc<Mutex<(usize, Option<AdaptiveLimit>)>>);

    impl Limiter for Busy {
        fn update(&mut self, limit: f64, _sample: &Sample) -> f64 {
            let (runs, other) = &mut *self.0.lock().unwrap();
            *runs += 1;
            assert!(*runs < 100, "the call is held");
            other.as_ref().unwrap().try_acquire().unwrap().success();
            limit
        }
    }

    let state = Arc::new(Mutex::new((0, None)));
    let limit = AdaptiveLimit::builder(Busy(state.clone())).build().unwrap();
    state.lock().unwrap().1 = Some(limit.clone());
    limit.try_acquire().unwrap().success();
    assert_eq!(state.lock().unwrap().0, 2);
    // What was left is shown with the next.
    limit.try_acquire().unwrap().success();
    assert_eq!(state.lock().unwrap().0, 4);
    assert_eq!(limit.stats().limiter_panics, 0);
    state.lock().unwrap().1 = None;
}

/// Times that no clock tells, from 0 to the longest: the limit stays a number within its bounds, and what
/// the limiter knows can be asked for.
#[test]
fn limiters_take_round_trip_times_of_any_length() {
    let times = [
        Duration::MAX,
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::MAX,
    ];
    for first in times {
        let (mut vegas, mut gradient, mut aimd) =
            (Vegas::default(), Gradient2::default(), Aimd::default());
        for rtt in [first].into_iter().chain(times).cycle().take(60) {
            let sample = Sample::good(rtt, 10);
            let limits = [
                vegas.update(10.0, &sample),
                gradient.update(10.0, &sample),
                aimd.update(10.0, &sample),
            ];
            assert!(limits.iter().all(|limit| limit.is_finite()), "{limits:?}");
            assert!(vegas.rtt_noload().is_some() && gradient.long_rtt().is_some());
        }
    }
}

#[test]
fn limiters_refuse_what_they_cannot_use() {
    let refused = [
        Aimd::default().backoff(f64::NAN).unwrap_err(),
        Aimd::default().backoff(0.49).unwrap_err(),
        Aimd::default().backoff(1.0).unwrap_err(),
        Aimd::default().timeout(Duration::ZERO).unwrap_err(),
        Vegas::default().smoothing(f64::NAN).unwrap_err(),
        Vegas::default().smoothing(0.0).unwrap_err(),
        Vegas::default().probe_multiplier(0).unwrap_err(),
        Gradient2::default().smoothing(1.01).unwrap_err(),
        Gradient2::default().window(0).unwrap_err(),
    ];
    let refused = refused.map(|error| error.to_string());
    let expected = [
        "backoff is NaN; allowed are 0.5 up to but not 1",
        "backoff is 0.49; allowed are 0.5 up to but not 1",
        "backoff is 1; allowed are 0.5 up to but not 1",
        "timeout is 0ns; allowed are 1ns and more",
        "smoothing is NaN; allowed are above 0 to 1",
        "smoothing is 0; allowed are above 0 to 1",
        "probe_multiplier is 0; allowed are 1 and more",
        "smoothing is 1.01; allowed are above 0 to 1",
        "window is 0; allowed are 1 and more samples",
    ];
    assert_eq!(refused, expected);
}
