//! How calls end: in time, late, given up, in a panic; and that nothing is left of them.

use std::future::{pending, ready};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::time::{Instant, advance, sleep};
use wheelhouse_resilience::command::CommandError;
use wheelhouse_resilience::{Command, State};

use super::common::*;

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
