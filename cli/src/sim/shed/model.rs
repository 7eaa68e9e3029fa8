//! The modelled server, its arrivals, and one run of a load.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use wheelhouse_resilience::{Priority, Promise, Shedder};
use wheelhouse_wheel::Clock;

/// How long a load lasts.
pub(super) const LOAD_SECONDS: u64 = 30;
/// How long the little that follows it lasts.
const AFTER_SECONDS: u64 = 10;
/// What is little, before the load and after it.
const LITTLE: f64 = 0.1;
/// Latencies are those of the last seconds of the load.
const MEASURED_SECONDS: u64 = 15;

const SECOND: u64 = 1_000_000_000;
const SEED: u64 = 1;

/// How requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrivals {
    Even,
    Poisson,
}

/// Processors that requests wait for in one line, and how it is loaded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server {
    pub(super) cores: usize,
    pub(super) service: Duration,
    pub(super) arrivals: Arrivals,
    /// How long little is offered before the load.
    pub(super) idle: Duration,
}

/// What became of a load; times in milliseconds.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) offered: u64,
    pub(super) admitted: u64,
    pub(super) goodput: f64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) first_shed_ms: Option<f64>,
    pub(super) last_shed_ms: Option<f64>,
}

impl Server {
    /// Requests a second.
    pub(super) fn capacity(&self) -> f64 {
        self.cores as f64 / self.service.as_secs_f64()
    }

    /// Offers little for a while, `load` times the capacity, and little again, until every request
    /// that was let in is answered.
    pub(super) fn run(&self, load: f64) -> Outcome {
        let start = nanos(self.idle);
        let end = start + LOAD_SECONDS * SECOND;
        let mut run = Run::new(*self, end - MEASURED_SECONDS * SECOND..end);
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut offer = |run: &mut Run, from: u64, until: u64, load: f64| {
            let mean_gap = SECOND as f64 / (load * self.capacity());
            // In mean gaps since `from`; sums of whole numbers are exact.
            let mut at = 0.0;
            loop {
                if self.arrivals == Arrivals::Poisson {
                    // 1 - u is above 0, so its logarithm is finite.
                    at -= (1.0 - random.f64()).ln();
                }
                let nanos = (at * mean_gap) as u64;
                if nanos >= until - from {
                    return;
                }
                run.arrive(from + nanos);
                if self.arrivals == Arrivals::Even {
                    at += 1.0;
                }
            }
        };
        offer(&mut run, 0, start, LITTLE);
        run.answer_until(start);
        run.begin_load();
        offer(&mut run, start, end, load);
        run.answer_until(end);
        let (offered, admitted, answered) = (run.offered, run.admitted, run.answered);
        offer(&mut run, end, end + AFTER_SECONDS * SECOND, LITTLE);
        run.answer_until(u64::MAX);

        let ms = |nanos: u64| nanos as f64 / 1e6;
        let micros_in_ms = |micros: u64| micros as f64 / 1e3;
        let latency = |quantile| {
            let latencies = &run.latencies;
            (!latencies.is_empty()).then(|| micros_in_ms(latencies.value_at_quantile(quantile)))
        };
        Outcome {
            offered,
            admitted,
            goodput: answered as f64 / (self.capacity() * LOAD_SECONDS as f64),
            p50_ms: latency(0.5),
            p99_ms: latency(0.99),
            first_shed_ms: run.shed.map(|(first, _)| ms(first.saturating_sub(start))),
            last_shed_ms: run.shed.map(|(_, last)| ms(last.saturating_sub(end))),
        }
    }
}

/// The state of a run. Times are nanoseconds since its start.
struct Run {
    server: Server,
    time: Arc<Time>,
    shedder: Shedder,
    waiting: VecDeque<Request>,
    /// Being served, the one that ends first in front: all take equally long.
    served: VecDeque<(u64, Request)>,
    /// When requests arrive whose latencies are recorded.
    measured: Range<u64>,
    offered: u64,
    admitted: u64,
    answered: u64,
    /// When the first and the last were shed since the load began.
    shed: Option<(u64, u64)>,
    /// In microseconds, rounded up.
    latencies: Histogram<u64>,
}

