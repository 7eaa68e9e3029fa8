//! Cron tasks: when they run on days with a change of the clocks, after stalls, within limits.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant, SystemTime};

use crate::support::civil::{Civil, HOUR, MINUTE};
use wheelhouse_wheel::cron::TimeZone;
use wheelhouse_wheel::scheduler::{Cancel, Retry, Scheduler, Status, TaskError};
use wheelhouse_wheel::{Clock, ManualClock};

const NONE: [&str; 0] = [];

#[tokio::test]
async fn a_working_day_in_berlin() {
    let civil = Civil::new("2024-03-29T00:00:00+01:00", "Europe/Berlin");
    let expression = "0 9,17 * * MON-FRI";
    let task = civil
        .scheduler
        .cron(expression, "Europe/Berlin", civil.work());
    civil.run_for(4 * 24 * HOUR).await;
    // A Friday; a weekend on which the clocks go forward; a Monday.
    assert_eq!(
        civil.taken(),
        [
            "29 09:00:00+01:00",
            "29 17:00:00+01:00",
            "01 09:00:00+02:00",
            "01 17:00:00+02:00"
        ]
    );
    assert_eq!(task.unwrap().cancel(), Cancel::Cancelled);
}

#[tokio::test]
async fn six_fields_begin_with_seconds() {
    let civil = Civil::new("2024-05-01T12:00:00Z", "UTC");
    drop(civil.scheduler.cron("*/20 * * * * *", "UTC", civil.work()));
    civil.run_for(MINUTE).await;
    assert_eq!(
        civil.taken(),
        [
            "01 12:00:20+00:00",
            "01 12:00:40+00:00",
            "01 12:01:00+00:00"
        ]
    );
}

#[tokio::test]
async fn w70_w73_a_repeated_half_past_one_runs_the_first_time_only() {
    let civil = Civil::new("2025-11-01T12:00:00-04:00", "America/New_York");
    let zone = TimeZone::get("America/New_York").unwrap();
    drop(civil.scheduler.cron("30 1 * * *", zone, civil.work()));
    civil.run_for(48 * HOUR).await;
    assert_eq!(civil.taken(), ["02 01:30:00-04:00", "03 01:30:00-05:00"]);
}

#[tokio::test]
async fn a_wildcard_goes_through_the_repeated_hour() {
    let civil = Civil::new("2025-11-02T00:00:00-04:00", "America/New_York");
    let zone = "America/New_York";
    drop(civil.scheduler.cron("30 * * * *", zone, civil.work()));
    civil.run_for(4 * HOUR).await;
    assert_eq!(
        civil.taken(),
        [
            "02 00:30:00-04:00",
            "02 01:30:00-04:00",
            "02 01:30:00-05:00",
            "02 02:30:00-05:00"
        ]
    );
}

#[tokio::test]
async fn w80_a_time_that_does_not_exist_runs_once_after_the_gap() {
    let civil = Civil::new("2024-03-09T12:00:00-06:00", "America/Chicago");
    let zone = "America/Chicago";
    drop(civil.scheduler.cron("1 2 * * SUN", zone, civil.work()));
    civil.run_for(8 * 24 * HOUR).await;
    assert_eq!(civil.taken(), ["10 03:00:00-05:00", "17 02:01:00-05:00"]);
}

#[tokio::test]
async fn after_a_stall_one_run_stands_for_all_that_were_missed() {
    for (coalesce, expected) in [
        (true, vec!["01 12:45:00+00:00", "01 13:00:00+00:00"]),
        (
            false,
            [vec!["01 12:45:00+00:00"; 4], vec!["01 13:00:00+00:00"]].concat(),
        ),
    ] {
        let civil = Civil::new("2024-05-01T12:00:30Z", "UTC");
        let options = civil.scheduler.task().coalesce(coalesce);
        drop(options.cron("0,10,20,30,40 * * * *", "UTC", civil.work()));
        civil.clock.advance(44 * MINUTE + Duration::from_secs(30));
        civil.scheduler.settled().await;
        civil.run_for(15 * MINUTE).await;
        assert_eq!(civil.taken(), expected, "coalesce: {coalesce}");
        assert_eq!(civil.scheduler.stats().missed, 0);
    }
}

