//! Rows of the collected faults of breakers that are about windows and averages, named by their ids.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_collection::{
    CountWindow, ErrorCount, Ewma, Outcome, Outcomes, RollingWindow, Sum, Window,
};

const DAY: Duration = Duration::from_secs(86_400);

/// 10 s window; 9100 succeed over 10 s and 900 fail in second 11: the rate is 9–10 %, not 100 %.
#[test]
fn r1_window_slides_and_does_not_start_anew() {
    let start = Instant::now();
    for buckets in [10, 40, 100] {
        let length = Duration::from_secs(10) / buckets;
        let window = RollingWindow::<ErrorCount>::starting_at(start, buckets as usize, length);
        let window = window.unwrap();
        for call in 0..9100 {
            let at = start + Duration::from_secs(10) * call / 9100;
            window.add_at(at, Outcome::Success);
        }
        for call in 0..900 {
            let at = start + Duration::from_secs(10) + Duration::from_secs(1) * call / 900;
            window.add_at(at, Outcome::Failure);
        }
        let now = start + Duration::from_nanos(10_999_999_999);
        let count = window.snapshot_at(now);
        let rate = count.error_rate();
        assert!(
            (0.09..=0.1).contains(&rate),
            "{count:?} in {buckets} buckets"
        );
    }
}

/// A reader races 1000 writers, all of which fail: never more errors than requests, so a threshold of
/// 1.0 is never passed.
#[test]
fn r12_reader_never_sees_more_errors_than_requests() {
    fn race(window: &(impl Window<Value = Outcome, Total: Into<Outcomes>> + Sync), now: Instant) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reads = 0_u64;
                while !over.load(Relaxed) {
                    let seen: Outcomes = window.snapshot_at(now).into();
                    assert!(seen.errors <= seen.requests, "{seen:?}");
                    assert!(seen.slow <= seen.requests, "{seen:?}");
                    assert!(seen.error_rate() <= 1.0);
                    reads += 1;
                }
                reads
            });
            let writers: Vec<_> = (0..1000_u32)
                .map(|writer| {
                    // Half of them in each of two buckets, so that the window turns.
                    let at = now - Duration::from_millis(u64::from(writer % 2));
                    scope.spawn(move || {
                        (0..200).for_each(|_| {
                            window.add_at(at, Outcome::SlowFailure);
                        })
                    })
                })
                .collect();
            for writer in writers {
                writer.join().unwrap();
            }
            over.store(true, Relaxed);
            assert!(reader.join().unwrap() > 0);
        });
    }

    let now = Instant::now() + Duration::from_secs(1);
    let millisecond = Duration::from_millis(1);
    let rolling = RollingWindow::<Outcomes>::starting_at(now - millisecond, 10, millisecond);
    let rolling = rolling.unwrap();
    race(&rolling, now);
    let (requests, errors) = (200_000, 200_000);
    let all = rolling.snapshot_at(now);
    assert_eq!((all.requests, all.errors), (requests, errors));

    let count = CountWindow::new(100).unwrap();
    race(&count, now);
    assert_eq!(count.snapshot().error_rate(), 1.0);
    assert_eq!(count.snapshot().requests, 100);
}

/// Size 1 by count, and one bucket by time: both work.
#[test]
fn r29_windows_of_one() {
    let window = CountWindow::new(1).unwrap();
    for outcome in [Outcome::Failure, Outcome::Success, Outcome::SlowFailure] {
        window.add(outcome);
        let expected = Outcomes {
            requests: 1,
            errors: u64::from(outcome.is_error()),
            slow: u64::from(outcome.is_slow()),
        };
        assert_eq!(window.snapshot(), expected);
    }

    let start = Instant::now();
    let window = RollingWindow::<Sum>::starting_at(start, 1, Duration::from_secs(1)).unwrap();
    window.add_at(start, 5);
    let last = start + Duration::from_nanos(999_999_999);
    assert_eq!(window.snapshot_at(last), Sum { count: 1, sum: 5 });
    window.add_at(last, 6);
    assert_eq!(window.snapshot_at(last), Sum { count: 2, sum: 11 });
    let next = start + Duration::from_secs(1);
    assert_eq!(window.snapshot_at(next), Sum::default());
    window.add_at(next, 7);
    assert_eq!(window.snapshot_at(next), Sum { count: 1, sum: 7 });

    let window = RollingWindow::<Sum>::starting_at(start, 1, Duration::from_nanos(1)).unwrap();
    let window = window.ignoring_current();
    window.add_at(start, 5);
    assert_eq!(window.snapshot_at(start), Sum::default());
    assert_eq!(window.reduce_at(start, 0, |buckets, _| buckets + 1), 0);
}

