//! When the breaker of a command opens, and what it lets through then.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::advance;
use wheelhouse_resilience::command::CommandError;
use wheelhouse_resilience::{Command, State};

use super::common::*;

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
