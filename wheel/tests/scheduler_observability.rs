//! What a scheduler tells the `metrics` recorder and the `tracing` subscriber.
#![cfg(all(feature = "tokio", feature = "metrics", feature = "tracing"))]

use std::collections::BTreeMap;
use std::fmt;
use std::future::ready;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Recorder,
    SharedString, Unit,
};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};
use wheelhouse_wheel::ManualClock;
use wheelhouse_wheel::scheduler::{Retry, Scheduler, TaskHandle};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Keeps each figure as the list of what it was told.
#[derive(Debug, Default)]
struct Kept(Mutex<BTreeMap<String, Arc<Told>>>);

#[derive(Debug, Default)]
struct Told(Mutex<Vec<f64>>);

impl Told {
    fn tell(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

impl CounterFn for Told {
    fn increment(&self, value: u64) {
        self.tell(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("a scheduler counts up");
    }
}

impl GaugeFn for Told {
    fn increment(&self, by: f64) {
        let level = self.0.lock().unwrap().last().copied();
        self.tell(level.unwrap_or_default() + by);
    }

    fn decrement(&self, by: f64) {
        GaugeFn::increment(self, -by);
    }

    fn set(&self, _: f64) {
        panic!("what one caller has read another may have changed");
    }
}

impl HistogramFn for Told {
    fn record(&self, value: f64) {
        self.tell(value);
    }
}

impl Kept {
    fn register(&self, key: &Key) -> Arc<Told> {
        let labels = key.labels();
        let labels = labels.map(|label| format!(" {}={}", label.key(), label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        self.0.lock().unwrap().entry(name).or_default().clone()
    }

    /// What was told of a figure of the scheduler "told".
    fn told(&self, name: &str, label: &str) -> Vec<f64> {
        let name = format!("wheelhouse_scheduler_{name} scheduler=told{label}");
        self.0.lock().unwrap()[&name].0.lock().unwrap().clone()
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &metrics::Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key))
    }

    fn register_gauge(&self, key: &Key, _: &metrics::Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key))
    }

    fn register_histogram(&self, key: &Key, _: &metrics::Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register(key))
    }
}

/// One task that goes well, one that fails once, one that panics; all are due at 10 ms.
fn three_tasks(scheduler: &Scheduler) -> [TaskHandle<(), &'static str>; 3] {
    let named = |name: &'static str| scheduler.task().name(name);
    let mut failures = 1;
    let fails_once = move || {
        failures -= 1;
        ready(if failures == 0 {
            Err("no luck")
        } else {
            Ok(())
        })
    };
    let well = || {
        tracing::info!("at work");
        ready(Ok(()))
    };
    let panics = || {
        // Past the hook that would print it.
        resume_unwind(Box::new("boom"));
        #[expect(unreachable_code, reason = "gives the closure its type")]
        ready(Ok(()))
    };
    [
        named("well").after(10 * MS, well).unwrap(),
        named("fails")
            .retry(Retry::fixed(10 * MS))
            .after(10 * MS, fails_once)
            .unwrap(),
        named("panics").after(10 * MS, panics).unwrap(),
    ]
}

/// What a span or an event is worth is kept by `tracing` for the process, so one test at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn each_figure_reaches_the_recorder() {
    let _alone = ALONE.lock().await;
    let kept = Kept::default();
    let clock = ManualClock::new();
    let scheduler = metrics::with_local_recorder(&kept, || {
        let builder = Scheduler::builder().name("told").clock(clock.clone());
        builder.build().unwrap()
    });
    let _tasks = three_tasks(&scheduler);
    let too_late = scheduler.task().grace(MS).after(5 * MS, || ready(()));
    let pending = scheduler.after(HOUR, || ready(())).unwrap();
    assert_eq!(kept.told("tasks", "").last(), Some(&5.0));
    clock.advance(10 * MS);
    scheduler.settled().await;
    clock.advance(12 * MS);
    scheduler.settled().await;

    let runs = |outcome: &str| kept.told("runs_total", &format!(" outcome={outcome}"));
    assert_eq!(runs("succeeded"), [1.0, 1.0]);
    assert_eq!((runs("failed"), runs("panicked")), (vec![1.0], vec![1.0]));
    assert_eq!(runs("timed_out"), []);
    assert_eq!(kept.told("retries_total", ""), [1.0]);
    assert_eq!(kept.told("missed_total", ""), [1.0]);
    // Three in time, and an attempt due at 20 ms that began at 22 ms.
    assert_eq!(kept.told("lateness_seconds", ""), [0.0, 0.0, 0.0, 0.002]);
    assert_eq!(kept.told("tasks", "").last(), Some(&1.0));
    drop((too_late, pending));
}

/// Notes spans, and events with the span that they are in.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    spans: Vec<String>,
    inside: Vec<usize>,
    events: Vec<String>,
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        target.starts_with("wheelhouse") || target.starts_with("scheduler_observability")
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        let spans = &mut self.0.lock().unwrap().spans;
        spans.push(line.0);
        span::Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        let mut noted = self.0.lock().unwrap();
        if let Some(span) = noted.inside.last() {
            line.0 += &format!(" in {}", noted.spans[*span]);
        }
        noted.events.push(line.0);
    }

    fn enter(&self, span: &span::Id) {
        let number = span.into_u64() as usize - 1;
        self.0.lock().unwrap().inside.push(number);
    }

    fn exit(&self, _: &span::Id) {
        self.0.lock().unwrap().inside.pop();
    }
}

#[tokio::test]
async fn each_attempt_is_a_span_and_each_failure_an_event() {
    let _alone = ALONE.lock().await;
    let notes = Notes::default();
    // Of this thread, which is the runtime's only one.
    let _default = tracing::subscriber::set_default(notes.clone());
    let clock = ManualClock::new();
    let builder = Scheduler::builder().name("told").clock(clock.clone());
    let scheduler = builder.build().unwrap();
    let _tasks = three_tasks(&scheduler);
    for _ in 0..2 {
        clock.advance(10 * MS);
        scheduler.settled().await;
    }
    let noted = notes.0.lock().unwrap();
    assert_eq!(
        noted.spans,
        [
            "run task=well attempt=1",
            "run task=fails attempt=1",
            "run task=panics attempt=1",
            "run task=fails attempt=2"
        ]
    );
    let of = |level: Level| {
        let level = level.to_string();
        let lines = noted
            .events
            .iter()
            .filter(move |line| line.starts_with(&level));
        lines.cloned().collect::<Vec<_>>()
    };
    let starts = of(Level::DEBUG);
    assert!(starts[0].contains("scheduler starts"), "{starts:?}");
    assert!(starts[0].contains("scheduler=told"), "{starts:?}");
    assert_eq!(
        of(Level::INFO),
        ["INFO message=at work in run task=well attempt=1"]
    );
    assert_eq!(
        of(Level::WARN),
        [
            "WARN message=run failed task=fails error=\"no luck\"",
            "WARN message=run failed task=panics error=\"panicked: boom\""
        ]
    );
}