/// Minimum 4, window 100, 4 failures: all four are there to be decided on, whoever added them.
#[test]
fn r55_a_few_failures_in_a_large_window_are_all_seen() {
    let window = CountWindow::new(100).unwrap();
    for failures in 1..=4 {
        thread::scope(|scope| {
            scope.spawn(|| window.add(Outcome::Failure).is_none());
        });
        let seen = window.snapshot();
        assert_eq!((seen.requests, seen.errors), (failures, failures));
    }
    assert_eq!(window.snapshot().error_rate(), 1.0);
}

/// The clock steps by a day in either direction.
#[test]
fn r61_clock_that_steps_changes_nothing() {
    let start = Instant::now() + 2 * DAY;
    let second = |s| start + Duration::from_secs(s);
    let window = RollingWindow::<Sum>::starting_at(start, 10, Duration::from_secs(1)).unwrap();
    window.add_at(second(3), 1);

    // Back, to before the window's start: as if at the latest bucket.
    assert_eq!(window.snapshot_at(start - DAY).sum, 1);
    window.add_at(start - DAY, 2);
    assert_eq!(window.snapshot_at(second(3)).sum, 3);
    assert_eq!(window.snapshot_at(second(12)).sum, 3);
    assert_eq!(window.snapshot_at(second(13)).sum, 0);

    // Ahead to look, and back again.
    assert_eq!(window.snapshot_at(start + DAY).sum, 0);
    assert_eq!(window.snapshot_at(second(3)).sum, 3);

    // Ahead to add: only that is recent now, and stays so when the clock has stepped back.
    window.add_at(start + DAY, 4);
    assert_eq!(window.snapshot_at(second(4)).sum, 4);
    window.add_at(second(4), 5);
    assert_eq!(window.snapshot_at(start + DAY).sum, 9);

    let mut average = Ewma::new(0.5, Duration::from_secs(1)).unwrap();
    average.update_at(start, 8.0);
    assert_eq!(average.update_at(start - DAY, 0.0), 8.0);
    assert_eq!(average.update_at(second(1), 0.0), 4.0);
}

/// Durations and instants of any size.
#[test]
fn windows_reach_as_far_as_time_does() {
    let start = Instant::now();
    let eternity = RollingWindow::<Sum>::starting_at(start, 1 << 20, Duration::MAX).unwrap();
    eternity.add_at(start, 1);
    let far = start + Duration::from_secs(1 << 40);
    eternity.add_at(far, 2);
    assert_eq!(eternity.snapshot_at(far).sum, 3);
    assert_eq!(eternity.bucket_at(far), 1);

    let short = RollingWindow::<Sum>::starting_at(start, 3, Duration::from_nanos(1)).unwrap();
    short.add_at(far, u64::MAX);
    short.add_at_nanos(u64::MAX, 1);
    assert_eq!(
        short.snapshot_at(far),
        Sum {
            count: 2,
            sum: u64::MAX
        }
    );
    assert_eq!(short.snapshot_at_nanos(u64::MAX), short.snapshot_at(far));
}

#[test]
fn sizes_and_lengths_of_nothing_are_refused() {
    let second = Duration::from_secs(1);
    let refused = [
        RollingWindow::<Sum>::new(0, second).map(drop),
        RollingWindow::<Sum>::new((1 << 20) + 1, second).map(drop),
        RollingWindow::<Sum>::new(1, Duration::ZERO).map(drop),
        CountWindow::new(0).map(drop),
        CountWindow::new(usize::MAX).map(drop),
        Ewma::new(f64::NAN, second).map(drop),
        Ewma::new(-0.5, second).map(drop),
        Ewma::new(0.5, Duration::ZERO).map(drop),
    ];
    let messages = refused.map(|result| result.unwrap_err().to_string());
    assert_eq!(
        messages,
        [
            "buckets is 0; allowed are 1 to 1048576".to_owned(),
            "buckets is 1048577; allowed are 1 to 1048576".to_owned(),
            "bucket_length is 0ns; allowed are 1ns and more".to_owned(),
            "size is 0; allowed are 1 to 16777216".to_owned(),
            format!("size is {}; allowed are 1 to 16777216", usize::MAX),
            "decay is NaN; allowed are 0 to less than 1".to_owned(),
            "decay is -0.5; allowed are 0 to less than 1".to_owned(),
            "period is 0ns; allowed are 1ns and more".to_owned(),
        ]
    );
}
