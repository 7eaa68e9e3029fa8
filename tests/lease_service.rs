//! Through the facade: a service that leases, renews, retries and reminds, for a virtual day.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wheelhouse::wheel::{Clock, Executor, ManualClock, TimingWheel, WeakTimingWheel};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// What the service schedules.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Job {
    /// A lease runs out unless it is renewed.
    Lease(u32),
    /// A delivery is tried again with doubling pauses.
    Retry(u32),
    /// Something that happens once.
    Reminder(u32),
}

#[derive(Debug, Default)]
struct Log {
    expired: BTreeMap<u32, Duration>,
    attempts: BTreeMap<u32, Vec<Duration>>,
    reminded: BTreeMap<u32, Duration>,
}

#[test]
fn a_day_of_leases_retries_and_reminders_passes_in_order() {
    let clock = ManualClock::new();
    let start = clock.now();
    let log = Arc::new(Mutex::new(Log::default()));

    let wheel = {
        let (clock, log) = (clock.clone(), log.clone());
        TimingWheel::builder()
            .interval(Duration::from_millis(100))
            .clock(clock.clone())
            .build_cyclic(move |wheel: WeakTimingWheel<Job, u32>| {
                move |job: Job, attempt: u32| {
                    let at = clock.now() - start;
                    let mut log = log.lock().unwrap();
                    match job {
                        Job::Lease(id) => assert_eq!(log.expired.insert(id, at), None),
                        Job::Reminder(id) => assert_eq!(log.reminded.insert(id, at), None),
                        Job::Retry(id) => {
                            log.attempts.entry(id).or_default().push(at);
                            // The sixth attempt gets through.
                            if attempt < 6
                                && let Some(wheel) = wheel.upgrade()
                            {
                                let pause = MINUTE * 2u32.pow(attempt);
                                wheel.set_timer(Job::Retry(id), attempt + 1, pause).unwrap();
                            }
                        }
                    }
                }
            })
            .unwrap()
    };

    for id in 0..100 {
        wheel.set_timer(Job::Lease(id), 0, HOUR).unwrap();
        wheel.set_timer(Job::Retry(id), 1, MINUTE).unwrap();
        wheel
            .set_timer(Job::Reminder(id), 0, MINUTE * (10 * id))
            .unwrap();
    }
    // Reminders of odd numbers are called off.
    for id in (1..100).step_by(2) {
        assert_eq!(wheel.take_timer(&Job::Reminder(id)).unwrap(), Some(0));
    }
    // Lease n is renewed n times, every half hour.
    for round in 1..=48 {
        clock.run_for(HOUR / 2);
        for id in round..100 {
            wheel.move_timer(Job::Lease(id), HOUR).unwrap();
        }
    }

    let log = log.lock().unwrap();
    for id in 0..100u32 {
        // The last renewal of a lease is at id half hours, and it runs out an hour later.
        let expires = HOUR / 2 * id + HOUR;
        let seen = log.expired.get(&id).copied();
        assert_eq!(
            seen,
            (expires <= 24 * HOUR).then_some(expires),
            "lease {id}"
        );

        let minutes = [1, 3, 7, 15, 31, 63];
        assert_eq!(
            log.attempts[&id],
            minutes.map(|m| MINUTE * m),
            "retries of {id}"
        );

        let reminded = (id % 2 == 0).then(|| (MINUTE * (10 * id)).max(Duration::from_millis(100)));
        assert_eq!(log.reminded.get(&id).copied(), reminded, "reminder {id}");
    }
    drop(log);

    let left = wheel.stop();
    assert!(
        left.iter()
            .all(|(job, _)| matches!(job, Job::Lease(id) if *id > 46)),
        "{left:?}"
    );
    assert_eq!(left.len(), 53);
    let stats = wheel.stats();
    assert_eq!(
        stats.set,
        stats.fired + stats.removed + stats.replaced + stats.drained + stats.returned
    );
}

/// Real time: the four executors fire everything once and never early.
#[test]
fn every_executor_fires_all_and_none_early() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let executors = [
        Executor::Inline,
        Executor::Threads(2),
        Executor::Tokio(runtime.handle().clone()),
        Executor::TokioBlocking(runtime.handle().clone()),
    ];
    for executor in executors {
        let name = format!("{executor:?}");
        let (fired, early) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (all, done) = std::sync::mpsc::channel();
        let wheel = {
            let (fired, early) = (fired.clone(), early.clone());
            TimingWheel::builder()
                .executor(executor)
                .build(move |_: u64, due: std::time::Instant| {
                    if std::time::Instant::now() < due {
                        early.fetch_add(1, Ordering::Relaxed);
                    }
                    if fired.fetch_add(1, Ordering::Relaxed) == 1999 {
                        all.send(()).unwrap();
                    }
                })
                .unwrap()
        };
        for key in 0..2000 {
            let delay = Duration::from_micros(key * 50);
            wheel
                .set_timer(key, std::time::Instant::now() + delay, delay)
                .unwrap();
        }
        done.recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("{name} hangs"));
        assert_eq!(wheel.stop(), []);
        assert_eq!(fired.load(Ordering::Relaxed), 2000, "{name}");
        assert_eq!(early.load(Ordering::Relaxed), 0, "{name}");
    }
}
