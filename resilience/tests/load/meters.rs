//! What bulkheads, limits and commands tell the `metrics` facade, and that a recorder that panics
//! changes nothing for them.

use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};
use wheelhouse_resilience::limit::{Aimd, Limiter, Sample};
use wheelhouse_resilience::{AdaptiveLimit, Bulkhead, Command, Priority, Shedder};

use crate::support::figures::Figures;

/// Panics at every figure.
struct Bomb;

fn explode() -> ! {
    panic!("a recorder that panics")
}

impl CounterFn for Bomb {
    fn increment(&self, _: u64) {
        explode()
    }
    fn absolute(&self, _: u64) {
        explode()
    }
}

impl GaugeFn for Bomb {
    fn increment(&self, _: f64) {
        explode()
    }
    fn decrement(&self, _: f64) {
        explode()
    }
    fn set(&self, _: f64) {
        explode()
    }
}

impl HistogramFn for Bomb {
    fn record(&self, _: f64) {
        explode()
    }
}

impl metrics::Recorder for Bomb {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(Bomb))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(Bomb))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Bomb))
    }
}

fn built<T>(recorder: &impl metrics::Recorder, build: impl FnOnce() -> T) -> T {
    metrics::with_local_recorder(recorder, build)
}

#[tokio::test(start_paused = true)]
async fn a_bulkhead_has_its_figures() {
    let figures = Figures::default();
    let wait = Duration::from_secs(1);
    let builder = Bulkhead::builder(1).queue(1).max_wait(wait).name("db");
    let bulkhead = built(&figures, || builder.build().unwrap());
    let held = bulkhead.try_acquire().unwrap();
    assert!(bulkhead.try_acquire().is_err());
    assert!(bulkhead.acquire().await.is_err());
    {
        let mut given_up = polled_once(bulkhead.acquire_owned());
        assert!(given_up.0);
        given_up.1 = None;
    }
    let waiting = tokio::spawn({
        let bulkhead = bulkhead.clone();
        async move { bulkhead.acquire_owned().await.map(drop) }
    });
    tokio::task::yield_now().await;
    drop(held);
    waiting.await.unwrap().unwrap();
    bulkhead.resize(4).unwrap();

    let count = |name: &str| figures.count(&format!("wheelhouse_bulkhead_{name}"));
    assert_eq!(
        figures.value("wheelhouse_bulkhead_permits,bulkhead=db"),
        4.0
    );
    assert_eq!(count("waited_total,bulkhead=db"), 1);
    for reason in ["full", "timed_out", "cancelled"] {
        let name = format!("refused_total,bulkhead=db,reason={reason}");
        assert_eq!(count(&name), 1, "{reason}");
    }
}

/// Polled once: whether it waits, and the future.
fn polled_once<F: Future + 'static>(future: F) -> (bool, Option<std::pin::Pin<Box<F>>>) {
    let mut future = Box::pin(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    (
        future.as_mut().poll(&mut context).is_pending(),
        Some(future),
    )
}

/// Its places are a bulkhead's, of its name.
#[test]
fn a_limit_has_its_figures() {
    let figures = Figures::default();
    let builder = AdaptiveLimit::builder(Aimd::default())
        .initial(20)
        .name("search");
    let limit = built(&figures, || builder.build().unwrap());
    let permits = "wheelhouse_bulkhead_permits,bulkhead=search";
    assert_eq!(figures.value(permits), 20.0);
    limit.try_acquire().unwrap().dropped();
    assert_eq!(figures.value(permits), 18.0);
    let held: Vec<_> = std::iter::from_fn(|| limit.try_acquire().ok()).collect();
    assert_eq!(held.len(), 18);
    let full = "wheelhouse_bulkhead_refused_total,bulkhead=search,reason=full";
    assert_eq!(figures.count(full), 1);
}

#[tokio::test(start_paused = true)]
async fn a_command_has_its_figures() {
    let figures = Figures::default();
    let command = built(&figures, || Command::builder("users").build().unwrap());
    let slow = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        Ok::<_, ()>(())
    };
    command.run(slow).await.unwrap();
    assert!(command.run(async { Err::<(), _>(()) }).await.is_err());
    let seconds = "wheelhouse_command_seconds,command=users";
    assert_eq!(figures.value(seconds), 0.0);
    let saved = command.run_or(async { Err::<(), _>(()) }, |_| async { Ok::<_, ()>(()) });
    saved.await.unwrap();
    let count = |event: &str| {
        figures.count(&format!(
            "wheelhouse_command_events_total,command=users,event={event}"
        ))
    };
    assert_eq!(
        [
            count("success"),
            count("failure"),
            count("fallback-success"),
            count("timeout")
        ],
        [1, 2, 1, 0]
    );
}

/// A holder that unwinds gives back what it has: a second panic there would end the process.
#[tokio::test(start_paused = true)]
async fn a_recorder_that_panics_changes_nothing() {
    let bulkhead = built(&Bomb, || Bulkhead::builder(1).build().unwrap());
    let held = bulkhead.try_acquire().unwrap();
    assert!(bulkhead.try_acquire().is_err());
    drop(held);
    assert!(bulkhead.try_acquire().is_ok());
    assert_eq!(bulkhead.stats().contained_panics, 2);

    /// One less each time.
    struct Down;
    impl Limiter for Down {
        fn update(&mut self, limit: f64, _: &Sample) -> f64 {
            limit - 1.0
        }
    }
    let limit = built(&Bomb, || AdaptiveLimit::builder(Down).build().unwrap());
    for left in [19, 18, 17] {
        limit.try_acquire().unwrap().success();
        assert_eq!(limit.limit(), left, "the rule is there for the next");
    }

    let command = built(&Bomb, || Command::builder("users").build().unwrap());
    command.run(async { Ok::<_, ()>(()) }).await.unwrap();
    let bug = tokio::spawn({
        let command = command.clone();
        async move {
            command
                .run(async { panic!("a bug") as Result<(), ()> })
                .await
        }
    });
    assert!(bug.await.unwrap_err().is_panic());
    let stats = command.stats();
    assert_eq!((stats.observer_panics, stats.in_flight), (2, 0));

    let shedder = built(&Bomb, || Shedder::builder().build().unwrap());
    let promise = shedder.try_acquire(Priority::Normal).unwrap();
    let bug = std::thread::spawn(move || {
        let _promise = promise;
        panic!("a bug");
    });
    assert!(bug.join().is_err());
    let stats = shedder.stats();
    assert_eq!(
        (stats.failed, stats.in_flight, stats.observer_panics),
        (1, 0, 1)
    );
}
