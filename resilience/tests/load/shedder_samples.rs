//! Who takes a shedder's samples of the processors, and what the source of them may do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_resilience::{Priority, Shedder};
use wheelhouse_wheel::{Clock, ManualClock};

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_source_that_panics_is_contained_and_counted() {
    let clock = ManualClock::new();
    let shedder = Shedder::builder().clock(clock.clone());
    let shedder = shedder
        .cpu(|_: Instant| -> Option<f64> { panic!("no processors") })
        .build();
    let shedder = shedder.unwrap();
    for sampled in 1..=3 {
        clock.advance(250 * MILLI);
        assert!(shedder.try_acquire(Priority::Low).is_ok());
        assert_eq!(shedder.stats().failed_samples, sampled);
    }
}

/// A source may use the shedder that asks it.
#[test]
fn a_source_that_calls_back_does_not_hang() {
    let clock = ManualClock::new();
    let own = Arc::new(OnceLock::<Shedder>::new());
    let source = {
        let own = own.clone();
        move |_: Instant| {
            let shedder = own.get()?;
            assert!(!shedder.sample());
            drop(shedder.try_acquire(Priority::Critical));
            Some(shedder.stats().in_flight as f64)
        }
    };
    let shedder = Shedder::builder()
        .clock(clock.clone())
        .cpu(source)
        .build()
        .unwrap();
    own.set(shedder.clone()).expect("it is set once");
    clock.advance(SECOND);
    drop(shedder.try_acquire(Priority::Normal));
    assert_eq!(
        (shedder.stats().failed_samples, shedder.stats().failed),
        (0, 2)
    );
}

/// Many threads find a sample due at once, and one takes it.
#[test]
fn one_call_takes_the_sample() {
    let clock = ManualClock::new();
    let samples = Arc::new(AtomicUsize::new(0));
    let source = {
        let samples = samples.clone();
        move |_: Instant| {
            samples.fetch_add(1, Ordering::Relaxed);
            Some(0.5)
        }
    };
    let shedder = Shedder::builder()
        .clock(clock.clone())
        .cpu(source)
        .build()
        .unwrap();
    for round in 1..=50 {
        clock.advance(250 * MILLI);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| drop(shedder.try_acquire(Priority::Normal)));
            }
        });
        // One when it was built.
        assert_eq!(samples.load(Ordering::Relaxed), round + 1);
    }
    let stats = shedder.stats();
    assert_eq!((stats.in_flight, stats.failed), (0, 400));
}

/// In real time, since that is what the thread sleeps in; only that it comes to pass is asserted.
#[test]
fn a_sampler_samples_until_it_is_dropped() {
    let samples = Arc::new(AtomicUsize::new(0));
    let source = {
        let samples = samples.clone();
        move |_: Instant| {
            samples.fetch_add(1, Ordering::Relaxed);
            Some(0.75)
        }
    };
    let built = Shedder::builder().sample_period(MILLI).cpu(source).build();
    let shedder = built.unwrap();
    let reach = |count: usize| {
        let patience = Instant::now() + 60 * SECOND;
        while samples.load(Ordering::Relaxed) < count {
            assert!(Instant::now() < patience, "the thread does not sample");
            thread::yield_now();
        }
    };
    let sampler = shedder.start_sampler().unwrap();
    reach(5);
    drop(sampler);
    let after = samples.load(Ordering::Relaxed);
    assert!((700.0..800.0).contains(&shedder.stats().cpu));
    assert_eq!(samples.load(Ordering::Relaxed), after);
    // Without it a call samples again.
    reach_by_calls(&shedder, &samples, after + 1);
    // The shedder gone, the thread lets its source go, and ends when it next wakes.
    let sampler = shedder.start_sampler().unwrap();
    reach(after + 3);
    drop(shedder);
    let patience = Instant::now() + 60 * SECOND;
    while Arc::strong_count(&samples) > 1 {
        assert!(Instant::now() < patience, "the source is kept");
        thread::yield_now();
    }
    drop(sampler);
}

#[test]
fn a_sampler_whose_thread_dies_leaves_the_samples_to_the_calls() {
    /// Panics when the sampler's thread asks.
    struct Selective(ManualClock, Arc<AtomicUsize>);

    impl Clock for Selective {
        fn now(&self) -> Instant {
            if thread::current().name() == Some("wheelhouse-sampler") {
                self.1.fetch_add(1, Ordering::SeqCst);
                panic!("on purpose");
            }
            self.0.now()
        }
    }

    let (clock, panics) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
    let samples = Arc::new(AtomicUsize::new(0));
    let counted = samples.clone();
    let built = Shedder::builder()
        .clock(Selective(clock.clone(), panics.clone()))
        .cpu(move |_: Instant| {
            counted.fetch_add(1, Ordering::Relaxed);
            Some(0.5)
        })
        .build();
    let shedder = built.unwrap();
    let _sampler = shedder.start_sampler().unwrap();
    let patience = Instant::now() + 60 * SECOND;
    // Beside a driver calls step in a period late: two samples in a row on time are without one.
    let mut on_time = 0;
    while on_time < 2 {
        assert!(
            Instant::now() < patience,
            "calls leave it to a thread that is gone"
        );
        thread::yield_now();
        let has_died = panics.load(Ordering::SeqCst) > 0;
        let before = samples.load(Ordering::Relaxed);
        clock.advance(250 * MILLI);
        drop(shedder.try_acquire(Priority::Normal));
        match has_died && samples.load(Ordering::Relaxed) > before {
            true => on_time += 1,
            false => on_time = 0,
        }
    }
}

fn reach_by_calls(shedder: &Shedder, samples: &AtomicUsize, count: usize) {
    let patience = Instant::now() + 60 * SECOND;
    while samples.load(Ordering::Relaxed) < count {
        assert!(Instant::now() < patience, "no call samples");
        drop(shedder.try_acquire(Priority::Normal));
    }
}
