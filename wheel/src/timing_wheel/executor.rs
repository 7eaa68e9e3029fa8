//! Where callbacks run: on the driver, on threads of the wheel, on a tokio runtime, or nowhere,
//! when a stream is read instead.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use super::ready::Ready;
use super::shard::Pair;
use super::shared::Shared;

/// Where a [`TimingWheel`](super::TimingWheel) runs its callbacks.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Executor {
    /// On the driver's thread, one after another, in the order of their ticks. The fastest, for
    /// callbacks that take microseconds: one that sleeps for a second makes everything a second
    /// late. A callback cannot take what was collected with it, up to 64 pairs per shard of its
    /// tick.
    #[default]
    Inline,
    /// On this many threads that the wheel starts and stops, 1 to 1024. Due pairs that wait for a
    /// thread are bounded by `max_pending` alone.
    Threads(usize),
    /// As tasks on a tokio runtime, one for each batch of due pairs. Callbacks must not block; they
    /// run inside the runtime, so that `tokio::spawn` works in them. When
    /// the runtime has shut down, due pairs go on waiting until a stop returns them.
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Handle),
    /// On the blocking threads of a tokio runtime, one call for each due pair. When the runtime has
    /// shut down, due pairs go on waiting until a stop returns them.
    #[cfg(feature = "tokio")]
    TokioBlocking(tokio::runtime::Handle),
}

pub(crate) type Callback<K, V> = Arc<dyn Fn(K, V) + Send + Sync>;

/// How many lanes keep the order of keys on a tokio runtime: at most as many of its workers are
/// busy with one wheel.
#[cfg(feature = "tokio")]
pub(crate) const TOKIO_LANES: usize = 16;

/// How many callbacks begin before their lateness is recorded, under one lock.
const NOTE: usize = 64;

/// How many callbacks one spawned task makes.
#[cfg(feature = "tokio")]
const TASK: usize = 64;

/// The driver's end of an executor.
pub(crate) enum Outlet<K, V> {
    /// Callbacks run on the driver.
    Inline(Callback<K, V>),
    /// Workers wait on the lanes, see [`work`].
    Threads,
    /// Tasks are spawned for what was put into the lanes.
    #[cfg(feature = "tokio")]
    Tokio {
        runtime: tokio::runtime::Handle,
        callback: Callback<K, V>,
        blocking: bool,
    },
    /// A reader takes pairs from the only lane, which holds at most `capacity`.
    Stream { capacity: NonZeroUsize },
}

impl<K, V> Outlet<K, V>
where
    K: std::hash::Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    /// How many more pairs may be handed out before somebody has to take some.
    pub(crate) fn room(&self, shared: &Shared<K, V>) -> usize {
        match self {
            Outlet::Stream { capacity } => capacity.get().saturating_sub(shared.lanes[0].len()),
            _ => usize::MAX,
        }
    }

    /// Whether a driver that waits for room may go on: half of it is there, so that it does not
    /// wake for every pair that is read.
    pub(crate) fn has_drained(&self, shared: &Shared<K, V>) -> bool {
        match self {
            Outlet::Stream { capacity } => shared.lanes[0].len() <= capacity.get() / 2,
            _ => true,
        }
    }

    /// Empties `due`, but for what an inline driver has not begun when the wheel is stopped.
    pub(crate) fn hand_out(&self, shared: &Arc<Shared<K, V>>, due: &mut Vec<Pair<K, V>>) {
        match self {
            Outlet::Inline(callback) => run_all(shared, due, callback),
            Outlet::Threads | Outlet::Stream { .. } => enqueue(shared, due),
            #[cfg(feature = "tokio")]
            Outlet::Tokio {
                runtime,
                callback,
                blocking,
            } => {
                let count = due.len();
                enqueue(shared, due);
                spawn(shared, runtime, callback, *blocking, count);
            }
        }
    }
}

/// Puts each pair into its lane.
fn enqueue<K: std::hash::Hash, V>(shared: &Shared<K, V>, due: &mut Vec<Pair<K, V>>) {
    match &*shared.lanes {
        [lane] => shared.wake(lane.push(due.drain(..))),
        lanes => {
            for pair in due.drain(..) {
                let lane = shared.hash(&pair.key) as usize % lanes.len();
                shared.wake(lanes[lane].push([pair]));
            }
        }
    }
}