#[tokio::test]
async fn lateness_counts_from_the_time_of_the_expression() {
    // Due at 12:30, woken up at 12:45.
    for (grace, expected, missed) in [
        (15, vec!["01 12:45:00+00:00", "01 13:30:00+00:00"], 0),
        (14, vec!["01 13:30:00+00:00"], 1),
    ] {
        let civil = Civil::new("2024-05-01T12:00:00Z", "UTC");
        let options = civil.scheduler.task().grace(grace * MINUTE);
        drop(options.cron("30 * * * *", "UTC", civil.work()));
        civil.clock.advance(45 * MINUTE);
        civil.scheduler.settled().await;
        civil.run_for(HOUR).await;
        assert_eq!(civil.taken(), expected, "grace: {grace} min");
        assert_eq!(civil.scheduler.stats().missed, missed);
    }
}

#[tokio::test]
async fn each_of_several_that_were_missed_has_a_grace_of_its_own() {
    // 12:10, 12:20, 12:30 and 12:40 were missed at 12:45; two of them are within 15 minutes.
    let civil = Civil::new("2024-05-01T12:05:00Z", "UTC");
    let options = civil.scheduler.task().grace(15 * MINUTE).coalesce(false);
    drop(options.cron("*/10 * * * *", "UTC", civil.work()));
    civil.clock.advance(40 * MINUTE);
    civil.scheduler.settled().await;
    assert_eq!(civil.taken(), ["01 12:45:00+00:00"; 2]);
    assert_eq!(civil.scheduler.stats().missed, 2);
}

#[tokio::test]
async fn the_run_for_all_that_were_missed_takes_place_if_one_of_them_is_within_grace() {
    for (grace, expected, missed) in [(5, 1, 1), (4, 0, 1)] {
        let civil = Civil::new("2024-05-01T12:05:00Z", "UTC");
        let options = civil.scheduler.task().grace(grace * MINUTE);
        drop(options.cron("*/10 * * * *", "UTC", civil.work()));
        civil.clock.advance(40 * MINUTE);
        civil.scheduler.settled().await;
        assert_eq!(civil.taken().len(), expected, "grace: {grace} min");
        assert_eq!(civil.scheduler.stats().missed, missed);
        civil.run_for(5 * MINUTE).await;
        assert_eq!(civil.taken(), ["01 12:50:00+00:00"]);
    }
}

#[tokio::test]
async fn run_limits_and_the_first_run_at_once() {
    let civil = Civil::new("2024-05-01T12:34:56Z", "UTC");
    let options = civil.scheduler.task().immediately().run_limit(3);
    let task = options.cron("0 * * * *", "UTC", civil.work()).unwrap();
    civil.run_for(5 * HOUR).await;
    assert_eq!(
        civil.taken(),
        [
            "01 12:34:56+00:00",
            "01 13:00:00+00:00",
            "01 14:00:00+00:00"
        ]
    );
    assert_eq!(task.await, Ok(()));
}

#[tokio::test]
async fn no_run_is_due_after_the_end() {
    let civil = Civil::new("2024-05-01T12:34:56Z", "UTC");
    let end = civil.clock.now() + 2 * HOUR;
    let options = civil.scheduler.task().until(end);
    let task = options.cron("0 * * * *", "UTC", civil.work()).unwrap();
    civil.run_for(5 * HOUR).await;
    assert_eq!(civil.taken(), ["01 13:00:00+00:00", "01 14:00:00+00:00"]);
    assert_eq!(task.status(), Status::Ended);
}

