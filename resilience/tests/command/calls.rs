//! `Command` through its public face: limits, breaker, timeouts, fallbacks, cancellation.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep};
use wheelhouse_resilience::command::{CommandError, Event, FallbackError};
use wheelhouse_resilience::{Command, State};

type Answer<T = ()> = Result<T, CommandError<&'static str>>;

const SECOND: Duration = Duration::from_secs(1);

fn command() -> Command {
    Command::builder("test").build().unwrap()
}

async fn succeed(command: &Command) -> Answer {
    command.run(async { Ok(()) }).await
}

async fn fail(command: &Command) -> Answer {
    command.run(async { Err("refused") }).await
}

fn state(command: &Command) -> State {
    command.breaker().unwrap().state()
}

/// Twenty failures, which open the breaker.
async fn open(command: &Command) {
    for _ in 0..20 {
        assert_eq!(state(command), State::Closed);
        let _ = fail(command).await;
    }
    assert_eq!(state(command), State::Open);
}

/// A fallback that takes a while.
async fn slowly<E>(time: Duration) -> Result<(), E> {
    sleep(time).await;
    Ok(())
}

/// Which of the events of all calls so far happened how often.
fn happened(command: &Command) -> Vec<(&'static str, u64)> {
    let totals = command.stats().totals;
    let all = Event::ALL.map(|event| (event.name(), totals.of(event)));
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(start_paused = true)]
async fn r15_while_open_nothing_runs_but_fallbacks_until_the_probe() {
    let command = command();
    open(&command).await;
    let runs = AtomicUsize::new(0);
    let call = || {
        let work = async {
            runs.fetch_add(1, SeqCst);
            Ok::<_, &str>("fresh")
        };
        command.run_or(work, |cause| {
            let short_circuited = matches!(cause, CommandError::ShortCircuited(_));
            ready(if short_circuited {
                Ok("stale")
            } else {
                Err(())
            })
        })
    };
    for _ in 0..50 {
        assert_eq!(call().await, Ok("stale"));
    }
    advance(Duration::from_millis(4_999)).await;
    assert_eq!(call().await, Ok("stale"));
    assert_eq!(runs.load(SeqCst), 0);
    advance(Duration::from_millis(1)).await;
    assert_eq!(call().await, Ok("fresh"));
    assert_eq!((runs.load(SeqCst), state(&command)), (1, State::Closed));
    let expected = [
        ("success", 1),
        ("failure", 20),
        ("short-circuit", 51),
        ("fallback-success", 51),
    ];
    assert_eq!(happened(&command), expected);
}

#[tokio::test(start_paused = true)]
async fn r15_one_probe_per_sleep_window_while_it_fails() {
    let command = command();
    open(&command).await;
    let runs = AtomicUsize::new(0);
    for _ in 0..999 {
        let work = async { Err::<(), _>(runs.fetch_add(1, SeqCst)) };
        let _ = command.run(work).await;
        advance(Duration::from_millis(20)).await;
    }
    // Almost twenty seconds, with a probe at 5, 10 and 15.
    assert_eq!((runs.load(SeqCst), state(&command)), (3, State::Open));
}

#[tokio::test(start_paused = true)]
async fn r16_work_beyond_its_time_is_dropped_and_writes_nothing() {
    let command = command();
    let written = AtomicBool::new(false);
    let work = async {
        sleep(SECOND * 2).await;
        written.store(true, SeqCst);
        Ok::<_, &str>(7)
    };
    assert_eq!(command.run(work).await, Err(CommandError::TimedOut(SECOND)));
    sleep(SECOND * 5).await;
    assert!(!written.load(SeqCst));
    assert_eq!(happened(&command), [("timeout", 1)]);
    // Done at the last instant is done.
    let work = async {
        sleep(SECOND).await;
        Ok::<_, &str>(7)
    };
    assert_eq!(command.run(work).await, Ok(7));
}

