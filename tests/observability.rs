//! Through the facade: what a wheel tells the `metrics` recorder and the `tracing` subscriber.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber, span};
use wheelhouse::wheel::{Executor, ManualClock, TimingWheel, WeakTimingWheel};

const MS: Duration = Duration::from_millis(1);

/// Fails if `body` takes longer than a minute.
fn within_a_minute(body: impl FnOnce() + Send + 'static) {
    let (done, outcome) = mpsc::channel();
    let thread = thread::spawn(move || {
        body();
        done.send(()).unwrap();
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = outcome.recv_timeout(Duration::from_secs(60)) {
        panic!("it hangs");
    }
    if let Err(payload) = thread.join() {
        resume_unwind(payload);
    }
}

/// Keeps what it is told by the metric's name and labels; histograms as their list of values.
#[derive(Debug, Default)]
struct Kept {
    counters: Mutex<BTreeMap<String, Arc<Count>>>,
    histograms: Mutex<BTreeMap<String, Arc<Values>>>,
    gauges: Mutex<BTreeMap<String, Arc<Level>>>,
    /// Called at each figure, as a recorder might that looks at the wheel.
    on_figure: Arc<OnFigure>,
}

type OnFigure = OnceLock<Look>;

struct Look(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

fn look(on_figure: &OnFigure) {
    if let Some(look) = on_figure.get() {
        (look.0)();
    }
}

#[derive(Debug)]
struct Count(AtomicU64, Arc<OnFigure>);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, SeqCst);
        look(&self.1);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, SeqCst);
        look(&self.1);
    }
}

#[derive(Debug)]
struct Level(Mutex<f64>, Arc<OnFigure>);

impl GaugeFn for Level {
    fn increment(&self, value: f64) {
        *self.0.lock().unwrap() += value;
        look(&self.1);
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    fn set(&self, value: f64) {
        *self.0.lock().unwrap() = value;
        look(&self.1);
    }
}

#[derive(Debug)]
struct Values(Mutex<Vec<f64>>, Arc<OnFigure>);

impl HistogramFn for Values {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
        look(&self.1);
    }
}

