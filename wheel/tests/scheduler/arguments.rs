//! Arguments that are refused: in which words, and with the work given back.

use std::future::{Future, Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use wheelhouse_wheel::scheduler::{
    Cancel, Duplicate, Grace, MissedTick, Outcome, Refusal, Retry, ScheduleError, Scheduler,
    SchedulerBuilder, TaskHandle, TaskOptions,
};
use wheelhouse_wheel::{BuildError, Clock, ManualClock};

const S: Duration = Duration::from_secs(1);

/// Work that knows whether it is still there.
fn work(alive: &Arc<()>) -> impl FnMut() -> Ready<()> + Send + use<> {
    let alive = alive.clone();
    move || {
        let _ = &alive;
        ready(())
    }
}

/// The words of a refusal, after a look at what was given back.
fn words<T, E, F>(alive: &Arc<()>, answer: Result<TaskHandle<T, E>, ScheduleError<F>>) -> String {
    let error = answer.expect_err("it is refused");
    assert!(Arc::strong_count(alive) > 1, "the work is in the error");
    let words = error.to_string();
    assert_eq!(words, error.refusal().to_string());
    drop(error.into_work());
    assert_eq!(Arc::strong_count(alive), 1, "nothing else is left of it");
    words
}

async fn refused(task: impl FnOnce(TaskOptions) -> TaskOptions, expected: &str) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock).build().unwrap();
    let alive = Arc::new(());
    let options = task(scheduler.task());
    let task = || options.clone();
    assert_eq!(words(&alive, task().every(S, work(&alive))), expected);
    let delay = task().every_after_completion(S, work(&alive));
    assert_eq!(words(&alive, delay), expected);
    let held = alive.clone();
    let blocking = task().every_blocking(S, move || drop(held.clone()));
    assert_eq!(words(&alive, blocking), expected);
    #[cfg(feature = "cron")]
    {
        let cron = task().cron("* * * * *", "UTC", work(&alive));
        assert_eq!(words(&alive, cron), expected);
    }
    assert!(scheduler.is_empty());
    assert_eq!(scheduler.stats().scheduled, 0);
}

async fn refused_once(task: impl FnOnce(TaskOptions) -> TaskOptions, expected: &str) {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let alive = Arc::new(());
    let options = task(scheduler.task());
    let task = || options.clone();
    assert_eq!(words(&alive, task().after(S, work(&alive))), expected);
    let at = task().at(clock.now() + S, work(&alive));
    assert_eq!(words(&alive, at), expected);
    let held = alive.clone();
    let blocking = task().after_blocking(S, move || drop(held.clone()));
    assert_eq!(words(&alive, blocking), expected);
    assert!(scheduler.is_empty());
}

#[tokio::test]
async fn what_no_task_can_have() {
    for (task, expected) in [
        (
            (|task| task.timeout(Duration::ZERO)) as fn(TaskOptions) -> TaskOptions,
            "timeout: 0ns is not allowed, it must be more than 0",
        ),
        (
            |task| task.max_concurrent(0),
            "max_concurrent: 0 is not allowed, it must be 1 or more",
        ),
        (
            |task| task.retry(Retry::fixed(S).max_attempts(0)),
            "retry.max_attempts: 0 is not allowed, it must be 1 or more",
        ),
        (
            |task| task.retry(Retry::fixed(S).factor(0.5)),
            "retry.factor: 0.5 is not allowed, it must be 1 or more",
        ),
        (
            |task| task.retry(Retry::fixed(S).factor(f64::NAN)),
            "retry.factor: NaN is not allowed, it must be 1 or more",
        ),
        (
            |task| task.retry(Retry::fixed(S).factor(f64::INFINITY)),
            "retry.factor: inf is not allowed, it must be 1 or more",
        ),
        (
            |task| task.retry(Retry::fixed(S).jitter(1.5)),
            "retry.jitter: 1.5 is not allowed, it must be 0 to 1",
        ),
        (
            |task| task.retry(Retry::fixed(S).jitter(-0.1)),
            "retry.jitter: -0.1 is not allowed, it must be 0 to 1",
        ),
        (
            |task| task.retry(Retry::fixed(S).jitter(f64::NAN)),
            "retry.jitter: NaN is not allowed, it must be 0 to 1",
        ),
    ] {
        refused(task, expected).await;
        refused_once(task, expected).await;
    }
    let limit = "run_limit: 0 is not allowed, it must be 1 or more";
    refused(|task| task.run_limit(0), limit).await;
}

