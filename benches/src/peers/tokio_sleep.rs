//! `tokio_sleep`: one task per timer, `tokio::spawn` and `sleep_until`.
//!
//! Settings: a multi-thread runtime with one worker per core, without I/O. The callers are tasks on
//! the workers that yield after 64 operations, so that what they spawn goes to the worker's own
//! queue and is polled while it is in the cache, which was faster than threads outside.
//! The timer's task is no larger than the sleep, the key, the value, a pointer and two flags. A timer has no handle but its task's, so to
//! move one is to abort its task and to spawn another, and to remove one is to abort its task; with
//! `KEYED` each calling thread keeps the abort handles of its own timers in a map of its own, which
//! no other thread contends for, and without it (workloads that only set) there is no map.
//!
//! A set is applied at the task's first poll, which registers the sleep; a removal when the aborted
//! task is gone.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::sleep_until;

use super::{Caller, KeyedTimers, Left, Recorder};

/// Operations after which a caller lets its worker turn to the tasks it has spawned.
const YIELD_AFTER: u64 = 64;

/// The adapter.
#[derive(Debug)]
pub struct TokioSleep<const KEYED: bool> {
    runtime: Runtime,
    shared: &'static Shared,
}

/// What the tasks and the callers count. Relaxed throughout: nothing is read through the counters
/// but themselves, and `flush` waits until they agree.
#[derive(Debug)]
struct Shared {
    recorder: &'static Recorder,
    spawned: AtomicU64,
    aborted: AtomicU64,
    /// Tasks polled once, or dropped before that.
    settled: AtomicU64,
    stopping: AtomicBool,
    left: Mutex<Left>,
}

impl<const KEYED: bool> KeyedTimers for TokioSleep<KEYED> {
    type Caller = Spawner<KEYED>;

    fn start(recorder: &'static Recorder) -> Self {
        let workers = thread::available_parallelism().map_or(2, usize::from);
        Self {
            runtime: Builder::new_multi_thread()
                .worker_threads(workers)
                .enable_time()
                .build()
                .expect("threads for the runtime's workers"),
            shared: Box::leak(Box::new(Shared {
                recorder,
                spawned: AtomicU64::new(0),
                aborted: AtomicU64::new(0),
                settled: AtomicU64::new(0),
                stopping: AtomicBool::new(false),
                left: Mutex::new(Left::default()),
            })),
        }
    }

    fn caller(&self) -> Spawner<KEYED> {
        Spawner {
            runtime: self.runtime.handle().clone(),
            shared: self.shared,
            handles: HashMap::default(),
            spawned: 0,
            aborted: 0,
        }
    }

    fn drive<S>(&self, callers: Vec<Spawner<KEYED>>, count: u64, step: S)
    where
        S: Fn(&mut Spawner<KEYED>, u64, u64) + Clone + Send + 'static,
    {
        let callers = (0..).zip(callers).map(|(place, mut caller)| {
            let step = step.clone();
            self.runtime.spawn(async move {
                for number in 0..count {
                    step(&mut caller, place, number);
                    if number % YIELD_AFTER == YIELD_AFTER - 1 {
                        yield_now().await;
                    }
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        for caller in callers {
            self.runtime
                .block_on(caller)
                .expect("the callers do not panic");
        }
    }

    fn flush(&self) {
        let spawned = self.shared.spawned.load(Relaxed);
        let live = spawned - self.shared.aborted.load(Relaxed);
        let metrics = self.runtime.metrics();
        while self.shared.settled.load(Relaxed) < spawned || metrics.num_alive_tasks() as u64 > live
        {
            thread::sleep(Duration::from_micros(50));
        }
    }

    fn stop(self) -> Left {
        self.shared.stopping.store(true, Relaxed);
        // Drops every task that has not ended, on this thread and on the workers, and joins them.
        drop(self.runtime);
        *self.shared.left.lock()
    }
}

/// One calling thread's side.
#[derive(Debug)]
pub struct Spawner<const KEYED: bool> {
    runtime: Handle,
    shared: &'static Shared,
    handles: HashMap<u64, (AbortHandle, u64), RandomState>,
    spawned: u64,
    aborted: u64,
}

impl<const KEYED: bool> Spawner<KEYED> {
    fn spawn(&mut self, key: u64, value: u64, due: Instant) {
        let task = Pending {
            key,
            value,
            shared: self.shared,
            settled: false,
            fired: false,
        };
        let handle = self.runtime.spawn(async move {
            // One capture, so that the task holds the value once.
            let mut task = task;
            let mut sleep = pin!(sleep_until(due.into()));
            std::future::poll_fn(|cx| {
                let poll = sleep.as_mut().poll(cx);
                task.settle();
                poll
            })
            .await;
            task.fire();
        });
        self.spawned += 1;
        if KEYED {
            let replaced = self.handles.insert(key, (handle.abort_handle(), value));
            if let Some((replaced, _)) = replaced {
                replaced.abort();
                self.aborted += 1;
            }
        }
    }
}

impl<const KEYED: bool> Caller for Spawner<KEYED> {
    fn publish(&mut self) {
        self.shared.spawned.fetch_add(self.spawned, Relaxed);
        self.shared.aborted.fetch_add(self.aborted, Relaxed);
        (self.spawned, self.aborted) = (0, 0);
    }

    fn set(&mut self, key: u64, value: u64, delay: Duration) {
        self.spawn(key, value, Instant::now() + delay);
    }

    fn set_due(&mut self, key: u64, value: u64, due: Instant, _delay: Duration) {
        self.spawn(key, value, due);
    }

    fn move_to(&mut self, key: u64, delay: Duration) {
        if let Some(&(_, value)) = self.handles.get(&key) {
            self.spawn(key, value, Instant::now() + delay);
        }
    }

    fn remove(&mut self, key: u64) {
        if let Some((handle, _)) = self.handles.remove(&key) {
            handle.abort();
            self.aborted += 1;
        }
    }
}

impl<const KEYED: bool> Drop for Spawner<KEYED> {
    fn drop(&mut self) {
        self.publish();
    }
}

/// A timer that has not fired, inside its task.
struct Pending {
    key: u64,
    value: u64,
    shared: &'static Shared,
    settled: bool,
    fired: bool,
}

impl Pending {
    fn settle(&mut self) {
        if !self.settled {
            self.settled = true;
            self.shared.settled.fetch_add(1, Relaxed);
        }
    }

    fn fire(&mut self) {
        self.fired = true;
        self.shared.recorder.fired(self.key, self.value);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.settle();
        if !self.fired && self.shared.stopping.load(Relaxed) {
            self.shared.left.lock().add(self.value);
        }
    }
}
