//! What is done instead, and its own limit and failures.

use tokio::sync::oneshot;
use tokio::task::yield_now;
use wheelhouse_resilience::Command;
use wheelhouse_resilience::command::{CommandError, FallbackError};

use super::common::*;

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
