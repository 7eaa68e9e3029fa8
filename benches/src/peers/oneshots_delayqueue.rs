//! `delayqueue_task`: tokio-util's `DelayQueue` in a task that spawns what is due.
//!
//! Settings: the task is fed by an unbounded channel and lives on the runtime that it spawns on. It
//! takes what was sent up to 256 at a time, then spawns everything due, and sleeps only when both are
//! exhausted. The queue holds the one kind of work there is, unboxed, which is less than a scheduler
//! of any work must do.

use std::future::poll_fn;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::time::DelayQueue;

use super::oneshots::{Ledger, OneShotCaller, OneShots, runtime};

/// Commands taken from the channel at a time.
const BATCH: usize = 256;

/// The adapter.
#[derive(Debug)]
pub struct OneShotsDelayQueue {
    runtime: Runtime,
    commands: UnboundedSender<Command>,
}

#[derive(Debug)]
enum Command {
    Schedule { due: Instant, due_ns: u64 },
    Flush(SyncSender<usize>),
}

impl OneShots for OneShotsDelayQueue {
    type Caller = Sender;

    fn start(ledger: &'static Ledger) -> Self {
        let runtime = runtime();
        let (commands, received) = unbounded_channel();
        drop(runtime.spawn(async move {
            let mut task = Task {
                received,
                batch: Vec::with_capacity(BATCH),
                queue: DelayQueue::new(),
                ledger,
            };
            poll_fn(|cx| task.poll(cx)).await;
        }));
        Self { runtime, commands }
    }

    fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    fn caller(&self) -> Sender {
        Sender(self.commands.clone())
    }

    fn flush(&self) -> usize {
        let (done, wait) = sync_channel(1);
        send(&self.commands, Command::Flush(done));
        wait.recv().expect("the task answers before it ends")
    }

    fn stop(self) {
        drop(self.runtime);
    }
}

/// The scheduling task's side.
#[derive(Debug)]
pub struct Sender(UnboundedSender<Command>);

impl OneShotCaller for Sender {
    #[inline]
    fn schedule(&mut self, due: Instant, due_ns: u64) {
        send(&self.0, Command::Schedule { due, due_ns });
    }
}

fn send(commands: &UnboundedSender<Command>, command: Command) {
    commands
        .send(command)
        .expect("the task receives until every sender is gone");
}

/// The task's own side.
struct Task {
    received: UnboundedReceiver<Command>,
    batch: Vec<Command>,
    queue: DelayQueue<u64>,
    ledger: &'static Ledger,
}

impl Task {
    /// Ready when every sender is gone.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let received = self.received.poll_recv_many(cx, &mut self.batch, BATCH);
            if received == Poll::Ready(0) {
                return Poll::Ready(());
            }
            for command in self.batch.drain(..) {
                match command {
                    Command::Schedule { due, due_ns } => {
                        self.queue.insert_at(due_ns, due.into());
                    }
                    // A caller that has stopped waiting wants no answer.
                    Command::Flush(done) => drop(done.send(self.queue.len())),
                }
            }
            while let Poll::Ready(Some(expired)) = self.queue.poll_expired(cx) {
                let (ledger, due_ns) = (self.ledger, expired.into_inner());
                drop(tokio::spawn(async move { ledger.ran(due_ns) }));
            }
            if received.is_pending() {
                return Poll::Pending;
            }
        }
    }
}
