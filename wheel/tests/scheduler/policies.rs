//! Fixed rate, fixed delay, and what becomes of ticks that were missed, in virtual time of both kinds.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::support::runs::{MS, Runs};
use tokio::time::{advance, sleep};
use wheelhouse_wheel::scheduler::{MissedTick, Scheduler};
use wheelhouse_wheel::{Clock, ManualClock, TokioClock};

const S: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

fn manual() -> (ManualClock, Scheduler, Runs) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let runs = Runs::new(clock.clone());
    (clock, scheduler, runs)
}

fn paused() -> (Scheduler, Runs) {
    let scheduler = Scheduler::builder().build().unwrap();
    (scheduler, Runs::new(TokioClock))
}

#[tokio::test]
async fn w13_a_period_of_7_fires_for_the_kth_time_at_7k() {
    let (clock, scheduler, runs) = manual();
    drop(scheduler.every(7 * MS, runs.work("a")));
    scheduler.run_for(&clock, 700 * MS).await;
    let expected: Vec<_> = (1..=100).map(|k| format!("{} a", 7 * k)).collect();
    assert_eq!(runs.taken(), expected.join(", "));
}

/// A thousand tasks of a minute, and how often each has run.
fn a_thousand(scheduler: &Scheduler, missed: MissedTick) -> Arc<[AtomicU32]> {
    let counts: Arc<[AtomicU32]> = (0..1000).map(|_| AtomicU32::new(0)).collect();
    for task in 0..1000 {
        let counts = counts.clone();
        let options = scheduler.task().missed_tick(missed);
        let handle = options.every(MINUTE, move || {
            counts[task].fetch_add(1, Relaxed);
            ready(())
        });
        drop(handle.unwrap());
    }
    counts
}

fn all_are(counts: &[AtomicU32], expected: u32) {
    for (task, count) in counts.iter().enumerate() {
        assert_eq!(count.load(Relaxed), expected, "task {task}");
    }
}