#[tokio::test(start_paused = true)]
async fn r22_a_probe_without_a_place_is_not_spent() {
    let command = Command::builder("test").max_concurrent(1).build().unwrap();
    open(&command).await;
    advance(SECOND * 5).await;
    let place = command.bulkhead().try_acquire().unwrap();
    for _ in 0..3 {
        // Without a fallback and with one that fails too.
        assert!(matches!(
            succeed(&command).await,
            Err(CommandError::Rejected(_))
        ));
        let result = command
            .run_or(async { Ok::<_, &str>(()) }, |_| ready(Err("nothing")))
            .await;
        assert!(matches!(
            result.unwrap_err().cause(),
            CommandError::Rejected(_)
        ));
    }
    assert_eq!(state(&command), State::HalfOpen);
    drop(place);
    assert_eq!(succeed(&command).await, Ok(()));
    assert_eq!(state(&command), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn r22_a_probe_that_is_given_up_leaves_its_place() {
    let command = command();
    open(&command).await;
    advance(SECOND * 5).await;
    let probe = tokio::spawn({
        let command = command.clone();
        async move { command.run(pending::<Result<(), &str>>()).await }
    });
    yield_now().await;
    assert!(matches!(
        succeed(&command).await,
        Err(CommandError::ShortCircuited(_))
    ));
    probe.abort();
    assert!(probe.await.is_err());
    assert_eq!(succeed(&command).await, Ok(()));
    assert_eq!(state(&command), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn opens_at_the_percentage_and_not_below() {
    let build = command;
    for (failures, opens) in [(10, true), (9, false)] {
        let command = build();
        for _ in 0..20 - failures {
            succeed(&command).await.unwrap();
        }
        for _ in 0..failures {
            assert_eq!(state(&command), State::Closed);
            let _ = fail(&command).await;
        }
        assert_eq!(state(&command) == State::Open, opens, "{failures} of 20");
    }
    // A success may make the volume.
    let command = build();
    for failed in [true, false] {
        for _ in 0..10 {
            assert_eq!(state(&command), State::Closed);
            let _ = match failed {
                true => fail(&command).await,
                false => succeed(&command).await,
            };
        }
    }
    assert_eq!(state(&command), State::Open);
    // Below the volume nothing does.
    let command = build();
    for _ in 0..19 {
        let _ = fail(&command).await;
    }
    assert_eq!(state(&command), State::Closed);
    // And what is longer ago than the window does not count.
    advance(SECOND * 11).await;
    let _ = fail(&command).await;
    assert_eq!(state(&command), State::Closed);
}

#[tokio::test(start_paused = true)]
async fn timeouts_are_failures_and_rejections_are_nothing() {
    let command = Command::builder("test")
        .timeout(SECOND / 10)
        .build()
        .unwrap();
    for _ in 0..20 {
        let _ = command.run(pending::<Answer>()).await;
    }
    assert_eq!(state(&command), State::Open);

    let command = Command::builder("test").max_concurrent(0).build().unwrap();
    for _ in 0..1000 {
        assert!(matches!(
            succeed(&command).await,
            Err(CommandError::Rejected(_))
        ));
    }
    assert_eq!(state(&command), State::Closed);
    assert_eq!(
        (happened(&command), command.stats().totals.errors()),
        (vec![("rejected", 1000)], 0)
    );
}

#[tokio::test(start_paused = true)]
async fn short_circuits_do_not_keep_it_open() {
    let command = command();
    open(&command).await;
    for _ in 0..1000 {
        let _ = succeed(&command).await;
    }
    advance(SECOND * 5).await;
    succeed(&command).await.unwrap();
    // One failure among what follows is no half of it.
    for _ in 0..19 {
        succeed(&command).await.unwrap();
    }
    let _ = fail(&command).await;
    assert_eq!(state(&command), State::Closed);
}

/// Says what was in use when it was dropped.
struct Witness(Command, Arc<Mutex<Vec<usize>>>);

impl Drop for Witness {
    fn drop(&mut self) {
        self.1.lock().unwrap().push(self.0.bulkhead().in_use());
    }
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_before_its_permit_comes_back() {
    let command = command();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let work = || {
        let witness = Witness(command.clone(), seen.clone());
        async move {
            let _witness = witness;
            pending::<Result<(), &str>>().await
        }
    };
    // Timed out, cancelled, past the deadline, and dropped.
    let _ = command.run(work()).await;
    let _ = command
        .call()
        .cancelled_by(sleep(SECOND / 4))
        .run(work())
        .await;
    let _ = command
        .call()
        .deadline(Instant::now() + SECOND / 4)
        .run(work())
        .await;
    let _ = tokio::time::timeout(SECOND / 4, command.run(work())).await;
    assert_eq!(*seen.lock().unwrap(), [1, 1, 1, 1]);
    assert_eq!(command.bulkhead().in_use(), 0);
    let expected = [("timeout", 1), ("cancelled", 2), ("deadline-exceeded", 1)];
    assert_eq!(happened(&command), expected);
}

#[tokio::test(start_paused = true)]
async fn r58_a_completed_call_that_is_kept_holds_no_permit() {
    let command = Command::builder("test").max_concurrent(1).build().unwrap();
    let mut call = Box::pin(command.run(async { Ok::<_, &str>(1) }));
    assert_eq!(call.as_mut().await, Ok(1));
    assert_eq!(command.bulkhead().in_use(), 0);
    assert_eq!(succeed(&command).await, Ok(()));
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn the_smaller_deadline_holds() {
    let command = command();
    let cases = [
        (SECOND / 2, SECOND / 2, CommandError::DeadlineExceeded),
        (SECOND * 2, SECOND, CommandError::TimedOut(SECOND)),
        // At the same instant it is the command's, which says something about what was called.
        (SECOND, SECOND, CommandError::TimedOut(SECOND)),
    ];
    for (deadline, ends_after, error) in cases {
        let start = Instant::now();
        let call = command.call().deadline(start + deadline);
        assert_eq!(call.run(pending::<Result<(), &str>>()).await, Err(error));
        let took = start.elapsed();
        assert!(
            (ends_after..ends_after + SECOND / 100).contains(&took),
            "{took:?}"
        );
    }
    let unlimited = Command::builder("test").timeout(None).build().unwrap();
    let call = unlimited.call().deadline(Instant::now() + SECOND * 3600);
    let result: Answer = call.run(pending()).await;
    assert_eq!(result, Err(CommandError::DeadlineExceeded));
}

#[tokio::test(start_paused = true)]
async fn callers_that_give_up_are_no_failures() {
    let command = command();
    for _ in 0..100 {
        let late = command.call().deadline(Instant::now() + SECOND / 100);
        let result: Answer = late.run(pending()).await;
        assert_eq!(result, Err(CommandError::DeadlineExceeded));
        let cancelled = command.call().cancelled_by(sleep(SECOND / 100));
        let result: Answer = cancelled.run(pending()).await;
        assert_eq!(result, Err(CommandError::Cancelled));
    }
    assert_eq!(state(&command), State::Closed);
    let stats = command.stats();
    assert_eq!(
        happened(&command),
        [("cancelled", 100), ("deadline-exceeded", 100)]
    );
    assert_eq!((stats.totals.errors(), stats.execution.calls), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_is_too_late_runs_nothing() {
    let command = command();
    let work = || async { panic!("it runs") };
    let result: Answer = command.call().deadline(Instant::now()).run(work()).await;
    assert_eq!(result, Err(CommandError::DeadlineExceeded));
    let result: Answer = command.call().cancelled_by(ready(())).run(work()).await;
    assert_eq!(result, Err(CommandError::Cancelled));
    let run: fn() -> Answer = || panic!("it runs");
    let blocking = command.call().cancelled_by(ready(()));
    assert_eq!(
        blocking.run_blocking(run).await,
        Err(CommandError::Cancelled)
    );
}

#[tokio::test(start_paused = true)]
async fn a_fallback_gets_the_cause_and_its_error_comes_with_it() {
    let command = command();
    let error = command
        .run_or(async { Err::<(), _>("refused") }, |cause| {
            let cause = cause.to_string();
            async move { Err(format!("no cache after {cause:?}")) }
        })
        .await
        .unwrap_err();
    assert_eq!(error.cause(), &CommandError::Failed("refused"));
    assert_eq!(
        error.fallback_error().unwrap(),
        "no cache after \"refused\""
    );
    let said = "refused; and its fallback failed: no cache after \"refused\"";
    assert_eq!(error.to_string(), said);
    assert_eq!(
        happened(&command),
        [("failure", 1), ("fallback-failure", 1)]
    );
    // No result is no reason for a fallback where there is one.
    let run = command.run_or(async { Ok::<_, &str>(1) }, |_| async {
        Err::<u8, _>("ran")
    });
    assert_eq!(run.await, Ok(1));
    let run = command.run_blocking_or(|| Err::<u8, _>("refused"), |_| async { Ok::<_, ()>(2) });
    assert_eq!(run.await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn fallbacks_have_a_limit_of_their_own() {
    let command = Command::builder("test")
        .max_concurrent(0)
        .fallback_max_concurrent(1)
        .build()
        .unwrap();
    let (release, released) = oneshot::channel::<()>();
    let slow = tokio::spawn({
        let command = command.clone();
        let work = async { Ok::<_, &str>(0) };
        async move {
            let fallback = |_: &_| async { released.await.map(|()| 1) };
            command.run_or(work, fallback).await
        }
    });
    yield_now().await;
    let run = command.run_or(async { Ok::<_, &str>(0) }, |_| async { Ok::<_, ()>(2) });
    let Err(FallbackError::Rejected { cause, full }) = run.await else {
        panic!("the only place is taken");
    };
    assert!(matches!(cause, CommandError::Rejected(_)));
    assert_eq!(full.permits, 1);
    release.send(()).unwrap();
    assert_eq!(slow.await.unwrap(), Ok(1));
    let expected = [
        ("rejected", 2),
        ("fallback-success", 1),
        ("fallback-rejected", 1),
    ];
    assert_eq!(happened(&command), expected);
}

#[tokio::test(start_paused = true)]
async fn none_switches_a_part_off() {
    let command = Command::builder("test")
        .timeout(None)
        .max_concurrent(None)
        .fallback_max_concurrent(None)
        .error_percent(None)
        .build()
        .unwrap();
    assert!(command.breaker().is_none());
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let command = command.clone();
            tokio::spawn(async move {
                let work = async {
                    sleep(SECOND * 3600).await;
                    Err::<(), _>("refused")
                };
                command.run_or(work, |_| slowly::<Infallible>(SECOND)).await
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(()));
    }
    assert_eq!(
        happened(&command),
        [("failure", 100), ("fallback-success", 100)]
    );
}

#[test]
fn arguments_out_of_range_are_named() {
    let refused = |builder: wheelhouse_resilience::command::CommandBuilder| {
        builder.build().unwrap_err().argument().to_owned()
    };
    let builder = || Command::builder("test");
    assert_eq!(refused(builder().timeout(Duration::ZERO)), "timeout");
    assert_eq!(
        refused(builder().sleep_window(Duration::ZERO)),
        "sleep_window"
    );
    assert_eq!(refused(builder().volume(0)), "volume");
    for percent in [0.0, -1.0, 100.1, f64::NAN] {
        assert_eq!(refused(builder().error_percent(percent)), "error_percent");
    }
    assert!(
        builder()
            .timeout(Duration::MAX)
            .sleep_window(Duration::MAX)
            .build()
            .is_ok()
    );
}

#[tokio::test(start_paused = true)]
async fn panics_are_failures_and_go_on() {
    let command = command();
    for blocking in [false, true] {
        for _ in 0..10 {
            let call = tokio::spawn({
                let command = command.clone();
                async move {
                    let work = || -> Answer { std::panic::resume_unwind(Box::new("on purpose")) };
                    match blocking {
                        true => drop(command.run_blocking(work).await),
                        false => drop(command.run(async { work() }).await),
                    }
                }
            });
            let payload = call.await.unwrap_err().into_panic();
            assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
        }
    }
    assert_eq!(state(&command), State::Open);
    assert_eq!(
        (happened(&command), command.stats().in_flight),
        (vec![("failure", 20)], 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_panicking_fallback_is_a_failure_of_the_fallback() {
    let command = command();
    let call = tokio::spawn({
        let command = command.clone();
        async move {
            let fallback = |_: &_| -> std::future::Ready<Result<(), ()>> {
                std::panic::resume_unwind(Box::new("on purpose"))
            };
            drop(command.run_or(async { Err("refused") }, fallback).await);
        }
    });
    assert!(call.await.unwrap_err().is_panic());
    assert_eq!(
        happened(&command),
        [("failure", 1), ("fallback-failure", 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn hooks_may_use_the_command_and_may_panic() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let known: Arc<Mutex<Option<Command>>> = Arc::default();
    let command = Command::builder("test")
        .on_event({
            let (log, known) = (log.clone(), known.clone());
            move |event| {
                let command = known.lock().unwrap().clone();
                let counted = command.map(|command| command.stats().totals.of(event.event));
                log.lock()
                    .unwrap()
                    .push((event.event, counted, event.elapsed));
                if event.event == Event::Failure {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            }
        })
        .build()
        .unwrap();
    *known.lock().unwrap() = Some(command.clone());
    let work = async {
        sleep(SECOND / 2).await;
        Err::<(), _>("refused")
    };
    let fallback = |_: &_| slowly::<()>(SECOND / 2);
    assert_eq!(command.run_or(work, fallback).await, Ok(()));
    let expected = [(Event::Failure, Some(1)), (Event::FallbackSuccess, Some(1))];
    let log = std::mem::take(&mut *log.lock().unwrap());
    assert_eq!(
        log.iter()
            .map(|entry| (entry.0, entry.1))
            .collect::<Vec<_>>(),
        expected
    );
    assert!(log[0].2 >= SECOND / 2 && log[1].2 >= SECOND);
    assert_eq!(command.stats().hook_panics, 1);
    *known.lock().unwrap() = None;
}

#[tokio::test(start_paused = true)]
async fn latencies_are_those_of_the_run_and_of_the_whole() {
    let command = command();
    for _ in 0..10 {
        let work = async {
            sleep(SECOND / 10).await;
            Err::<(), _>("refused")
        };
        let fallback = |_: &_| slowly::<()>(SECOND / 5);
        command.run_or(work, fallback).await.unwrap();
    }
    let stats = command.stats();
    let near = |found: Duration, ms: u64| {
        let right = Duration::from_millis(ms);
        assert!(
            found.abs_diff(right) <= right / 50,
            "{found:?} for {right:?}"
        );
    };
    assert_eq!((stats.execution.calls, stats.total.calls), (10, 10));
    near(stats.execution.mean, 100);
    near(stats.execution.percentiles[2], 100);
    near(stats.total.percentiles[8], 300);
}

/// Work that is always ready uses up the budget that tokio gives a task, of which the timer must not
/// need any.
#[tokio::test(start_paused = true)]
async fn busy_work_is_out_of_time_too() {
    let command = Command::builder("test")
        .timeout(SECOND / 10)
        .build()
        .unwrap();
    let long_past = Arc::new(AtomicBool::new(false));
    let time = tokio::spawn({
        let long_past = long_past.clone();
        async move {
            for _ in 0..100 {
                advance(SECOND / 100).await;
            }
            long_past.store(true, SeqCst);
        }
    });
    let work = async {
        while !long_past.load(SeqCst) {
            tokio::task::coop::consume_budget().await;
        }
        Ok(())
    };
    let result: Answer = command.run(work).await;
    assert_eq!(result, Err(CommandError::TimedOut(SECOND / 10)));
    time.await.unwrap();
}

#[test]
fn r17_durations_from_text_have_a_unit() {
    let bulkhead = || wheelhouse_resilience::Bulkhead::builder(1);
    let command = || Command::builder("users");
    assert!(bulkhead().set("max_wait", "10s").is_ok());
    assert!(bulkhead().set("max_wait", "none").is_ok());
    assert!(command().set("timeout", "10ms").is_ok());
    assert!(command().set("sleep_window", "10s").is_ok());
    let refused = [
        bulkhead().set("max_wait", "10").unwrap_err(),
        command().set("timeout", "10").unwrap_err(),
        command().set("sleep_window", "10").unwrap_err(),
        command().set("sleep_window", "none").unwrap_err(),
    ];
    for refused in refused {
        let text = refused.to_string();
        assert!(
            text.ends_with("a duration with its unit, as in 10s or 200ms"),
            "{text}"
        );
    }
    let unknown = command().set("time_out", "10s").unwrap_err();
    assert_eq!(unknown.argument(), "option");
    assert_eq!(
        bulkhead().set("permits", "-1").unwrap_err().argument(),
        "permits"
    );
}

/// 7 / 100 is not 7 hundredths in binary.
#[tokio::test(start_paused = true)]
async fn each_whole_percentage_is_met_exactly() {
    for percent in 1..=100 {
        let command = Command::builder("exact")
            .volume(100)
            .error_percent(f64::from(percent))
            .build()
            .unwrap();
        let state = || command.breaker().unwrap().state();
        for call in 0..100 {
            assert_eq!(state(), State::Closed, "{percent} % after {call} calls");
            let result = if call < 100 - percent {
                Ok(())
            } else {
                Err(())
            };
            let _ = command.run(async move { result }).await;
        }
        assert_eq!(state(), State::Open, "{percent} %");
    }
}

/// Successes that leave the window raise the rate: the next success trips, without an error.
#[tokio::test(start_paused = true)]
async fn a_success_trips_when_others_have_left_the_window() {
    let command = Command::builder("leaving").volume(20).build().unwrap();
    let call = |good: bool| command.run(async move { if good { Ok(()) } else { Err(()) } });
    for _ in 0..30 {
        let _ = call(true).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    for _ in 0..20 {
        let _ = call(false).await;
    }
    let state = || command.breaker().unwrap().state();
    assert_eq!(state(), State::Closed);
    tokio::time::sleep(Duration::from_millis(5500)).await;
    assert_eq!(call(true).await, Ok(()));
    assert_eq!(state(), State::Open);
}