struct Request {
    arrived: u64,
    promise: Promise,
}

impl Run {
    fn new(server: Server, measured: Range<u64>) -> Self {
        let time = Arc::new(Time::new());
        let cores = server.cores as f64;
        let (mut then, mut used_then) = (0, 0);
        let cpu = {
            let time = time.clone();
            move |_now: Instant| {
                let (now, used) = (time.nanos.load(Relaxed), time.used.load(Relaxed));
                let (wall, busy) = (now - then, used - used_then);
                (then, used_then) = (now, used);
                (wall > 0).then(|| busy as f64 / (wall as f64 * cores))
            }
        };
        let shedder = Shedder::builder()
            .clock(VirtualClock(time.clone()))
            .cpu(cpu)
            .build();
        Run {
            server,
            time,
            shedder: shedder.expect("the defaults are in range"),
            waiting: VecDeque::new(),
            served: VecDeque::new(),
            measured,
            offered: 0,
            admitted: 0,
            answered: 0,
            shed: None,
            latencies: Histogram::new(4).expect("4 digits are allowed"),
        }
    }

    /// Forgets what was before the load.
    fn begin_load(&mut self) {
        (self.offered, self.admitted, self.answered, self.shed) = (0, 0, 0, None);
    }

    /// A request at `now`; what has been answered by then comes first.
    fn arrive(&mut self, now: u64) {
        self.answer_until(now);
        self.go_to(now);
        self.offered += 1;
        match self.shedder.try_acquire(Priority::Normal) {
            Ok(promise) => {
                self.admitted += 1;
                self.waiting.push_back(Request {
                    arrived: now,
                    promise,
                });
                self.serve(now);
            }
            Err(_) => {
                let first = self.shed.map_or(now, |(first, _)| first);
                self.shed = Some((first, now));
            }
        }
    }

    /// Answers what is ready by `until`, and starts what waited for that.
    fn answer_until(&mut self, until: u64) {
        while let Some(&(ready, _)) = self.served.front()
            && ready <= until
        {
            // Before it leaves, since it has kept its processor busy so far.
            self.go_to(ready);
            let Some((_, request)) = self.served.pop_front() else {
                return;
            };
            self.answered += 1;
            if self.measured.contains(&request.arrived) {
                let latency = (ready - request.arrived).div_ceil(1000);
                self.latencies
                    .record(latency)
                    .expect("the histogram grows by itself");
            }
            request.promise.success();
            self.serve(ready);
        }
    }

    fn serve(&mut self, now: u64) {
        while self.served.len() < self.server.cores
            && let Some(request) = self.waiting.pop_front()
        {
            self.served
                .push_back((now + nanos(self.server.service), request));
        }
    }

    /// Moves on to `now`, with the processors as busy as they are.
    fn go_to(&self, now: u64) {
        let passed = now - self.time.nanos.swap(now, Relaxed);
        self.time
            .used
            .fetch_add(passed * self.served.len() as u64, Relaxed);
    }
}

/// What the shedder sees of the model. Relaxed throughout: one thread does it all, the atomics only
/// let the model share it with the shedder.
struct Time {
    start: Instant,
    nanos: AtomicU64,
    /// Nanoseconds of processor time.
    used: AtomicU64,
}

struct VirtualClock(Arc<Time>);

impl Time {
    fn new() -> Self {
        Time {
            start: Instant::now(),
            nanos: AtomicU64::new(0),
            used: AtomicU64::new(0),
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.0.start + Duration::from_nanos(self.0.nanos.load(Relaxed))
    }
}

/// Nanoseconds of a span of at most some hours.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
