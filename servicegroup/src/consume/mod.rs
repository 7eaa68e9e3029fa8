//! Message consumers: a contract for any broker, and the service that keeps it.
//!
//! As soon as the group is asked to stop, the service stops pulling (there is no load balancer that a
//! drain would be for), gives back what it has pulled and not begun, finishes what runs, acknowledges
//! it, and closes. What does not finish by the deadline is cut and given back.
//! A message is acknowledged only after its handler has returned `Ok`, so it is delivered at least
//! once: nothing is lost, and nothing is acknowledged unprocessed.
//!
//! ```
//! use std::sync::Arc;
//! use wheelhouse_servicegroup::ServiceGroup;
//! use wheelhouse_servicegroup::consume::{Consume, Queue};
//!
//! # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
//! let queue = Queue::new();
//! let handler = async |order: Arc<String>| {
//!     println!("ships {order}");
//!     Ok(())
//! };
//! let mut group = ServiceGroup::builder().build()?;
//! group.add("orders", Consume::new(queue.consumer(), handler).concurrency(4))?;
//! assert!(queue.publish("a lamp".to_owned()).is_ok());
//! # Ok(()) }
//! ```

mod queue;
#[cfg(feature = "redis")]
mod redis;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id as TaskId, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::context::BusyGuard;
use crate::hooks::exit_of;
use crate::report::Exit;
use crate::{Error, Service, ServiceContext, meters};

#[cfg(feature = "redis")]
pub use self::redis::{RedisMessage, RedisStream};
pub use queue::{Full, Queue, QueueConsumer, QueueStats};

/// What an adapter leaves of its time to give back what it has cut: a tenth, at most this.
const MARGIN: Duration = Duration::from_millis(250);

/// Pauses after errors of the broker: the first, doubling to the last.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What a pull gives: messages, each with the name of its delivery.
pub type Pulled<I, M> = Result<Vec<(I, M)>, Error>;

