//! What a group tells recorders of metrics and subscribers of traces, and that their panics end nothing.
//!
//! A program of its own: whether anybody listens to an event is kept for the whole process, by whichever
//! thread comes to it first.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata as OfMetric,
    Recorder, SharedString, Unit,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wheelhouse_servicegroup::consume::{Consume, Queue};
use wheelhouse_servicegroup::{
    BuildError, Error, Member, Policy, Preset, Report, Restart, ServiceContext, ServiceGroup,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

async fn obedient(ctx: ServiceContext) -> Result<(), Error> {
    ctx.ready();
    ctx.stopping().await;
    tokio::time::sleep(ms(30)).await;
    Ok(())
}

/// A group in which everything happens that there is a figure for, and its end.
async fn eventful() -> Result<Report, BuildError> {
    let queue = Queue::new();
    (0..3).for_each(|message| queue.publish(message).unwrap());
    let mut group = ServiceGroup::builder()
        .preset(Preset::Test)
        .without_signals()
        .drain(ms(100))
        .on_wrap_up("flush", async || Ok(()))
        .on_after_stop("goodbye", async || Ok(()))
        .build()?;
    group.add("db", obedient)?;
    let first = Cell::new(true);
    let fails_once = move || {
        let fails = first.replace(false);
        async move |ctx: ServiceContext| {
            ctx.ready();
            if fails {
                return Err("it broke".into());
            }
            ctx.stopping().await;
            ctx.cut(2);
            Ok(())
        }
    };
    let restarts = Policy::Restart(Restart::default());
    group.add_level(Member::restartable("api", fails_once).on_error(restarts))?;
    let tried = Mutex::new(BTreeSet::new());
    let handler = move |message: Arc<u64>| {
        let again = *message != 1 || !tried.lock().unwrap().insert(*message);
        std::future::ready(if again { Ok(()) } else { Err("not now".into()) })
    };
    group.add("mq", Consume::new(queue.consumer(), handler))?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        tokio::time::sleep(ms(300)).await;
        handle.stop();
    });
    assert_eq!(queue.stats().acknowledged, 3);
    Ok(report)
}

// --- Metrics ----------------------------------------------------------------

/// Figures by `name{label=value}`, and by `name | kind | labels` which there are.
#[derive(Debug, Default)]
struct Kept {
    values: Arc<Mutex<BTreeMap<String, Vec<f64>>>>,
    kinds: Mutex<BTreeSet<String>>,
}

struct Value {
    key: String,
    values: Arc<Mutex<BTreeMap<String, Vec<f64>>>>,
}

impl Kept {
    fn value(&self, key: &Key, kind: &str) -> Arc<Value> {
        let labels = |with: fn(&metrics::Label) -> String| {
            let all: Vec<_> = key.labels().map(with).collect();
            all.join(",")
        };
        let names = labels(|it| it.key().to_owned());
        let kind = format!("{} | {kind} | {names}", key.name());
        self.kinds.lock().unwrap().insert(kind);
        let values = labels(|it| it.value().to_owned());
        Arc::new(Value {
            key: format!("{} {values}", key.name().trim_start_matches("wheelhouse_")),
            values: self.values.clone(),
        })
    }
}

impl Value {
    fn add(&self, value: f64) {
        let mut values = self.values.lock().unwrap();
        values.entry(self.key.clone()).or_default().push(value);
    }
}

impl CounterFn for Value {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, value: u64) {
        panic!("{value} is no increment");
    }
}

impl HistogramFn for Value {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &OfMetric<'_>) -> Counter {
        Counter::from_arc(self.value(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &OfMetric<'_>) -> Gauge {
        panic!("{key} is a gauge");
    }

    fn register_histogram(&self, key: &Key, _: &OfMetric<'_>) -> Histogram {
        Histogram::from_arc(self.value(key, "histogram"))
    }
}

/// The rows of the table in the crate's documentation, as [`Kept`] writes them.
fn documented() -> BTreeSet<String> {
    let source = include_str!("../src/lib.rs");
    let rows = source
        .lines()
        .filter(|it| it.starts_with("//! | `wheelhouse_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let [_, name, kind, labels, ..] = cells[..] else {
            panic!("no row: {row}");
        };
        format!("{name} | {kind} | {labels}")
            .replace('`', "")
            .replace(", ", ",")
    })
    .collect()
}