fn name_of(key: &Key) -> String {
    let labels: String = key
        .labels()
        .map(|label| format!(" {}={}", label.key(), label.value()))
        .collect();
    format!("{}{labels}", key.name())
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.counters.lock().unwrap();
        let counter = counters
            .entry(name_of(key))
            .or_insert_with(|| Arc::new(Count(AtomicU64::new(0), self.on_figure.clone())));
        Counter::from_arc(counter.clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut gauges = self.gauges.lock().unwrap();
        let gauge = gauges
            .entry(name_of(key))
            .or_insert_with(|| Arc::new(Level(Mutex::default(), self.on_figure.clone())));
        Gauge::from_arc(gauge.clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut histograms = self.histograms.lock().unwrap();
        let histogram = histograms
            .entry(name_of(key))
            .or_insert_with(|| Arc::new(Values(Mutex::default(), self.on_figure.clone())));
        Histogram::from_arc(histogram.clone())
    }
}

impl Kept {
    fn count(&self, name: &str) -> u64 {
        self.counters.lock().unwrap()[name].0.load(SeqCst)
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.histograms.lock().unwrap()[name]
            .0
            .lock()
            .unwrap()
            .clone()
    }
}

/// Key 3 panics.
fn callback(key: u32, (): ()) {
    if key == 3 {
        // Past the hook that would print it.
        resume_unwind(Box::new("out of stock"));
    }
}

#[test]
fn counters_and_the_histogram_reach_the_recorder_of_the_time_of_building() {
    for (executor, name) in [
        (Executor::Inline, "told-inline"),
        (Executor::Threads(2), "told-threads"),
    ] {
        within_a_minute(move || {
            let kept = Kept::default();
            let clock = ManualClock::new();
            let wheel = metrics::with_local_recorder(&kept, || {
                TimingWheel::builder()
                    .name(name)
                    .clock(clock.clone())
                    .executor(executor)
                    .build(callback)
                    .unwrap()
            });
            for key in 1..=5 {
                wheel.set_timer(key, (), MS).unwrap();
            }
            wheel.set_timer(6, (), 3600 * MS).unwrap();
            // Those that are due after 1 ms begin late by 249 ms.
            clock.advance(250 * MS);
            // A stop waits for the callbacks that run and gives back what has not begun.
            while wheel.stats().fired < 5 {
                thread::yield_now();
            }
            assert_eq!(wheel.stop(), [(6, ())]);

            let fired = format!("wheelhouse_timers_fired_total wheel={name}");
            let panics = format!("wheelhouse_timer_panics_total wheel={name}");
            let lateness = format!("wheelhouse_timer_lateness_seconds wheel={name}");
            assert_eq!((kept.count(&fired), kept.count(&panics)), (5, 1));
            let late = kept.values(&lateness);
            assert_eq!(late.len(), 5);
            assert!(
                late.iter().all(|seconds| (0.248..=0.25).contains(seconds)),
                "{late:?}"
            );
        });
    }
}

#[test]
fn a_recorder_may_look_at_the_wheel_it_is_told_about() {
    for (executor, name) in [
        (Executor::Inline, "looked-inline"),
        (Executor::Threads(2), "looked-threads"),
    ] {
        within_a_minute(move || {
            let kept = Kept::default();
            let looks = Arc::new(AtomicU64::new(0));
            let clock = ManualClock::new();
            let wheel = metrics::with_local_recorder(&kept, || {
                TimingWheel::builder()
                    .name(name)
                    .clock(clock.clone())
                    .executor(executor)
                    .build_cyclic(|wheel: WeakTimingWheel<u32, ()>| {
                        let looks = looks.clone();
                        let look = move || {
                            if let Some(wheel) = wheel.upgrade() {
                                assert!(wheel.stats().set <= 5);
                                looks.fetch_add(1, SeqCst);
                            }
                        };
                        kept.on_figure.set(Look(Box::new(look))).unwrap();
                        callback
                    })
                    .unwrap()
            });
            for key in 1..=5 {
                wheel.set_timer(key, (), MS).unwrap();
            }
            wheel.flush().unwrap();
            clock.advance(MS);
            while wheel.stats().fired < 5 {
                thread::yield_now();
            }
            assert_eq!(wheel.stop(), []);
            assert!(looks.load(SeqCst) >= 5, "at each lateness at least");
        });
    }
}

/// What all events of this process said, one line each.
static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Writes events into [`EVENTS`].
struct Writes;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0 += &format!(" {field}={value}");
    }
}

impl Subscriber for Writes {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::DEBUG
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        EVENTS.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn events_say_when_a_wheel_starts_panics_and_stops() {
    within_a_minute(|| {
        tracing::subscriber::set_global_default(Writes).expect("the only test that sets it");
        let clock = ManualClock::new();
        let wheel = TimingWheel::builder()
            .name("evented")
            .clock(clock.clone())
            .shards(2)
            .build(callback)
            .unwrap();
        for key in 1..=5 {
            wheel.set_timer(key, (), MS).unwrap();
        }
        clock.advance(MS);
        wheel.stop();
        let events = EVENTS.lock().unwrap();
        let ours: Vec<_> = events
            .iter()
            .filter(|line| line.contains("wheel=evented"))
            .collect();
        let told = format!("{ours:#?}");
        assert_eq!(ours.len(), 3, "{told}");
        for (line, words) in ours.into_iter().zip([
            ["DEBUG", "timing wheel starts", "interval=1ms", "shards=2"],
            [
                "ERROR",
                "panic contained",
                "what=callback",
                "message=out of stock",
            ],
            ["DEBUG", "timing wheel stops", "", ""],
        ]) {
            assert!(words.iter().all(|word| line.contains(word)), "{told}");
        }
    });
}
