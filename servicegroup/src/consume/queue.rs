//! A bounded queue inside the process, at-least-once.
//!
//! Ground rules: one lock, held for moves only; messages are dropped outside it.
//!
//! - I1: `published = acknowledged + pending`, where a pending message is either in `ready` or in
//!   `taken`.
//! - I2: `pending` is at most the capacity, so what is given back always has room.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Consumer, Pulled};
use crate::Error;

const CAPACITY: usize = 65_536;

/// A queue for one process: any number of publishers, any number of [`Consume`](super::Consume)
/// services. Cheap to clone. What is pending when the process ends is lost; [`stats`](Queue::stats)
/// says how much.
///
/// ```
/// use wheelhouse_servicegroup::consume::Queue;
///
/// let queue = Queue::bounded(1);
/// assert!(queue.publish("first").is_ok());
/// assert_eq!(queue.publish("second").unwrap_err().into_message(), "second");
/// assert_eq!(queue.stats().pending, 1);
/// ```
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Told for each message that becomes ready.
    ready: Notify,
    /// Told for each message that leaves room.
    room: Notify,
    capacity: usize,
}

struct State<T> {
    ready: VecDeque<(u64, Arc<T>)>,
    taken: HashMap<u64, Arc<T>>,
    published: u64,
    acknowledged: u64,
    given_back: u64,
}

/// What has gone through a [`Queue`]. `published` is `acknowledged + pending`, at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Messages that were accepted.
    pub published: u64,
    /// Messages whose handler returned `Ok`.
    pub acknowledged: u64,
    /// Messages that wait or are being handled.
    pub pending: u64,
    /// Deliveries that were given back.
    pub given_back: u64,
}

/// A message for which a [`Queue`] has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue has no room; publish again later, or wait with `publish_wait`")]
pub struct Full<T> {
    message: T,
}

impl<T> Full<T> {
    /// What was handed in.
    #[must_use]
    pub fn into_message(self) -> T {
        self.message
    }
}

impl<T: Send + Sync + 'static> Queue<T> {
    /// A queue with room for 65 536 pending messages.
    #[must_use]
    pub fn new() -> Self {
        Queue::bounded(CAPACITY)
    }

    /// A queue with room for `capacity` pending messages; 0 is taken for 1.
    #[must_use]
    pub fn bounded(capacity: usize) -> Self {
        Queue {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    ready: VecDeque::new(),
                    taken: HashMap::new(),
                    published: 0,
                    acknowledged: 0,
                    given_back: 0,
                }),
                ready: Notify::new(),
                room: Notify::new(),
                capacity: capacity.max(1),
            }),
        }
    }

    /// Adds a message at the end.
    ///
    /// # Errors
    ///
    /// [`Full`], with the message, when as many are pending as there is room for.
    pub fn publish(&self, message: T) -> Result<(), Full<T>> {
        {
            let mut state = self.shared.state.lock();
            if state.pending() >= self.shared.capacity {
                return Err(Full { message });
            }
            let id = state.published;
            state.published += 1;
            state.ready.push_back((id, Arc::new(message)));
        }
        self.shared.ready.notify_one();
        Ok(())
    }

    /// Adds a message at the end, and waits for room. Dropped before, it has added nothing.
    pub async fn publish_wait(&self, message: T) {
        let mut message = message;
        loop {
            let room = self.shared.room.notified();
            match self.publish(message) {
                Ok(()) => break,
                Err(full) => message = full.message,
            }
            room.await;
        }
        // Another one may fit, whose permit this call has used.
        self.shared.room.notify_one();
    }

    /// A reader for one [`Consume`](super::Consume). Dropped, it gives back what it has in hand.
    #[must_use]
    pub fn consumer(&self) -> QueueConsumer<T> {
        QueueConsumer {
            shared: self.shared.clone(),
            in_hand: HashSet::new(),
        }
    }

    /// What has gone through so far.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        let state = self.shared.state.lock();
        QueueStats {
            published: state.published,
            acknowledged: state.acknowledged,
            pending: state.pending() as u64,
            given_back: state.given_back,
        }
    }
}

impl<T> State<T> {
    fn pending(&self) -> usize {
        self.ready.len() + self.taken.len()
    }
}

impl<T> Shared<T> {
    /// Puts messages back, at the end, so that one that always fails does not keep back the others. A
    /// reader that is told of one looks for more.
    fn give_back(&self, ids: impl Iterator<Item = u64>) {
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        let mut any = false;
        {
            let mut state = self.state.lock();
            for id in ids {
                if let Some(message) = state.taken.remove(&id) {
                    state.ready.push_back((id, message));
                    state.given_back += 1;
                    any = true;
                }
            }
        }
        if any {
            self.ready.notify_one();
        }
    }
}

/// A reader of a [`Queue`].
pub struct QueueConsumer<T> {
    shared: Arc<Shared<T>>,
    in_hand: HashSet<u64>,
}

impl<T: Send + Sync + 'static> Consumer for QueueConsumer<T> {
    type Id = u64;
    type Message = Arc<T>;

    async fn pull(&mut self, max: usize) -> Pulled<u64, Arc<T>> {
        loop {
            let ready = self.shared.ready.notified();
            let (pulled, more) = {
                let mut state = self.shared.state.lock();
                let count = state.ready.len().min(max);
                let pulled: Vec<_> = state.ready.drain(..count).collect();
                let taken = pulled.iter().map(|(id, message)| (*id, message.clone()));
                state.taken.extend(taken);
                (pulled, !state.ready.is_empty())
            };
            if more {
                // Another reader may be asleep whose permit this one has used.
                self.shared.ready.notify_one();
            }
            if !pulled.is_empty() {
                self.in_hand.extend(pulled.iter().map(|(id, _)| *id));
                return Ok(pulled);
            }
            ready.await;
        }
    }

    async fn acknowledge(&mut self, ids: &[u64]) -> Result<(), Error> {
        let mut gone = Vec::with_capacity(ids.len());
        {
            let mut state = self.shared.state.lock();
            for id in ids {
                if let Some(message) = state.taken.remove(id) {
                    state.acknowledged += 1;
                    gone.push(message);
                }
                self.in_hand.remove(id);
            }
        }
        if !gone.is_empty() {
            self.shared.room.notify_one();
        }
        Ok(())
    }

    async fn give_back(&mut self, ids: &[u64]) -> Result<(), Error> {
        let in_hand = &mut self.in_hand;
        self.shared
            .give_back(ids.iter().copied().filter(|id| in_hand.remove(id)));
        // Who gives back is often who pulls next: the others first.
        tokio::task::yield_now().await;
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.shared.give_back(self.in_hand.drain());
        Ok(())
    }
}

impl<T> Drop for QueueConsumer<T> {
    fn drop(&mut self) {
        self.shared.give_back(self.in_hand.drain());
    }
}

impl<T: Send + Sync + 'static> Default for Queue<T> {
    fn default() -> Self {
        Queue::new()
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Queue {
            shared: self.shared.clone(),
        }
    }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("capacity", &self.shared.capacity)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for QueueConsumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueConsumer")
            .field("in_hand", &self.in_hand.len())
            .finish_non_exhaustive()
    }
}
