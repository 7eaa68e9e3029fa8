//! The event stream of commands, as the Hystrix dashboard reads it.

use std::future::pending;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};
use wheelhouse_resilience::Command;
use wheelhouse_resilience::command::Dashboard;

/// What `validateData` of the dashboard's hystrixCommand.js asserts, and what its templates and the
/// monitor use besides.
const REQUIRED: [&str; 44] = [
    "type",
    "name",
    "group",
    "currentTime",
    "reportingHosts",
    "isCircuitBreakerOpen",
    "errorPercentage",
    "errorCount",
    "requestCount",
    "rollingCountCollapsedRequests",
    "rollingCountExceptionsThrown",
    "rollingCountFailure",
    "rollingCountFallbackFailure",
    "rollingCountFallbackRejection",
    "rollingCountFallbackSuccess",
    "rollingCountResponsesFromCache",
    "rollingCountSemaphoreRejected",
    "rollingCountShortCircuited",
    "rollingCountSuccess",
    "rollingCountThreadPoolRejected",
    "rollingCountTimeout",
    "rollingCountBadRequests",
    "currentConcurrentExecutionCount",
    "latencyExecute_mean",
    "latencyExecute",
    "latencyTotal_mean",
    "latencyTotal",
    "propertyValue_circuitBreakerRequestVolumeThreshold",
    "propertyValue_circuitBreakerSleepWindowInMilliseconds",
    "propertyValue_circuitBreakerErrorThresholdPercentage",
    "propertyValue_circuitBreakerForceOpen",
    "propertyValue_circuitBreakerForceClosed",
    "propertyValue_circuitBreakerEnabled",
    "propertyValue_executionIsolationStrategy",
    "propertyValue_executionIsolationThreadTimeoutInMilliseconds",
    "propertyValue_executionIsolationThreadInterruptOnTimeout",
    "propertyValue_executionIsolationThreadPoolKeyOverride",
    "propertyValue_executionIsolationSemaphoreMaxConcurrentRequests",
    "propertyValue_fallbackIsolationSemaphoreMaxConcurrentRequests",
    "propertyValue_metricsRollingStatisticalWindowInMilliseconds",
    "propertyValue_requestCacheEnabled",
    "propertyValue_requestLogEnabled",
    "rollingCountCancelled",
    "rollingCountDeadlineExceeded",
];

fn parse(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

/// The JSON of a server-sent event.
fn data(event: &str) -> Value {
    let json = event.strip_prefix("data: ").expect("a field `data`");
    let json = json.strip_suffix("\n\n").expect("an empty line");
    assert!(!json.contains('\n'));
    parse(json)
}

#[tokio::test(start_paused = true)]
async fn every_required_key_is_there_and_says_what_happened() {
    let command = Command::builder("say \"hi\"\n")
        .max_concurrent(3)
        .build()
        .unwrap();
    let place = command.bulkhead().try_acquire().unwrap();
    for call in 0..7 {
        let work = async move {
            sleep(Duration::from_millis(20)).await;
            if call < 4 { Ok(()) } else { Err("refused") }
        };
        let _ = command.run_or(work, |_| async { Ok::<_, ()>(()) }).await;
    }
    let _ = command.run(pending::<Result<(), ()>>()).await;
    command.bulkhead().resize(1).unwrap();
    let _ = command.run(async { Ok::<_, ()>(()) }).await;
    command.breaker().unwrap().force_open();
    drop(place);
    let _ = command.run(async { Ok::<_, ()>(()) }).await;

    let json = parse(&command.snapshot_json());
    let object = json.as_object().unwrap();
    for key in REQUIRED {
        assert!(
            object.get(key).is_some_and(|value| !value.is_null()),
            "{key}"
        );
    }
    assert_eq!(object.len(), REQUIRED.len());
    let number = |key: &str| {
        json[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {json}"))
    };
    assert_eq!(
        (&json["type"], &json["name"]),
        (&"HystrixCommand".into(), &"say \"hi\"\n".into())
    );
    assert_eq!((number("requestCount"), number("errorCount")), (10, 4));
    assert_eq!(number("errorPercentage"), 50);
    assert_eq!(
        (number("rollingCountSuccess"), number("rollingCountFailure")),
        (4, 3)
    );
    assert_eq!(
        (
            number("rollingCountTimeout"),
            number("rollingCountFallbackSuccess")
        ),
        (1, 3)
    );
    assert_eq!(number("rollingCountThreadPoolRejected"), 1);
    assert_eq!(number("rollingCountShortCircuited"), 1);
    assert_eq!(json["isCircuitBreakerOpen"], true);
    assert_eq!(json["propertyValue_circuitBreakerForceOpen"], true);
    assert_eq!(
        json["propertyValue_circuitBreakerErrorThresholdPercentage"].as_f64(),
        Some(50.0)
    );
    assert_eq!(
        number("propertyValue_executionIsolationThreadTimeoutInMilliseconds"),
        1000
    );
    let percents: Vec<_> = json["latencyExecute"].as_object().unwrap().keys().collect();
    assert_eq!(percents.len(), 9);
    for percent in ["0", "25", "50", "75", "90", "95", "99", "99.5", "100"] {
        assert!(json["latencyTotal"][percent].is_u64(), "{percent}");
    }
    assert!((20..=22).contains(&json["latencyExecute"]["50"].as_u64().unwrap()));
    assert!((990..=1010).contains(&json["latencyExecute"]["100"].as_u64().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn each_command_has_an_event_a_second() {
    let commands = ["a", "b"].map(|name| Command::builder(name).build().unwrap());
    let dashboard = Dashboard::new();
    let mut stream = dashboard.stream();
    assert_eq!(stream.next().await, "ping: \n\n");
    for command in commands.iter().chain(&commands) {
        dashboard.add(command);
    }
    let start = Instant::now();
    for second in 1..=3 {
        for name in ["a", "b"] {
            assert_eq!(data(&stream.next().await)["name"], name);
            assert_eq!(start.elapsed().as_secs(), second);
        }
    }
    // A reader that was away gets what is so now, once.
    sleep(Duration::from_secs(10)).await;
    for name in ["a", "b"] {
        assert_eq!(data(&stream.next().await)["name"], name);
    }
    let [a, b] = commands;
    let before = Instant::now();
    drop(a);
    assert_eq!(data(&stream.next().await)["name"], "b");
    assert_eq!(before.elapsed().as_secs(), 1);
    drop(b);
    assert_eq!(stream.next().await, "ping: \n\n");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_one_of_the_futures_crate() {
    use futures_core::Stream;

    let dashboard = Dashboard::new();
    let command = Command::builder("a").build().unwrap();
    dashboard.add(&command);
    let mut stream = std::pin::pin!(dashboard.stream());
    let next = std::future::poll_fn(|context| stream.as_mut().poll_next(context));
    assert_eq!(data(&next.await.unwrap())["name"], "a");
}
