//! Four threads and the runs themselves use one scheduler, for as many seconds as
//! `WHEELHOUSE_STRESS_SECONDS` says (2 without it). A ledger shows that every task that was accepted
//! ended once and its work was dropped once, that its outcome agrees with what it did, and that no
//! more runs were in progress than there were places.
#![cfg(feature = "tokio")]

mod support {
    pub(crate) mod ledger;
}

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::{Builder, Runtime};
use wheelhouse_wheel::scheduler::{
    Cancel, Duplicate, Grace, MissedTick, Refusal, Retry, Run, Scheduler, TaskError, TaskHandle,
    TaskOptions, TaskRef,
};
use wheelhouse_wheel::{ManualClock, SystemClock};

use support::ledger::{Ledger, Token};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs of all tasks at once.
const PLACES: i64 = 40;

/// Key `k` has `k % 3 + 1` places.
const KEYS: usize = 12;

/// Tasks in a round, at most.
const TASKS: usize = 1 << 17;

type Handle = TaskHandle<usize, String>;

/// What one task did.
#[derive(Default)]
struct Record {
    /// Attempts that began, and that came to an end of their own.
    begun: AtomicU64,
    finished: AtomicU64,
    /// One more than had begun when a cancellation won; 0 if none did.
    cancelled: AtomicU64,
    /// It runs more than once.
    repeats: AtomicBool,
    /// It keeps threads busy. When it is aborted its place is free although it goes on.
    blocks: AtomicBool,
}

struct Stress {
    ledger: Ledger,
    records: Box<[Record]>,
    /// Runs in progress, of all and of each key.
    all: AtomicI64,
    keys: [AtomicI64; KEYS],
    /// Runs that kept no place, in all of the round.
    overrun: AtomicU64,
    accepted: AtomicU64,
    handles: Mutex<Vec<(usize, Handle)>>,
    tasks: Mutex<Vec<(usize, TaskRef)>>,
    over: AtomicBool,
}

/// A run in progress, from its beginning until its future or its closure is left.
struct Place {
    stress: Arc<Stress>,
    key: Option<usize>,
}

impl Place {
    fn take(stress: &Arc<Stress>, key: Option<usize>) -> Self {
        let mut over = stress.all.fetch_add(1, SeqCst) >= PLACES;
        if let Some(key) = key {
            over |= stress.keys[key].fetch_add(1, SeqCst) > (key % 3) as i64;
        }
        stress.overrun.fetch_add(u64::from(over), SeqCst);
        Place {
            stress: stress.clone(),
            key,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.stress.all.fetch_sub(1, SeqCst);
        if let Some(key) = self.key {
            self.stress.keys[key].fetch_sub(1, SeqCst);
        }
    }
}

/// What a task captures.
struct Work {
    stress: Arc<Stress>,
    scheduler: Scheduler,
    token: Token,
    key: Option<usize>,
    seed: u64,
}

impl Work {
    fn rng(&mut self) -> SmallRng {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        SmallRng::seed_from_u64(self.seed)
    }

    /// The beginning of an attempt.
    fn begin(&mut self) -> (SmallRng, Place, usize) {
        let place = Place::take(&self.stress, self.key);
        self.stress.records[self.token.id]
            .begun
            .fetch_add(1, SeqCst);
        let mut rng = self.rng();
        if rng.random_ratio(1, 20) {
            self.stress.operate(&self.scheduler, &mut rng);
        }
        assert!(!rng.random_ratio(1, 50), "in the closure");
        (rng, place, self.token.id)
    }

    fn attempt(&mut self) -> impl Future<Output = Result<usize, String>> + Send + use<> {
        let (mut rng, place, id) = self.begin();
        let stopping = Run::current().map(|run| run.stopping());
        async move {
            match rng.random_range(0..10) {
                0..4 => {}
                4 => tokio::task::yield_now().await,
                5..8 => tokio::time::sleep(rng.random_range(0..3) * MS).await,
                8 => {
                    let stopping = stopping.expect("a run");
                    let _ = tokio::time::timeout(2 * MS, stopping.cancelled()).await;
                }
                _ => panic!("in the future"),
            }
            end(&mut rng, place, id)
        }
    }