#[tokio::test]
async fn a_task_ends_with_the_last_time_of_its_expression() {
    // 30 February does not come; 29 February 2104 does, since 2100 is no leap year.
    let civil = Civil::new("2096-02-28T00:00:00Z", "UTC");
    let options = civil.scheduler.task();
    let refused = options.clone().cron("0 0 30 2 *", "UTC", civil.work());
    assert!(refused.is_err());
    let task = options.cron("0 0 29 2 *", "UTC", civil.work()).unwrap();
    civil.run_for(25 * HOUR).await;
    assert_eq!(civil.taken(), ["29 00:00:00+00:00"]);
    let years = 8 * 365 + 1;
    let next = civil.clock.now() + (24 * years - 1) * HOUR;
    assert_eq!(task.next_run(), Some(next));
}

#[tokio::test]
async fn the_next_run_is_known_moved_held_back_and_cancelled() {
    let civil = Civil::new("2024-05-01T12:00:00Z", "UTC");
    let start = civil.clock.now();
    let task = civil
        .scheduler
        .cron("0 * * * *", "UTC", civil.work())
        .unwrap();
    assert_eq!(task.next_run(), Some(start + HOUR));
    civil.run_for(20 * MINUTE).await;
    assert_eq!(task.next_run(), Some(start + HOUR));
    // Moved within the hour: the hour itself remains.
    assert!(task.reschedule(10 * MINUTE));
    assert_eq!(task.next_run(), Some(start + 30 * MINUTE));
    civil.run_for(HOUR).await;
    assert_eq!(civil.taken(), ["01 12:30:00+00:00", "01 13:00:00+00:00"]);
    // Moved past an hour, which is left out.
    assert!(task.reschedule(50 * MINUTE));
    civil.run_for(2 * HOUR).await;
    assert_eq!(civil.taken(), ["01 14:10:00+00:00", "01 15:00:00+00:00"]);
    // Held back past two of them.
    assert!(task.pause());
    assert_eq!(task.next_run(), None);
    assert_eq!(task.status(), Status::Paused);
    civil.run_for(2 * HOUR).await;
    assert_eq!(civil.taken(), NONE);
    assert!(task.resume());
    civil.scheduler.settled().await;
    assert_eq!(civil.taken(), ["01 17:20:00+00:00"]);
    // To the end of time, and back.
    assert!(task.reschedule(Duration::MAX));
    assert_eq!(task.next_run(), None);
    civil.run_for(2 * HOUR).await;
    assert_eq!(civil.taken(), NONE);
    assert!(task.reschedule(MINUTE));
    civil.run_for(40 * MINUTE).await;
    assert_eq!(civil.taken(), ["01 19:21:00+00:00", "01 20:00:00+00:00"]);
    assert_eq!(task.cancel(), Cancel::Cancelled);
    civil.run_for(2 * HOUR).await;
    assert_eq!(civil.taken(), NONE);
    assert_eq!(task.await, Err(TaskError::Cancelled));
}

#[tokio::test]
async fn retries_leave_the_times_as_they_are() {
    let civil = Civil::new("2024-05-01T12:00:00Z", "UTC");
    let mut note = civil.work();
    let mut attempts = 0;
    let work = move || {
        let noted = note();
        attempts += 1;
        async move {
            noted.await;
            if attempts < 3 { Err("not yet") } else { Ok(()) }
        }
    };
    let options = civil.scheduler.task().retry(Retry::fixed(7 * MINUTE));
    drop(options.cron("0 * * * *", "UTC", work));
    civil.run_for(2 * HOUR).await;
    assert_eq!(
        civil.taken(),
        [
            "01 13:00:00+00:00",
            "01 13:07:00+00:00",
            "01 13:14:00+00:00",
            "01 14:00:00+00:00"
        ]
    );
}

