//! What commands are built from, and what they tell of their calls.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;
use wheelhouse_resilience::Command;
use wheelhouse_resilience::command::Event;

use super::common::*;

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