    fn block(&mut self) -> Result<usize, String> {
        let (mut rng, place, id) = self.begin();
        if rng.random() {
            thread::sleep(rng.random_range(0..2) * MS);
        }
        end(&mut rng, place, id)
    }
}

fn end(rng: &mut SmallRng, place: Place, id: usize) -> Result<usize, String> {
    place.stress.records[id].finished.fetch_add(1, SeqCst);
    if rng.random_ratio(1, 10) {
        return Err("no".to_owned());
    }
    Ok(id)
}

impl Stress {
    fn new() -> Arc<Self> {
        Arc::new(Stress {
            ledger: Ledger::new(TASKS),
            records: (0..TASKS).map(|_| Record::default()).collect(),
            all: AtomicI64::new(0),
            keys: Default::default(),
            overrun: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            handles: Mutex::default(),
            tasks: Mutex::default(),
            over: AtomicBool::new(false),
        })
    }

    fn operate(self: &Arc<Self>, scheduler: &Scheduler, rng: &mut SmallRng) {
        if rng.random_ratio(1, 2) {
            return self.schedule(scheduler, rng);
        }
        let (id, task) = {
            let tasks = self.tasks.lock();
            if tasks.is_empty() {
                return;
            }
            // Mostly of the latest.
            let back = rng.random_range(0..tasks.len().min(200));
            tasks[tasks.len() - 1 - back].clone()
        };
        let delay = Duration::from_micros(rng.random_range(0..20_000));
        match rng.random_range(0..12) {
            0..4 => {
                if task.cancel() == Cancel::Cancelled {
                    let record = &self.records[id];
                    let begun = record.begun.load(SeqCst);
                    record.cancelled.store(begun + 1, SeqCst);
                }
            }
            4 if !self.records[id].blocks.load(SeqCst) => drop(task.abort()),
            4 => {}
            5 => drop(task.pause()),
            6..8 => drop(task.resume()),
            8 => drop(task.reschedule(delay)),
            9 => drop(task.reschedule_at(Instant::now())),
            10 => drop((task.status(), task.next_run(), task.name())),
            _ => drop((
                scheduler.stats(),
                scheduler.get("3").map(|task| task.pause()),
            )),
        }
    }

    fn schedule(self: &Arc<Self>, scheduler: &Scheduler, rng: &mut SmallRng) {
        let Some(token) = self.ledger.issue() else {
            self.over.store(true, SeqCst);
            return;
        };
        let id = token.id;
        let mut options = scheduler.task();
        let mut key = None;
        let mut places = 1;
        if rng.random_ratio(1, 3) {
            let k = rng.random_range(0..KEYS);
            key = Some(k);
            places = k % 3 + 1;
            options = options.key(k.to_string()).max_concurrent(places);
            if rng.random() {
                options = options.on_duplicate(Duplicate::Refuse);
            }
        }
        let work = Work {
            stress: self.clone(),
            scheduler: scheduler.clone(),
            token,
            key,
            seed: rng.random(),
        };
        options = vary(options, rng);
        let retries = rng.random_ratio(1, 5);
        if retries {
            let retry = Retry::exponential(MS).max_attempts(3);
            options = options.retry(retry.only_if(|failure| !failure.is_panic()));
        }
        let recurs = rng.random_ratio(1, 4);
        let repeats = &self.records[id].repeats;
        repeats.store(retries || recurs, SeqCst);
        if recurs && rng.random_ratio(4, 5) {
            options = options.run_limit(rng.random_range(1..10));
        }
        let handle = match file(options, rng, recurs, places, work) {
            Ok(handle) => handle,
            Err(refusal) => {
                let expected = matches!(refusal, Refusal::Closed | Refusal::Duplicate { .. });
                assert!(expected, "{refusal}");
                return;
            }
        };
        self.accepted.fetch_add(1, SeqCst);
        self.tasks.lock().push((id, handle.task()));
        if rng.random_ratio(3, 4) {
            self.handles.lock().push((id, handle));
        }
    }

