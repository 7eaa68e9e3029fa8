//! `delayqueue_task`: tokio-util's `DelayQueue` in a task, fed by an unbounded mpsc channel.
//!
//! Settings: the task has a current-thread runtime and a thread to itself, so that its timers never
//! cross threads. It takes commands up to 256 at a time with `poll_recv_many`, applies them, then
//! hands out everything due, and sleeps only when both are exhausted. The queue's own keys cannot be
//! known by the callers, so a key that is to be moved or removed is looked up in a map beside the
//! queue; with `KEYED` false (workloads that only set) there is no such map, which is less than the
//! subject must do for a keyed timer.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

use super::{Caller, KeyedTimers, Left, Recorder};

/// Commands taken from the channel at a time.
const BATCH: usize = 256;

/// The adapter.
#[derive(Debug)]
pub struct DelayQueueTask<const KEYED: bool> {
    commands: UnboundedSender<Command>,
    thread: JoinHandle<Left>,
}

#[derive(Debug)]
enum Command {
    Set { key: u64, value: u64, due: Instant },
    Move { key: u64, due: Instant },
    Remove { key: u64 },
    Flush(SyncSender<()>),
}

impl<const KEYED: bool> KeyedTimers for DelayQueueTask<KEYED> {
    type Caller = Sender;

    fn start(recorder: &'static Recorder) -> Self {
        let (commands, received) = unbounded_channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime without I/O needs nothing of the system");
            runtime.block_on(async {
                let mut task = Task::<KEYED> {
                    received,
                    batch: Vec::with_capacity(BATCH),
                    queue: DelayQueue::new(),
                    keys: HashMap::default(),
                    recorder,
                };
                poll_fn(|cx| task.poll(cx)).await;
                task.left()
            })
        });
        Self { commands, thread }
    }

    fn caller(&self) -> Sender {
        Sender(self.commands.clone())
    }

    fn flush(&self) {
        let (done, wait) = sync_channel(1);
        send(&self.commands, Command::Flush(done));
        wait.recv().expect("the task answers before it ends");
    }

    fn stop(self) -> Left {
        drop(self.commands);
        self.thread.join().expect("the task does not panic")
    }
}

/// One calling thread's side.
#[derive(Debug)]
pub struct Sender(UnboundedSender<Command>);

impl Caller for Sender {
    fn set(&mut self, key: u64, value: u64, delay: Duration) {
        let due = Instant::now() + delay;
        send(&self.0, Command::Set { key, value, due });
    }

    fn set_due(&mut self, key: u64, value: u64, due: Instant, _delay: Duration) {
        send(&self.0, Command::Set { key, value, due });
    }

    fn move_to(&mut self, key: u64, delay: Duration) {
        let due = Instant::now() + delay;
        send(&self.0, Command::Move { key, due });
    }

    fn remove(&mut self, key: u64) {
        send(&self.0, Command::Remove { key });
    }
}

fn send(commands: &UnboundedSender<Command>, command: Command) {
    commands
        .send(command)
        .expect("the task receives until every sender is gone");
}

/// The task's own side.
struct Task<const KEYED: bool> {
    received: UnboundedReceiver<Command>,
    batch: Vec<Command>,
    queue: DelayQueue<Timer>,
    keys: HashMap<u64, Key, RandomState>,
    recorder: &'static Recorder,
}

impl<const KEYED: bool> Task<KEYED> {
    /// Ready when every sender is gone.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let received = self.received.poll_recv_many(cx, &mut self.batch, BATCH);
            if received == Poll::Ready(0) {
                return Poll::Ready(());
            }
            let mut batch = std::mem::take(&mut self.batch);
            for command in batch.drain(..) {
                self.apply(command);
            }
            self.batch = batch;

            while let Poll::Ready(Some(expired)) = self.queue.poll_expired(cx) {
                let Timer { key, value } = *expired.get_ref();
                if KEYED {
                    self.keys.remove(&key);
                }
                self.recorder.fired(key, value);
            }
            if received.is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Set { key, value, due } => {
                let inserted = self.queue.insert_at(Timer { key, value }, due.into());
                if KEYED && let Some(replaced) = self.keys.insert(key, inserted) {
                    self.queue.remove(&replaced);
                }
            }
            Command::Move { key, due } => {
                if let Some(key) = self.keys.get(&key) {
                    self.queue.reset_at(key, due.into());
                }
            }
            Command::Remove { key } => {
                if let Some(key) = self.keys.remove(&key) {
                    self.queue.remove(&key);
                }
            }
            // A caller that has stopped waiting wants no answer.
            Command::Flush(done) => drop(done.send(())),
        }
    }

    fn left(mut self) -> Left {
        LEFT.set(Some(Left::default()));
        self.queue.clear();
        LEFT.take().unwrap_or_default()
    }
}

/// A queue's value. The queue cannot hand out what it drops, and taking its timers out one by one
/// walks a whole slot for each, so a timer adds itself to `LEFT` when it is dropped at the end.
struct Timer {
    key: u64,
    value: u64,
}

thread_local! {
    /// Set on the task's thread while its queue is cleared.
    static LEFT: Cell<Option<Left>> = const { Cell::new(None) };
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(mut left) = LEFT.get() {
            left.add(self.value);
            LEFT.set(Some(left));
        }
    }
}