/// Spawns what is needed for `count` pairs that were just queued. Tasks take pairs from the lanes
/// when they run, so that a stop gets what they have not begun.
#[cfg(feature = "tokio")]
fn spawn<K, V>(
    shared: &Arc<Shared<K, V>>,
    runtime: &tokio::runtime::Handle,
    callback: &Callback<K, V>,
    blocking: bool,
    count: usize,
) where
    K: Send + 'static,
    V: Send + 'static,
{
    // A runtime that gets no thread for a blocking task panics. The pairs stay queued then, for the
    // tasks that come later.
    let start = |work: Box<dyn FnOnce() + Send>| {
        shared.contain("spawning a task", || {
            if blocking {
                drop(runtime.spawn_blocking(work));
            } else {
                drop(runtime.spawn(async move { work() }));
            }
        });
    };
    if shared.lanes.len() > 1 {
        for number in (0..shared.lanes.len()).filter(|n| shared.lanes[*n].claim()) {
            let callback = callback.clone();
            let mut claim = Claim {
                shared: shared.clone(),
                number,
                held: true,
            };
            start(Box::new(move || {
                let lane = &claim.shared.lanes[claim.number];
                while claim.held {
                    while run_next(&claim.shared, lane, &callback) {}
                    claim.held = !lane.release();
                }
            }));
        }
        return;
    }
    // One blocking task for each pair, so that none waits for another; it goes on with what tasks
    // that could not be started have left behind.
    let (tasks, each) = if blocking {
        (count, usize::MAX)
    } else {
        (count.div_ceil(TASK), TASK)
    };
    for _ in 0..tasks {
        let (shared, callback) = (shared.clone(), callback.clone());
        start(Box::new(move || {
            for _ in 0..each {
                if !run_next(&shared, &shared.lanes[0], &callback) {
                    break;
                }
            }
        }));
    }
}

/// A claimed lane; a task that is dropped unrun, because its runtime has shut down, gives it back.
#[cfg(feature = "tokio")]
struct Claim<K, V> {
    shared: Arc<Shared<K, V>>,
    number: usize,
    held: bool,
}

#[cfg(feature = "tokio")]
impl<K, V> Drop for Claim<K, V> {
    fn drop(&mut self) {
        if self.held {
            self.shared.lanes[self.number].abandon();
        }
    }
}

/// The life of a pool's thread.
pub(crate) fn work<K, V>(shared: &Shared<K, V>, lane: &Ready<K, V>, callback: Callback<K, V>) {
    let _on_behalf = shared.enter();
    while let Some(pair) = lane.begin_waiting() {
        run(shared, pair, &callback);
        lane.end();
    }
    // Its own `Drop` still runs on a thread of the wheel.
    drop(callback);
}

#[cfg(feature = "tokio")]
fn run_next<K, V>(shared: &Shared<K, V>, lane: &Ready<K, V>, callback: &Callback<K, V>) -> bool {
    let Some(pair) = lane.begin() else {
        return false;
    };
    let _on_behalf = shared.enter();
    run(shared, pair, callback);
    lane.end();
    true
}

/// Runs the callbacks of all pairs on the driver, until the wheel is stopped.
fn run_all<K, V>(shared: &Shared<K, V>, due: &mut Vec<Pair<K, V>>, callback: &Callback<K, V>) {
    shared.ledger.take_in_hand(due.len());
    let mut late = [Duration::ZERO; NOTE];
    let mut noted = 0;
    let mut pairs = due.drain(..);
    while !shared.is_stopping()
        && let Some(pair) = pairs.next()
    {
        shared.ledger.still_in_hand(pairs.len());
        late[noted] = shared.lateness(&pair, shared.now());
        noted += 1;
        if noted == NOTE {
            shared.ledger.record(&late);
            noted = 0;
        }
        shared.contain("callback", || callback(pair.key, pair.value));
    }
    shared.ledger.record(&late[..noted]);
    let rest: Vec<_> = pairs.collect();
    shared.ledger.put_back(rest.len());
    due.extend(rest);
}

/// Runs the callback of a pair, on a thread of the wheel. Nothing in it unwinds.
fn run<K, V>(shared: &Shared<K, V>, pair: Pair<K, V>, callback: &Callback<K, V>) {
    shared.begun(&pair, shared.now());
    shared.contain("callback", || callback(pair.key, pair.value));
}