#[tokio::test]
async fn what_is_for_tasks_that_recur() {
    let immediately =
        "immediately: true is not allowed, it must be left out of a task that runs once";
    refused_once(TaskOptions::immediately, immediately).await;
    let limit = "run_limit: 3 is not allowed, it must be left out of a task that runs once";
    refused_once(|task| task.run_limit(3), limit).await;
}

#[tokio::test]
async fn what_would_have_no_effect() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock).build().unwrap();
    let alive = Arc::new(());
    type Say = fn(TaskOptions) -> TaskOptions;
    let missed = "missed_tick: Skip is not allowed, it must be left out of all but `every`; for `cron` \
                  there is `coalesce`";
    let coalesce = "coalesce: true is not allowed, it must be left out of all but `cron`; for `every` \
                    there is `missed_tick`";
    let duplicate =
        "on_duplicate: Refuse is not allowed, it must be left out of a task without a key";
    let places = "max_concurrent: 2 is not allowed, it must be 1 for a task without a key, unless it is \
                  for `every` or `cron`";
    // Once, at a fixed rate, after completion, by cron; and all of them with a key.
    let table: [(Say, &str, [bool; 4], [bool; 4]); 4] = [
        (
            |task| task.missed_tick(MissedTick::Skip),
            missed,
            [true, false, true, true],
            [true, false, true, true],
        ),
        (
            |task| task.coalesce(true),
            coalesce,
            [true, true, true, false],
            [true, true, true, false],
        ),
        (
            |task| task.on_duplicate(Duplicate::Refuse),
            duplicate,
            [true; 4],
            [false; 4],
        ),
        (
            |task| task.max_concurrent(2),
            places,
            [true, false, true, false],
            [false; 4],
        ),
    ];
    for (say, expected, without_key, with_key) in table {
        for (key, refused) in [(None, without_key), (Some("k"), with_key)] {
            let task = || match key {
                Some(key) => say(scheduler.task().key(key)),
                None => say(scheduler.task()),
            };
            for (kind, refused) in refused.into_iter().enumerate() {
                let answer = match kind {
                    0 => task().after(S, work(&alive)),
                    1 => task().every(S, work(&alive)),
                    2 => task().every_after_completion(S, work(&alive)),
                    #[cfg(feature = "cron")]
                    _ => task().cron("* * * * *", "UTC", work(&alive)),
                    #[cfg(not(feature = "cron"))]
                    _ => continue,
                };
                match answer {
                    Ok(task) => assert_eq!((task.cancel(), refused), (Cancel::Cancelled, false)),
                    Err(error) => {
                        assert_eq!((error.to_string().as_str(), refused), (expected, true))
                    }
                }
            }
        }
    }
    assert!(scheduler.is_empty());
    // One run at a time is what such a task has anyway.
    drop(
        scheduler
            .task()
            .max_concurrent(1)
            .after(S, work(&alive))
            .unwrap(),
    );
}

#[tokio::test]
async fn what_the_builder_says_of_all_tasks_refuses_none() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock).coalesce(false);
    let builder = builder.missed_tick(MissedTick::Skip).retry(Retry::fixed(S));
    let scheduler = builder.build().unwrap();
    let alive = Arc::new(());
    let task = || scheduler.task();
    let tasks = [
        task().after(S, work(&alive)),
        task().every(S, work(&alive)),
        task().every_after_completion(S, work(&alive)),
        #[cfg(feature = "cron")]
        task().cron("* * * * *", "UTC", work(&alive)),
    ];
    assert!(tasks.iter().all(Result::is_ok));
    assert!(task().after_once(S, ready(())).is_ok());
}

#[tokio::test]
async fn periods_and_delays_of_zero() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock).build().unwrap();
    let alive = Arc::new(());
    let zero = Duration::ZERO;
    assert_eq!(
        words(&alive, scheduler.every(zero, work(&alive))),
        "every: 0ns is not allowed, it must be more than 0"
    );
    assert_eq!(
        words(&alive, scheduler.every_after_completion(zero, work(&alive))),
        "every_after_completion: 0ns is not allowed, it must be more than 0"
    );
    let held = alive.clone();
    let blocking = scheduler.every_blocking(zero, move || drop(held.clone()));
    assert_eq!(
        words(&alive, blocking),
        "every_blocking: 0ns is not allowed, it must be more than 0"
    );
    let held = alive.clone();
    let blocking = scheduler.every_after_completion_blocking(zero, move || drop(held.clone()));
    assert_eq!(
        words(&alive, blocking),
        "every_after_completion_blocking: 0ns is not allowed, it must be more than 0"
    );
}

