//! Blocking work of a `Command`: its permit, its result when it is late, and work that never begins.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::advance;
use wheelhouse_resilience::Command;
use wheelhouse_resilience::command::{CommandError, Event};

type Answer = Result<(), &'static str>;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn r16_the_result_of_late_blocking_work_is_dropped() {
    let command = Command::builder("test").build().unwrap();
    let dropped = Arc::new(());
    let (go, wait) = mpsc::channel::<()>();
    let (begun, begins) = oneshot::channel();
    let theirs = dropped.clone();
    let work = move || {
        begun.send(()).unwrap();
        wait.recv().unwrap();
        Ok::<_, &str>(theirs)
    };
    let call = tokio::spawn({
        let command = command.clone();
        async move { command.run_blocking(work).await }
    });
    begins.await.unwrap();
    advance(SECOND).await;
    assert!(matches!(
        call.await.unwrap(),
        Err(CommandError::TimedOut(_))
    ));
    go.send(()).unwrap();
    while command.bulkhead().in_use() > 0 || Arc::strong_count(&dropped) > 1 {
        yield_now().await;
    }
    let totals = command.stats().totals;
    assert_eq!((totals.of(Event::Timeout), totals.requests()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn blocking_work_keeps_its_permit_until_it_ends() {
    let command = Command::builder("test").max_concurrent(1).build().unwrap();
    for give_up in [0, 1] {
        let (end, told) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let call = tokio::spawn({
            let command = command.clone();
            async move {
                let work = move || {
                    begun.send(()).unwrap();
                    told.recv().map_err(|_| "nobody")
                };
                command.run_blocking(work).await
            }
        });
        begins.await.unwrap();
        match give_up {
            0 => {
                advance(SECOND).await;
                assert_eq!(call.await.unwrap(), Err(CommandError::TimedOut(SECOND)));
            }
            _ => {
                call.abort();
                assert!(call.await.is_err());
            }
        }
        let stats = command.stats();
        assert_eq!(
            (stats.in_flight, stats.abandoned, stats.abandoned_running),
            (1, 1 + give_up, 1)
        );
        assert!(matches!(
            command.run(async { Answer::Ok(()) }).await,
            Err(CommandError::Rejected(_))
        ));
        end.send(()).unwrap();
        while command.stats().abandoned_running > 0 {
            yield_now().await;
        }
        assert_eq!(command.run(async { Answer::Ok(()) }).await, Ok(()));
        assert_eq!(command.stats().abandoned, 1 + give_up);
    }
}

#[test]
fn blocking_work_that_has_not_begun_in_time_never_does() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (end, told) = mpsc::channel::<()>();
        let occupied = tokio::task::spawn_blocking(move || told.recv().unwrap());
        let command = Command::builder("test").build().unwrap();
        let call = tokio::spawn({
            let command = command.clone();
            async move {
                command
                    .run_blocking(|| -> Answer { panic!("it runs") })
                    .await
            }
        });
        yield_now().await;
        assert_eq!(command.stats().in_flight, 1);
        advance(SECOND).await;
        assert!(matches!(
            call.await.unwrap(),
            Err(CommandError::TimedOut(_))
        ));
        end.send(()).unwrap();
        occupied.await.unwrap();
        while command.stats().in_flight > 0 {
            yield_now().await;
        }
        let stats = command.stats();
        assert_eq!((stats.abandoned, stats.abandoned_running), (0, 0));
        assert_eq!(command.run_blocking(|| Ok::<_, &str>(3)).await, Ok(3));
    });
}