/// One reader of a broker. All calls come from one task, one after the other.
///
/// The contract: a message that was pulled is pending until it is acknowledged. One that is given
/// back, or pending at a consumer that is gone, is delivered again, here or elsewhere.
pub trait Consumer: Send + 'static {
    /// Names a delivery.
    type Id: Clone + Send + 'static;
    /// What a handler gets.
    type Message: Send + 'static;

    /// Waits for messages and takes 1 to `max` of them; `max` is at least 1. The future may be dropped
    /// at any await, again and again: what it has taken by then comes with the next pull, or is given
    /// back by [`close`](Self::close).
    fn pull(&mut self, max: usize) -> impl Future<Output = Pulled<Self::Id, Self::Message>> + Send;

    /// Says that these have been processed. On an error it is called again with the same.
    fn acknowledge(&mut self, ids: &[Self::Id]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Says that these have not been processed and may be delivered again, at once.
    fn give_back(&mut self, ids: &[Self::Id]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Flushes what is buffered and ends the reader. Nothing is called after it.
    fn close(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A service that pulls messages and has them handled, several at a time.
///
/// A handler that fails or panics has its message given back: it is delivered again, until a handler
/// returns `Ok`. What can never succeed is for the handler to put aside.
#[must_use = "a consumer does nothing until it runs in a group"]
pub struct Consume<C, H> {
    consumer: C,
    handler: Arc<H>,
    concurrency: usize,
    prefetch: usize,
    pulls_while_draining: bool,
}

impl<C, H, R> Consume<C, H>
where
    C: Consumer,
    H: Fn(C::Message) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Error>> + Send + 'static,
{
    /// Handles one message at a time, and pulls none in advance.
    pub fn new(consumer: C, handler: H) -> Self {
        Consume {
            consumer,
            handler: Arc::new(handler),
            concurrency: 1,
            prefetch: 0,
            pulls_while_draining: false,
        }
    }

    /// How many messages are handled at the same time; 0 is taken for 1.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers.max(1);
        self
    }

    /// How many messages are pulled in advance.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = messages;
        self
    }

    /// Goes on pulling until it is this service's turn to stop: for a queue that services above still
    /// fill, and that ends with the process.
    pub fn pulls_while_draining(mut self, yes: bool) -> Self {
        self.pulls_while_draining = yes;
        self
    }
}

impl<C, H, R> Service for Consume<C, H>
where
    C: Consumer,
    H: Fn(C::Message) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Error>> + Send + 'static,
{
    async fn run(self, ctx: ServiceContext) -> Result<(), Error> {
        let mut work = Work {
            consumer: self.consumer,
            handler: self.handler,
            running: JoinSet::new(),
            in_hand: HashMap::new(),
            waiting: VecDeque::new(),
            done: Vec::new(),
            failed: Vec::new(),
            until: match self.pulls_while_draining {
                true => ctx.stopping_token().clone(),
                false => ctx.draining_token().clone(),
            },
            ctx: ctx.clone(),
        };
        ctx.ready();
        work.serve(self.concurrency, self.prefetch).await;
        work.stop().await
    }
}

struct Work<C: Consumer, H> {
    consumer: C,
    handler: Arc<H>,
    running: JoinSet<Exit>,
    /// What each task that runs is handling.
    in_hand: HashMap<TaskId, C::Id>,
    /// Pulled and not begun.
    waiting: VecDeque<(C::Id, C::Message)>,
    /// Processed and not acknowledged, and what is to be given back.
    done: Vec<C::Id>,
    failed: Vec<C::Id>,
    /// When it stops pulling.
    until: CancellationToken,
    ctx: ServiceContext,
}

impl<C, H, R> Work<C, H>
where
    C: Consumer,
    H: Fn(C::Message) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), Error>> + Send + 'static,
{
    /// Pulls, handles and acknowledges until it is time to stop.
    async fn serve(&mut self, concurrency: usize, prefetch: usize) {
        let (shortest, longest) = RETRY;
        let mut pause = shortest;
        while !self.until.is_cancelled() {
            while self.running.len() < concurrency
                && let Some((id, message)) = self.waiting.pop_front()
            {
                self.begin(id, message);
            }
            let held = self.running.len() + self.waiting.len();
            let room = (concurrency + prefetch).saturating_sub(held);
            let step = tokio::select! {
                biased;
                () = self.until.cancelled() => return,
                Some(ended) = self.running.join_next_with_id() => {
                    self.note(ended);
                    self.settle().await
                }
                pulled = self.consumer.pull(room), if room > 0 => {
                    pulled.map(|messages| self.waiting.extend(messages))
                }
            };
            match step {
                Ok(()) => pause = shortest,
                // The broker is away: what is in hand stays in hand, and it is asked again.
                Err(error) => {
                    self.complain(&error);
                    tokio::select! {
                        () = self.until.cancelled() => return,
                        () = sleep(pause) => pause = (pause * 2).min(longest),
                    }
                }
            }
        }
    }

    /// Gives back, finishes, acknowledges, closes, all within the service's time.
    async fn stop(&mut self) -> Result<(), Error> {
        self.failed.extend(self.waiting.drain(..).map(|(id, _)| id));
        let mut result = self.settle().await;
        let cut = cut(self.ctx.clone());
        tokio::pin!(cut);
        loop {
            tokio::select! {
                biased;
                ended = self.running.join_next_with_id() => match ended {
                    Some(ended) => self.note(ended),
                    None => break,
                },
                () = &mut cut => {
                    self.ctx.cut(self.running.len() as u64);
                    self.running.abort_all();
                    while let Some(ended) = self.running.join_next_with_id().await {
                        self.note(ended);
                    }
                    break;
                }
            }
            result = self.settle().await;
        }
        if !self.done.is_empty() || !self.failed.is_empty() {
            result = self.settle().await;
        }
        result.and(self.consumer.close().await)
    }

    fn begin(&mut self, id: C::Id, message: C::Message) {
        let (handler, busy) = (self.handler.clone(), self.ctx.busy());
        let task = self.running.spawn(async move {
            let _busy: BusyGuard = busy;
            // Called inside, so that a panic before the first await is caught as well.
            exit_of(async { handler(message).await }).await
        });
        self.in_hand.insert(task.id(), id);
    }

    /// Takes down how a message went, and all others that have ended meanwhile.
    fn note(&mut self, ended: Result<(TaskId, Exit), tokio::task::JoinError>) {
        let mut next = Some(ended);
        while let Some(ended) = next {
            let (task, processed) = match ended {
                Ok((task, exit)) => (task, !exit.is_failure()),
                Err(error) => (error.id(), false),
            };
            if let Some(id) = self.in_hand.remove(&task) {
                match processed {
                    true => self.done.push(id),
                    false => self.failed.push(id),
                }
            }
            next = self.running.try_join_next_with_id();
        }
    }

    /// Tells the broker what has been processed and what has not. What it does not hear stays noted.
    async fn settle(&mut self) -> Result<(), Error> {
        if !self.done.is_empty() {
            self.consumer.acknowledge(&self.done).await?;
            meters::messages(&self.ctx.path(), "acknowledged", self.done.len());
            self.done.clear();
        }
        if !self.failed.is_empty() {
            self.consumer.give_back(&self.failed).await?;
            meters::messages(&self.ctx.path(), "given_back", self.failed.len());
            self.failed.clear();
        }
        Ok(())
    }

    fn complain(&self, error: &Error) {
        #[cfg(feature = "tracing")]
        tracing::warn!(service = self.ctx.name(), %error, "the broker refuses");
        self.ctx.log(&format!("error={error:?}"));
    }
}

/// Resolves when what still runs is to be cut: the deadline is known for good when it is the service's
/// turn to stop.
async fn cut(ctx: ServiceContext) {
    ctx.stopping().await;
    let now = Instant::now();
    let deadline = ctx.deadline().unwrap_or(now);
    let left = deadline.saturating_duration_since(now);
    sleep_until(deadline - (left / 10).min(MARGIN)).await;
}

impl<C: fmt::Debug, H> fmt::Debug for Consume<C, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consume")
            .field("consumer", &self.consumer)
            .field("concurrency", &self.concurrency)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}