#[tokio::test]
async fn jitter_puts_runs_off_and_never_forward() {
    let clock = ManualClock::starting_at(SystemTime::UNIX_EPOCH);
    let builder = Scheduler::builder().clock(clock.clone()).seed(7);
    let scheduler = builder.jitter(10 * MINUTE).build().unwrap();
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let work = {
        let (clock, seen) = (clock.clone(), seen.clone());
        move || {
            let now = clock.system_now().duration_since(SystemTime::UNIX_EPOCH);
            seen.lock().push(now.unwrap().as_secs());
            std::future::ready(())
        }
    };
    drop(scheduler.cron("0 * * * *", "UTC", work));
    scheduler.run_for(&clock, 24 * HOUR + 10 * MINUTE).await;
    let seen = seen.lock().clone();
    assert_eq!(seen.len(), 24);
    for (hour, at) in (1..).zip(&seen) {
        assert!((hour * 3600..=hour * 3600 + 600).contains(at), "{seen:?}");
    }
    let spread = seen.iter().map(|at| at % 3600);
    assert!(spread.clone().max() > spread.min().map(|at| at + 300));
}

/// A manual clock whose calendar is set apart from it.
#[derive(Clone)]
struct Stepping {
    clock: ManualClock,
    ahead: Arc<AtomicI64>,
}

impl Clock for Stepping {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn system_now(&self) -> SystemTime {
        let ahead = self.ahead.load(SeqCst);
        let step = Duration::from_secs(ahead.unsigned_abs());
        let now = self.clock.system_now();
        if ahead < 0 { now - step } else { now + step }
    }

    fn register(&self, driver: std::sync::Weak<dyn wheelhouse_wheel::Driven>) -> bool {
        self.clock.register(driver)
    }
}

#[tokio::test]
async fn a_wall_clock_that_is_set_back_repeats_nothing_and_one_set_ahead_is_followed() {
    let start = SystemTime::UNIX_EPOCH + 12 * HOUR;
    let clock = Stepping {
        clock: ManualClock::starting_at(start),
        ahead: Arc::default(),
    };
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let work = {
        let (clock, runs) = (clock.clone(), runs.clone());
        move || {
            let wall = clock.system_now().duration_since(SystemTime::UNIX_EPOCH);
            runs.lock().push(wall.unwrap().as_secs() / 60);
            std::future::ready(())
        }
    };
    drop(scheduler.cron("0 * * * *", "UTC", work));
    scheduler.run_for(&clock.clock, 65 * MINUTE).await;
    assert_eq!(*runs.lock(), [13 * 60]);
    // 13:05 becomes 12:05: 13:00 does not come again, 14:00 does.
    clock.ahead.store(-3600, SeqCst);
    scheduler.run_for(&clock.clock, 2 * HOUR).await;
    assert_eq!(*runs.lock(), [13 * 60, 14 * 60]);
    // 14:05 becomes 14:58: two minutes later it is 15:00, seen a minute later at most.
    clock.ahead.store(-3600 + 53 * 60, SeqCst);
    scheduler.run_for(&clock.clock, 3 * MINUTE).await;
    assert_eq!(*runs.lock(), [13 * 60, 14 * 60, 15 * 60]);
    // 15:01 becomes 16:30: one run, late.
    clock.ahead.fetch_add(89 * 60, SeqCst);
    scheduler.run_for(&clock.clock, 2 * MINUTE).await;
    let runs = runs.lock();
    assert_eq!(runs[..3], [13 * 60, 14 * 60, 15 * 60]);
    assert_eq!(runs.len(), 4);
    assert!((16 * 60 + 30..=16 * 60 + 31).contains(&runs[3]), "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn under_tokios_paused_clock_the_calendar_moves_along() {
    let scheduler = Scheduler::builder().build().unwrap();
    let runs = Arc::new(AtomicI64::new(0));
    let counter = runs.clone();
    drop(scheduler.cron("0 * * * *", "UTC", move || {
        counter.fetch_add(1, SeqCst);
        std::future::ready(())
    }));
    tokio::time::sleep(24 * HOUR).await;
    assert_eq!(runs.load(SeqCst), 24);
}