/// The policy, the runs of each task right after a jump of 8 h and 30 s, and 30 s and 60 s later:
/// the late run itself takes place, as it does for tokio's interval.
const JUMP: [(MissedTick, [u32; 3]); 3] = [
    (MissedTick::Burst, [480, 481, 481]),
    (MissedTick::Skip, [1, 2, 2]),
    (MissedTick::Delay, [1, 1, 2]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w61_a_jump_of_eight_hours_obeys_each_policy_on_a_manual_clock() {
    for (missed, [at_once, on_the_minute, a_minute_later]) in JUMP {
        let (clock, scheduler, _) = manual();
        let counts = a_thousand(&scheduler, missed);
        clock.advance(8 * HOUR + 30 * S);
        scheduler.settled().await;
        all_are(&counts, at_once);
        clock.advance(30 * S);
        scheduler.settled().await;
        all_are(&counts, on_the_minute);
        clock.advance(30 * S);
        scheduler.settled().await;
        all_are(&counts, a_minute_later);
    }
}

#[tokio::test(start_paused = true)]
async fn w61_a_jump_of_eight_hours_obeys_each_policy_on_tokios_clock() {
    for (missed, [at_once, on_the_minute, a_minute_later]) in JUMP {
        let (scheduler, _) = paused();
        let counts = a_thousand(&scheduler, missed);
        advance(8 * HOUR + 30 * S).await;
        scheduler.settled().await;
        all_are(&counts, at_once);
        advance(30 * S).await;
        scheduler.settled().await;
        all_are(&counts, on_the_minute);
        advance(30 * S).await;
        scheduler.settled().await;
        all_are(&counts, a_minute_later);
    }
}

#[tokio::test]
async fn w61_a_jump_that_ends_on_a_tick_of_all_catches_up_without_moving_on() {
    let (clock, scheduler, _) = manual();
    let counts = a_thousand(&scheduler, MissedTick::Burst);
    clock.advance(8 * HOUR);
    scheduler.settled().await;
    all_are(&counts, 480);
}

#[tokio::test]
async fn w68_after_a_stall_of_ten_periods_each_policy_goes_on_in_its_way() {
    for (missed, expected) in [
        (
            MissedTick::Burst,
            "10500 a, 10500 a, 10500 a, 10500 a, 10500 a, 10500 a, 10500 a, 10500 a, 10500 a, 10500 a, \
             11000 a, 12000 a",
        ),
        (MissedTick::Skip, "10500 a, 11000 a, 12000 a"),
        (MissedTick::Delay, "10500 a, 11500 a, 12500 a"),
    ] {
        let (clock, scheduler, runs) = manual();
        let options = scheduler.task().missed_tick(missed);
        drop(options.every(S, runs.work("a")));
        clock.advance(10 * S + 500 * MS);
        scheduler.settled().await;
        scheduler.run_for(&clock, 2 * S).await;
        assert_eq!(runs.taken(), expected, "{missed:?}");
    }
}

#[tokio::test]
async fn w79_a_stall_over_one_fire_waits_for_the_next_when_skipping() {
    let (clock, scheduler, runs) = manual();
    let options = scheduler.task().missed_tick(MissedTick::Skip);
    drop(options.every(S, runs.work("a")));
    scheduler.run_for(&clock, S).await;
    // The fire at 2 s is late, that at 3 s is missed.
    clock.advance(2500 * MS);
    scheduler.settled().await;
    scheduler.run_for(&clock, S).await;
    assert_eq!(runs.taken(), "1000 a, 3500 a, 4000 a");
}

#[tokio::test]
async fn w87_a_jump_of_a_day_goes_by_the_policy() {
    for (missed, expected) in [
        (MissedTick::Burst, 24),
        (MissedTick::Skip, 1),
        (MissedTick::Delay, 1),
    ] {
        let (clock, scheduler, _) = manual();
        let options = scheduler.task().missed_tick(missed);
        drop(options.every(HOUR, || ready(())));
        clock.advance(24 * HOUR);
        scheduler.settled().await;
        assert_eq!(scheduler.stats().started, expected, "{missed:?}");
    }
}

#[tokio::test]
async fn w82_a_clock_that_steps_back_repeats_no_interval() {
    let (clock, scheduler, runs) = manual();
    drop(scheduler.every(20 * MINUTE, runs.work("rate")));
    drop(scheduler.every_after_completion(25 * MINUTE, runs.work("delay")));
    scheduler.run_for(&clock, 2 * HOUR).await;
    assert_eq!(
        runs.taken(),
        "1200000 rate, 1500000 delay, 2400000 rate, 3000000 delay, 3600000 rate, 4500000 delay, \
         4800000 rate, 6000000 delay, 6000000 rate, 7200000 rate"
    );
    clock.set(clock.now() - HOUR);
    scheduler.settled().await;
    scheduler.run_for(&clock, HOUR).await;
    assert_eq!(runs.taken(), "");
    scheduler.run_for(&clock, 20 * MINUTE).await;
    assert_eq!(runs.taken(), "7500000 delay, 8400000 rate");
}

#[tokio::test(start_paused = true)]
async fn w84_fixed_rate_counts_from_the_schedule_and_fixed_delay_from_the_end() {
    let (scheduler, runs) = paused();
    let work = |name| {
        let runs = runs.clone();
        move || {
            runs.note(name);
            sleep(30 * MS)
        }
    };
    drop(scheduler.every(100 * MS, work("rate")));
    drop(scheduler.every_after_completion(100 * MS, work("delay")));
    sleep(400 * MS).await;
    scheduler.settled().await;
    assert_eq!(
        runs.taken(),
        "100 rate, 100 delay, 200 rate, 230 delay, 300 rate, 360 delay, 400 rate"
    );
}

#[tokio::test]
async fn w84_on_a_manual_clock_a_run_that_takes_30_moves_the_clock() {
    for delay in [false, true] {
        let (clock, scheduler, runs) = manual();
        let work = {
            let (clock, runs) = (clock.clone(), runs.clone());
            move || {
                runs.note("a");
                clock.advance(30 * MS);
                ready(())
            }
        };
        let task = if delay {
            scheduler.every_after_completion(100 * MS, work)
        } else {
            scheduler.every(100 * MS, work)
        };
        drop(task.unwrap());
        scheduler.run_for(&clock, 370 * MS).await;
        let expected = if delay {
            "100 a, 230 a, 360 a"
        } else {
            "100 a, 200 a, 300 a"
        };
        assert_eq!(runs.taken(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_longer_than_the_period_makes_the_next_late_and_never_overlaps() {
    // Runs of 250, 10, 10, … with a period of 100.
    for (missed, expected) in [
        (
            MissedTick::Burst,
            "100 a, 350 a, 360 a, 400 a, 500 a, 600 a",
        ),
        (MissedTick::Skip, "100 a, 350 a, 400 a, 500 a, 600 a"),
        (MissedTick::Delay, "100 a, 350 a, 450 a, 550 a"),
    ] {
        let (scheduler, runs) = paused();
        let mut takes = 250 * MS;
        let work = {
            let runs = runs.clone();
            move || {
                runs.note("a");
                sleep(std::mem::replace(&mut takes, 10 * MS))
            }
        };
        drop(scheduler.task().missed_tick(missed).every(100 * MS, work));
        sleep(640 * MS).await;
        assert_eq!(runs.taken(), expected, "{missed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn up_to_five_milliseconds_late_is_on_time() {
    for missed in [MissedTick::Skip, MissedTick::Delay] {
        let (scheduler, runs) = paused();
        let options = scheduler.task().missed_tick(missed);
        drop(options.every(100 * MS, runs.work("a")));
        sleep(MS).await;
        advance(104 * MS).await;
        sleep(105 * MS).await;
        assert_eq!(runs.taken(), "105 a, 200 a", "{missed:?}");
    }
}

#[tokio::test]
async fn the_first_run_may_be_at_once() {
    let (clock, scheduler, runs) = manual();
    scheduler.run_for(&clock, 50 * MS).await;
    drop(
        scheduler
            .task()
            .immediately()
            .every(100 * MS, runs.work("rate")),
    );
    let options = scheduler.task().immediately();
    drop(options.every_after_completion(80 * MS, runs.work("delay")));
    scheduler.settled().await;
    assert_eq!(runs.taken(), "50 rate, 50 delay");
    scheduler.run_for(&clock, 210 * MS).await;
    assert_eq!(runs.taken(), "130 delay, 150 rate, 210 delay, 250 rate");
}

#[tokio::test]
async fn the_default_policy_is_that_of_the_builder() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock.clone());
    let scheduler = builder.missed_tick(MissedTick::Skip).build().unwrap();
    let runs = Runs::new(clock.clone());
    drop(scheduler.every(S, runs.work("skip")));
    let options = scheduler.task().missed_tick(MissedTick::Delay);
    drop(options.every(S, runs.work("delay")));
    clock.advance(3500 * MS);
    scheduler.settled().await;
    scheduler.run_for(&clock, S).await;
    assert_eq!(runs.taken(), "3500 skip, 3500 delay, 4000 skip, 4500 delay");
}

#[tokio::test]
async fn an_hour_of_schedule_runs_in_order() {
    let (clock, scheduler, runs) = manual();
    let mut expected = Vec::new();
    for (name, seconds) in [("a", 1), ("b", 7), ("c", 60), ("d", 61), ("e", 900)] {
        drop(scheduler.every(Duration::from_secs(seconds), runs.work(name)));
        expected.extend((1..=3600 / seconds).map(|k| (k * seconds * 1000, name)));
    }
    for (name, seconds) in [("x", 1800), ("y", 3599), ("z", 3601)] {
        drop(scheduler.after(Duration::from_secs(seconds), runs.work(name)));
        expected.extend((seconds <= 3600).then_some((seconds * 1000, name)));
    }
    expected.sort_unstable();
    scheduler.run_for(&clock, HOUR).await;
    // Within a tick the order is that of filing, which depends on what ran before.
    let taken = runs.taken();
    let mut taken: Vec<(u64, &str)> = taken
        .split(", ")
        .map(|line| line.split_once(' ').expect("a time and a name"))
        .map(|(at, name)| (at.parse().expect("milliseconds"), name))
        .collect();
    assert!(taken.is_sorted_by_key(|(at, _)| *at));
    taken.sort_unstable();
    assert_eq!(taken, expected);
}