#[tokio::test(start_paused = true)]
async fn the_figures_are_those_of_the_table() -> Result<(), BuildError> {
    let kept = Kept::default();
    let report = {
        let _local = metrics::set_default_local_recorder(&kept);
        eventful().await?
    };
    assert_eq!(report.exit_code(), 0);
    assert_eq!(*kept.kinds.lock().unwrap(), documented());
    let values = kept.values.lock().unwrap();
    let of = |key: &str| values.get(key).map_or(&[][..], Vec::as_slice);
    for (service, state, times) in [
        ("api", "starting", 2),
        ("api", "restarting", 1),
        ("api", "exited", 1),
        ("db", "ready", 1),
        ("db", "draining", 1),
        ("mq", "failed", 0),
    ] {
        let key = format!("service_transitions_total {service},{state}");
        assert_eq!(of(&key).len(), times, "{key}");
    }
    assert_eq!(of("service_cut_total api"), [2.0]);
    assert_eq!(of("service_ready_seconds api"), [0.0]);
    assert_eq!(of("service_stop_seconds db"), [0.03]);
    let acknowledged = of("consumer_messages_total mq,acknowledged");
    assert_eq!(acknowledged.iter().sum::<f64>(), 3.0);
    assert_eq!(of("consumer_messages_total mq,given_back"), [1.0]);
    assert_eq!(of("group_stops_total stopped"), [1.0]);
    assert_eq!(of("group_stop_seconds "), [0.13]);
    Ok(())
}

/// A recorder with a fault of its own.
struct Faulty;

impl Recorder for Faulty {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &OfMetric<'_>) -> Counter {
        panic!("no counter {key}");
    }

    fn register_gauge(&self, key: &Key, _: &OfMetric<'_>) -> Gauge {
        panic!("no gauge {key}");
    }

    fn register_histogram(&self, key: &Key, _: &OfMetric<'_>) -> Histogram {
        panic!("no histogram {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_panics_ends_nothing() -> Result<(), BuildError> {
    let _local = metrics::set_default_local_recorder(&Faulty);
    assert_eq!(eventful().await?.exit_code(), 0);
    Ok(())
}

// --- Traces -----------------------------------------------------------------

/// Listens to all threads, and keeps for each what it was told of there.
struct Heard;

thread_local! {
    static SPANS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static EVENTS: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

/// The values of all fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wheelhouse_servicegroup")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut text = Text(attributes.metadata().name().to_owned());
        attributes.record(&mut text);
        SPANS.with_borrow_mut(|spans| spans.push(text.0));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert!(!PANICS.get(), "a subscriber's own fault");
        let mut text = Text::default();
        event.record(&mut text);
        EVENTS.with_borrow_mut(|events| events.push((*event.metadata().level(), text.0)));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// From here on this thread's events are heard.
fn listen(panics: bool) {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| tracing::subscriber::set_global_default(Heard).unwrap());
    PANICS.set(panics);
    SPANS.take();
    EVENTS.take();
}

#[tokio::test(start_paused = true)]
async fn phases_and_services_have_spans_and_states_have_events() -> Result<(), BuildError> {
    listen(false);
    assert_eq!(eventful().await?.exit_code(), 0);
    let spans = SPANS.take();
    let phases: Vec<_> = spans.iter().filter(|it| it.starts_with("phase")).collect();
    let expected = ["start", "drain", "wrap_up", "stop", "after_stop"];
    assert_eq!(
        phases,
        expected.map(|it| format!("phase name={it:?}")).each_ref()
    );
    let of = |service: &str| spans.iter().filter(|it| it.contains(service)).count();
    // One for each start.
    assert_eq!((of("\"db\""), of("\"api\""), of("\"mq\"")), (1, 2, 1));

    let events = EVENTS.take();
    let heard = |level, text: &str| {
        let found = events.iter().any(|it| it.0 == level && it.1.contains(text));
        assert!(found, "{level} {text} in {events:#?}");
    };
    heard(Level::INFO, "service=\"db\" state=ready");
    heard(Level::WARN, "service=\"api\" state=restarting");
    heard(Level::WARN, "service=\"api\" count=2");
    heard(Level::INFO, "report=report exit_code=0 outcome=stopped");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_ends_nothing() -> Result<(), BuildError> {
    listen(true);
    assert_eq!(eventful().await?.exit_code(), 0);
    Ok(())
}