#[tokio::test]
async fn ends_before_the_first_run() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let alive = Arc::new(());
    clock.advance(S);
    let now = clock.now();
    let task = || scheduler.task().until(now + S);
    assert_eq!(
        words(&alive, task().every(2 * S, work(&alive))),
        "until: now + 1s is not allowed, it must be the time of the first run (now + 2s) or later"
    );
    assert_eq!(
        words(&alive, task().after(3 * S, work(&alive))),
        "until: now + 1s is not allowed, it must be the time of the first run (now + 3s) or later"
    );
    assert_eq!(
        words(&alive, task().at(now + 4 * S, work(&alive))),
        "until: now + 1s is not allowed, it must be the time of the first run (now + 4s) or later"
    );
    assert_eq!(
        words(&alive, task().every(Duration::MAX, work(&alive))),
        "until: now + 1s is not allowed, it must be the time of the first run (never) or later"
    );
    let past = scheduler.task().until(now - S);
    assert_eq!(
        words(&alive, past.immediately().every(S, work(&alive))),
        "until: now - 1s is not allowed, it must be the time of the first run (now + 0ns) or later"
    );
    // What was due in the past is due now.
    drop(task().at(now - S, work(&alive)).unwrap());
    drop(task().immediately().every(S, work(&alive)).unwrap());
}

