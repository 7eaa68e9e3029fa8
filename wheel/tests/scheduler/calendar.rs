//! One-shots at a time of the wall clock, which may step while they wait.

use std::future::ready;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use crate::support::runs::{MS, Runs};
use wheelhouse_wheel::scheduler::{Cancel, Retry, Scheduler, Status};
use wheelhouse_wheel::{Clock, Driven, ManualClock, TokioClock};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const START: SystemTime = SystemTime::UNIX_EPOCH;

/// A manual clock whose calendar is set apart from it, in seconds.
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

    fn register(&self, driver: Weak<dyn Driven>) -> bool {
        self.clock.register(driver)
    }
}

struct World {
    clock: Stepping,
    scheduler: Scheduler,
    runs: Runs,
}

impl World {
    fn new() -> Self {
        let clock = Stepping {
            clock: ManualClock::starting_at(START),
            ahead: Arc::default(),
        };
        World {
            scheduler: Scheduler::builder().clock(clock.clone()).build().unwrap(),
            runs: Runs::new(clock.clone()),
            clock,
        }
    }

    async fn run_for(&self, by: Duration) {
        self.scheduler.run_for(&self.clock.clock, by).await;
    }
}

#[tokio::test]
async fn it_runs_when_the_calendar_shows_its_time() {
    let world = World::new();
    let (scheduler, runs) = (&world.scheduler, &world.runs);
    let closure = scheduler
        .at_system(START + HOUR, runs.work("closure"))
        .unwrap();
    let note = runs.clone();
    let blocking = scheduler
        .at_system_blocking(START + 2 * HOUR, move || note.note("blocking"))
        .unwrap();
    let start = world.clock.now();
    assert_eq!(closure.next_run(), Some(start + HOUR));
    world.run_for(3 * HOUR).await;
    assert_eq!(runs.taken(), "3600000 closure, 7200000 blocking");
    assert_eq!((closure.await, blocking.await), (Ok(()), Ok(())));
    assert!(scheduler.is_empty());
}

#[tokio::test]
async fn it_follows_a_calendar_that_steps() {
    // Due after an hour; the calendar steps after half of it, and a bit.
    for (bit, ahead, expected) in [
        (0, 20 * 60, "2400000 a"),
        (0, -10 * 60, "4200000 a"),
        // Past its time at once: seen within a minute.
        (30, 2 * 3600, "1860000 a"),
    ] {
        let world = World::new();
        let task = world
            .scheduler
            .at_system(START + HOUR, world.runs.work("a"));
        world.run_for(30 * MINUTE + Duration::from_secs(bit)).await;
        world.clock.ahead.store(ahead, SeqCst);
        world.run_for(2 * HOUR).await;
        assert_eq!(world.runs.taken(), expected);
        assert_eq!(task.unwrap().await, Ok(()));
    }
}

#[tokio::test]
async fn what_is_past_is_due_now_and_not_late() {
    let world = World::new();
    let options = world.scheduler.task().grace(Duration::ZERO);
    let task = options
        .at_system(START - HOUR, world.runs.work("a"))
        .unwrap();
    world.scheduler.settled().await;
    assert_eq!(world.runs.taken(), "0 a");
    assert_eq!(task.await, Ok(()));
}

#[tokio::test]
async fn the_end_of_the_calendar_does_not_come() {
    let world = World::new();
    let (mut last, mut step) = (START, Duration::MAX);
    while !step.is_zero() {
        last = last.checked_add(step).unwrap_or(last);
        step /= 2;
    }
    let task = world
        .scheduler
        .at_system(last, world.runs.work("a"))
        .unwrap();
    world.run_for(24 * HOUR).await;
    assert_eq!(task.status(), Status::Scheduled);
    assert_eq!(task.cancel(), Cancel::Cancelled);
    assert_eq!(world.runs.taken(), "");
}

#[tokio::test]
async fn it_can_be_moved_held_back_and_tried_again() {
    let world = World::new();
    let (scheduler, runs) = (&world.scheduler, &world.runs);
    let start = world.clock.now();
    let moved = scheduler
        .at_system(START + HOUR, runs.work("moved"))
        .unwrap();
    let held = scheduler
        .at_system(START + HOUR, runs.work("held"))
        .unwrap();
    let note = runs.clone();
    let mut left = 2;
    let fails = move || {
        note.note("fails");
        left -= 1;
        ready(if left > 0 { Err("no") } else { Ok(()) })
    };
    let options = scheduler.task().retry(Retry::fixed(10 * MINUTE));
    let fails = options.at_system(START + HOUR, fails).unwrap();
    assert!(moved.reschedule(2 * HOUR) && held.pause());
    assert_eq!(moved.next_run(), Some(start + 2 * HOUR));
    world.run_for(90 * MINUTE).await;
    assert_eq!(runs.taken(), "3600000 fails, 4200000 fails");
    assert!(held.resume());
    // A moved one follows the calendar as well.
    world.clock.ahead.store(600, SeqCst);
    world.run_for(HOUR).await;
    assert_eq!(runs.taken(), "5400000 held, 6600000 moved");
    assert_eq!(fails.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_drain_runs_those_whose_time_comes_before_its_deadline() {
    let scheduler = Scheduler::builder().build().unwrap();
    let now = TokioClock.system_now();
    // Filed to look at the calendar before they are due.
    let soon = scheduler.at_system(now + 90_000 * MS, || ready(()));
    let tomorrow = scheduler.at_system(now + 24 * HOUR, || ready(()));
    let report = scheduler.drain_until(2 * MINUTE).await;
    assert_eq!((report.all.completed, report.all.cancelled), (1, 1));
    assert!(report.took < 2 * MINUTE - 20_000 * MS, "{:?}", report.took);
    assert_eq!(soon.unwrap().await, Ok(()));
    assert!(tomorrow.unwrap().await.is_err());
}