    /// Checks what became of each task, when all is over.
    fn check(&self, runtime: &Runtime) {
        for (id, handle) in self.handles.lock().drain(..) {
            let outcome = runtime.block_on(async {
                let wait = tokio::time::timeout(Duration::from_secs(20), handle);
                wait.await
                    .unwrap_or_else(|_| panic!("task {id} does not end"))
            });
            let record = &self.records[id];
            let (begun, finished) = (record.begun.load(SeqCst), record.finished.load(SeqCst));
            let agrees = match &outcome {
                Ok(id_again) => *id_again == id && finished > 0,
                Err(TaskError::Failed(_)) => finished > 0,
                Err(TaskError::Panicked(_)) => begun > 0,
                Err(TaskError::Cancelled | TaskError::Missed(_)) => {
                    begun == 0 || record.repeats.load(SeqCst)
                }
                Err(TaskError::TimedOut(_) | TaskError::Aborted | TaskError::Abandoned) => true,
                Err(error) => panic!("{error}"),
            };
            assert!(agrees, "task {id}: {outcome:?}, {begun} begun");
        }
        for (id, record) in self.records.iter().enumerate() {
            let (begun, cancelled) = (record.begun.load(SeqCst), record.cancelled.load(SeqCst));
            assert!(
                cancelled == 0 || begun < cancelled,
                "task {id}: {begun} had begun, {cancelled} - 1 when it was cancelled"
            );
        }
        assert_eq!(self.overrun.load(SeqCst), 0, "runs without a place");
    }
}

/// Chooses among what makes no difference to what is checked.
fn vary(options: TaskOptions, rng: &mut SmallRng) -> TaskOptions {
    let mut options = options.priority(rng.random_range(-2..3));
    if rng.random_ratio(1, 5) {
        options = options.timeout(rng.random_range(1..4) * MS);
    }
    if rng.random_ratio(1, 5) {
        options = options.grace(rng.random_range(0..4) * MS);
    }
    if rng.random_ratio(1, 5) {
        options = options.jitter(5 * MS);
    }
    options
}

fn file(
    options: TaskOptions,
    rng: &mut SmallRng,
    recurs: bool,
    places: usize,
    mut work: Work,
) -> Result<Handle, Refusal> {
    let delay = match rng.random_range(0..10) {
        0 => Duration::ZERO,
        1 => HOUR,
        _ => Duration::from_micros(rng.random_range(0..20_000)),
    };
    let period = Duration::from_micros(rng.random_range(500..5000));
    let blocks = rng.random_ratio(1, 10) && places == 1;
    work.stress.records[work.token.id]
        .blocks
        .store(blocks, SeqCst);
    let kind = rng.random_range(0..2);
    let options = match (recurs, blocks, kind) {
        (true, false, 0) | (true, true, _) => {
            let policies = [MissedTick::Burst, MissedTick::Delay, MissedTick::Skip];
            options.missed_tick(policies[rng.random_range(0..3)])
        }
        _ => options,
    };
    Ok(match (recurs, blocks, kind) {
        (false, false, 0) => options.after(delay, move || work.attempt())?,
        (false, false, _) => options.at(Instant::now() + delay, move || work.attempt())?,
        (false, true, _) => options.after_blocking(delay, move || work.block())?,
        (true, false, 0) => options.every(period, move || work.attempt())?,
        (true, false, _) => options.every_after_completion(period, move || work.attempt())?,
        (true, true, _) => options.every_blocking(period, move || work.block())?,
    })
}

/// How a round ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Cancel,
    Drain,
    FromInside,
    DropScheduler,
    DropRuntime,
}