#[cfg(feature = "cron")]
#[tokio::test]
async fn cron_expressions_zones_and_ends() {
    let clock = ManualClock::starting_at(std::time::SystemTime::UNIX_EPOCH);
    let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
    let alive = Arc::new(());
    let zone = "UTC";
    for (expression, zone, expected) in [
        ("61 * * * *", zone, r#"minute "61": "61" is not in 0..=59"#),
        ("* 25 * * *", zone, r#"hour "25": "25" is not in 0..=23"#),
        (
            "* * * *",
            zone,
            "cron expression \"* * * *\": 4 fields, expected 5 (minute, hour, day of month, month, day of week) or 6 with the second first",
        ),
        (
            "* * * * *",
            "Mars/Olympus",
            "time zone \"Mars/Olympus\": expected an IANA name such as UTC, Europe/Berlin or America/New_York",
        ),
        (
            "0 0 30 2 *",
            zone,
            "cron: \"0 0 30 2 *\" is not allowed, it must be an expression with a time in the next 100 years",
        ),
    ] {
        let cron = scheduler.cron(expression, zone, work(&alive));
        assert_eq!(words(&alive, cron), expected);
        let held = alive.clone();
        let cron = scheduler.cron_blocking(expression, zone, move || drop(held.clone()));
        assert_eq!(words(&alive, cron), expected);
    }
    let options = scheduler.task().until(clock.now() + S);
    assert_eq!(
        words(&alive, options.cron("0 1 * * *", zone, work(&alive))),
        "until: now + 1s is not allowed, it must be the time of the first run (now + 3600s) or later"
    );
}

#[tokio::test]
async fn what_futures_and_blocking_work_cannot_have() {
    let clock = ManualClock::new();
    let scheduler = Scheduler::builder().clock(clock).build().unwrap();
    let alive = Arc::new(());
    let held = alive.clone();
    let once = scheduler.task().retry(Retry::fixed(S));
    let once = once.after_once(S, async move { drop(held) });
    assert_eq!(
        words(&alive, once),
        "retry: Retry { base: 1s, factor: 1.0, max_delay: 1s, jitter: 0.0, max_attempts: 5, .. } \
         is not allowed, it must be left out for a future, which runs but once: give `after` a \
         closure"
    );
    let held = alive.clone();
    let options = scheduler.task().max_concurrent(2);
    let blocking = options
        .clone()
        .every_blocking(S, move || drop(held.clone()));
    assert_eq!(
        words(&alive, blocking),
        "max_concurrent: 2 is not allowed, it must be 1 for blocking work that recurs: its closure \
         runs on one thread at a time"
    );
    // What counts from the end of its runs does not overlap, so that the key may have two places.
    let held = alive.clone();
    let options = options.key("k");
    let blocking = options.every_after_completion_blocking(S, move || drop(held.clone()));
    assert!(blocking.is_ok());
}

#[tokio::test]
async fn full_closed_and_duplicate() {
    let clock = ManualClock::new();
    let builder = Scheduler::builder().clock(clock).max_pending(1);
    let scheduler = builder.build().unwrap();
    let alive = Arc::new(());
    let first = scheduler.task().key("k").after(S, || ready(()));
    assert_eq!(
        words(&alive, scheduler.every(S, work(&alive))),
        "the pending limit is reached; schedule again when tasks have ended, or build with a \
         larger `max_pending`"
    );
    drop(first);
    let _ = scheduler.shutdown(Grace::cancel_pending()).await;
    assert_eq!(
        words(&alive, scheduler.after(S, work(&alive))),
        "the scheduler is shut down; build a new one to go on"
    );
    let key: Arc<str> = "a \"quoted\" key".into();
    assert_eq!(
        Refusal::Duplicate { key }.to_string(),
        r#"a task with the key "a \"quoted\" key" is scheduled; cancel it, or replace it with `Duplicate::Replace`"#
    );
}

#[tokio::test]
async fn settings_of_the_builder() {
    for (builder, expected) in [
        (
            (|it| it.interval(Duration::ZERO)) as fn(SchedulerBuilder) -> SchedulerBuilder,
            "interval: 0ns is not allowed, it must be more than 0",
        ),
        (
            |it| it.max_pending(0),
            "max_pending: 0 is not allowed, it must be 1 or more",
        ),
        (
            |it| it.max_concurrent_runs(0),
            "max_concurrent_runs: 0 is not allowed, it must be 1 or more",
        ),
        (
            |it| it.events(0),
            "events: 0 is not allowed, it must be 1 to 16777216",
        ),
        (
            |it| it.events(16_777_217),
            "events: 16777217 is not allowed, it must be 1 to 16777216",
        ),
        (
            |it| it.name("a\0b"),
            "name: \"a\\0b\" is not allowed, it must be without NUL characters",
        ),
        (
            |it| it.max_concurrent_per_key(0),
            "max_concurrent_per_key: 0 is not allowed, it must be 1 or more",
        ),
        (
            |it| it.run_limit(0),
            "run_limit: 0 is not allowed, it must be 1 or more",
        ),
        (
            |it| it.timeout(Duration::ZERO),
            "timeout: 0ns is not allowed, it must be more than 0",
        ),
        (
            |it| it.retry(Retry::fixed(S).max_attempts(0)),
            "retry.max_attempts: 0 is not allowed, it must be 1 or more",
        ),
    ] {
        let error = builder(Scheduler::builder()).build().unwrap_err();
        assert!(matches!(error, BuildError::Argument { .. }));
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_runtime_is_needed() {
    let error = Scheduler::builder().build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "runtime: none is not allowed, it must be a tokio runtime: build inside of one, or name one"
    );
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let timeless = runtime.build().unwrap();
    let builder = Scheduler::builder().runtime(timeless.handle().clone());
    let words = builder.build().unwrap_err().to_string();
    assert!(words.starts_with("runtime: "), "{words}");
    let runtime = runtime.enable_time().build().unwrap();
    let builder = Scheduler::builder().runtime(runtime.handle().clone());
    let scheduler = builder.build().unwrap();
    let answer = scheduler.after(Duration::from_millis(1), || ready(Ok::<_, String>(42)));
    assert_eq!(runtime.block_on(answer.unwrap()), Ok(42));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_can_be_passed_on_without_the_work() {
    fn schedule<A>(scheduler: &Scheduler, work: A) -> Result<(), Refusal>
    where
        A: Future + Send + 'static,
        A::Output: Outcome,
    {
        drop(
            scheduler
                .task()
                .timeout(Duration::ZERO)
                .after_once(S, work)?,
        );
        Ok(())
    }
    let scheduler = Scheduler::builder().build().unwrap();
    let refusal = schedule(&scheduler, ready(())).unwrap_err();
    assert_eq!(
        refusal,
        Refusal::Argument {
            argument: "timeout",
            value: "0ns".to_owned(),
            allowed: "more than 0".to_owned()
        }
    );
}