fn round(seed: u64, until: Instant) -> u64 {
    const ENDS: [End; 5] = [
        End::Cancel,
        End::Drain,
        End::FromInside,
        End::DropScheduler,
        End::DropRuntime,
    ];
    let end = ENDS[(seed % 5) as usize];
    let workers = 1 + (seed / 5 % 3) as usize;
    let runtime = || {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).enable_time();
        builder.build().expect("a runtime")
    };
    let (runtime, elsewhere) = (runtime(), runtime());
    let clock = ManualClock::new();
    let builder = Scheduler::builder()
        .runtime(runtime.handle().clone())
        .max_concurrent_runs(PLACES as usize)
        .seed(seed);
    let builder = match seed % 3 {
        0 => builder,
        1 => builder.clock(SystemClock),
        _ => builder.clock(clock.clone()),
    };
    let scheduler = builder.build().expect("legal");
    let mut events = scheduler.events();
    let stress = Stress::new();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (stress, scheduler) = (&stress, &scheduler);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed << 8 | thread);
                while !stress.over.load(SeqCst) && Instant::now() < until {
                    for _ in 0..20 {
                        stress.operate(scheduler, &mut rng);
                    }
                    thread::yield_now();
                }
                stress.over.store(true, SeqCst);
            });
        }
        scope.spawn(|| {
            while !stress.over.load(SeqCst) {
                clock.advance(Duration::from_micros(300));
                while let Ok(Some(_)) | Err(wheelhouse_wheel::scheduler::EventError::Lagged(_)) =
                    events.try_next()
                {}
            }
        });
    });
    let late = AtomicUsize::new(0);
    let mut stays = Some(runtime);
    let ticking = AtomicBool::new(true);
    thread::scope(|scope| {
        // Deadlines of a shutdown are on the scheduler's clock.
        scope.spawn(|| {
            while ticking.load(SeqCst) {
                clock.advance(MS);
                thread::sleep(Duration::from_micros(200));
            }
        });
        let report = match end {
            End::Cancel => {
                let grace = Grace::cancel_pending().timeout(100 * MS);
                Some(elsewhere.block_on(scheduler.shutdown(grace)))
            }
            End::Drain => Some(elsewhere.block_on(scheduler.drain_until(50 * MS))),
            End::FromInside => {
                let inside = scheduler.clone();
                // Before all those that make up for what they missed, of which there may be no end.
                let options = scheduler.task().name("ends it").priority(i8::MAX);
                let ends = options.after(MS, move || {
                    let inside = inside.clone();
                    async move {
                        let grace = Grace::run_pending().timeout(50 * MS);
                        Ok::<_, String>(inside.shutdown(grace).await)
                    }
                });
                elsewhere.block_on(ends.expect("open")).ok()
            }
            End::DropScheduler => None,
            End::DropRuntime => {
                drop(stays.take());
                None
            }
        };
        if let Some(report) = report {
            let sum: u64 = report.by_name.values().map(|endings| endings.total()).sum();
            assert_eq!(sum, report.all.total());
            // Abandoned ones go on, but nothing begins.
            let begun = || -> u64 { stress.records.iter().map(|r| r.begun.load(SeqCst)).sum() };
            let before = begun();
            thread::sleep(2 * MS);
            late.store((begun() - before) as usize, SeqCst);
        }
        ticking.store(false, SeqCst);
    });
    assert_eq!(late.load(SeqCst), 0, "runs began after the end: {end:?}");
    if matches!(end, End::DropScheduler) {
        // The closures hold clones of it, and it ends with the last of them.
        drop(scheduler);
        let abort_all = || {
            let tasks = stress.tasks.lock().clone();
            let left = tasks.iter().filter(|(id, task)| {
                let blocks = stress.records[*id].blocks.load(SeqCst);
                let won = if blocks { task.cancel() } else { task.abort() };
                won != Cancel::Ended
            });
            left.count()
        };
        let give_up = Instant::now() + Duration::from_secs(20);
        while abort_all() > 0 {
            assert!(Instant::now() < give_up, "tasks go on");
            thread::sleep(MS);
        }
        stress.check(&elsewhere);
        drop(stays);
    } else {
        stress.check(&elsewhere);
        // Waits for blocking runs that were abandoned.
        drop(stays);
        // A driver that is a thread goes its own way when the runtime ends.
        let give_up = Instant::now() + Duration::from_secs(20);
        while matches!(end, End::DropRuntime) && scheduler.stats().in_progress > 0 {
            assert!(Instant::now() < give_up, "runs go on");
            thread::sleep(MS);
        }
        let stats = scheduler.stats();
        let accepted = stress.accepted.load(SeqCst) + u64::from(matches!(end, End::FromInside));
        assert_eq!(stats.scheduled, accepted, "{end:?} {stats:?}");
        assert_eq!((stats.live, stats.in_progress), (0, 0), "{end:?} {stats:?}");
        let ended = stats.succeeded + stats.failed + stats.panicked + stats.timed_out;
        assert_eq!(stats.started, ended + stats.aborted, "{end:?} {stats:?}");
        drop(scheduler);
    }
    stress.tasks.lock().clear();
    assert_eq!(stress.all.load(SeqCst), 0, "{end:?}");
    // Each work was dropped once, whether its task was accepted or not.
    let accepted = stress.accepted.load(SeqCst);
    assert!(stress.ledger.close() as u64 >= accepted);
    accepted
}

#[test]
fn every_task_ends_once() {
    let seconds = match std::env::var("WHEELHOUSE_STRESS_SECONDS") {
        Ok(seconds) => seconds.parse().expect("a number of seconds"),
        Err(_) => 2.0,
    };
    // The panics of the tasks are meant, and would be all of the output.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let words = info.payload().downcast_ref::<&str>();
        if words.is_none_or(|words| !words.starts_with("in the ")) {
            report(info);
        }
    }));
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut tasks = 0;
    for seed in 0.. {
        let now = Instant::now();
        if now >= end {
            break;
        }
        // Short rounds, so that there are many ends.
        tasks += round(seed, end.min(now + 150 * MS));
    }
    println!("{tasks} tasks");
    assert!(tasks > 0);
}
