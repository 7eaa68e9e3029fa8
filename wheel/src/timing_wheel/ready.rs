//! Pairs that have come due and wait for a worker, a task or the reader of a stream.
//!
//! | state | meaning | who may leave it |
//! |---|---|---|
//! | queued | due, past removal, its callback has not begun | a worker in `begin`, `close` |
//! | running | its callback has begun | the same worker, when the callback has returned |
//!
//! A pair leaves the queue under one lock, to a worker or to `close`, never to both. After `close`
//! nothing begins. Checked by `loom_tests::stop_returns_what_has_not_begun`.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use crate::sync::{Condvar, Mutex};

use super::shard::Pair;

/// One first-in-first-out queue of due pairs. They count against the wheel's `max_pending`, which
/// bounds it.
#[derive(Debug)]
pub(crate) struct Ready<K, V> {
    state: Mutex<State<K, V>>,
    /// A pair was queued, or the queue was closed.
    work: Condvar,
    /// The last running callback returned after `close`.
    idle: Condvar,
}

#[derive(Debug)]
struct State<K, V> {
    queue: VecDeque<Pair<K, V>>,
    running: usize,
    closed: bool,
    /// Whether a lane task is under way that will come back for more, see `claim`.
    #[cfg(feature = "tokio")]
    claimed: bool,
    /// The reader of the stream, if it waits.
    waker: Option<Waker>,
}

/// Room that an empty queue may keep.
const KEPT: usize = 1024;

impl<K, V> State<K, V> {
    /// Takes the next pair; a queue that has come to its end after a burst gives its memory back.
    fn pop(&mut self) -> Option<Pair<K, V>> {
        let pair = self.queue.pop_front();
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
        pair
    }
}

impl<K, V> Ready<K, V> {
    pub(crate) fn new() -> Self {
        Ready {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                running: 0,
                closed: false,
                #[cfg(feature = "tokio")]
                claimed: false,
                waker: None,
            }),
            work: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Queues the pairs that `pairs` yields, and wakes the workers that wait for them; the waker of
    /// a reader is the caller's to wake. Closed queues take them too: `close` has given them to
    /// nobody yet, [`take_rest`](Self::take_rest) will.
    #[must_use]
    pub(crate) fn push(&self, pairs: impl IntoIterator<Item = Pair<K, V>>) -> Option<Waker> {
        let (waker, several) = {
            let mut state = self.state.lock();
            let before = state.queue.len();
            state.queue.extend(pairs);
            (state.waker.take(), state.queue.len() > before + 1)
        };
        if several {
            self.work.notify_all();
        } else {
            self.work.notify_one();
        }
        waker
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// Takes the next pair, whose callback has begun with this; `None` when there is none or the
    /// queue is closed.
    #[cfg(feature = "tokio")]
    pub(crate) fn begin(&self) -> Option<Pair<K, V>> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        let pair = state.pop()?;
        state.running += 1;
        Some(pair)
    }

    /// Like [`begin`](Self::begin), but waits for a pair; `None` when the queue is closed.
    pub(crate) fn begin_waiting(&self) -> Option<Pair<K, V>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(pair) = state.pop() {
                state.running += 1;
                return Some(pair);
            }
            self.work.wait(&mut state);
        }
    }

    /// A callback that had begun has returned.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.running -= 1;
        if state.closed && state.running == 0 {
            self.idle.notify_all();
        }
    }

    /// Claims the queue for one task that works until [`release`](Self::release): true for the
    /// one that gets it.
    #[cfg(feature = "tokio")]
    pub(crate) fn claim(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().claimed, true)
    }

    /// Gives the claim back if the queue is empty or closed; otherwise the task goes on.
    #[cfg(feature = "tokio")]
    pub(crate) fn release(&self) -> bool {
        let mut state = self.state.lock();
        state.claimed = !state.closed && !state.queue.is_empty();
        !state.claimed
    }

    /// Gives the claim back although the queue may not be empty: the task will not run.
    #[cfg(feature = "tokio")]
    pub(crate) fn abandon(&self) {
        self.state.lock().claimed = false;
    }

    /// For a stream: the next pair and how many are left, `None` when closed, or the waker is kept.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<(Pair<K, V>, usize)>> {
        // A waker is user code: it is cloned and dropped outside the lock.
        let waker = cx.waker().clone();
        let mut state = self.state.lock();
        if state.closed {
            return Poll::Ready(None);
        }
        if let Some(pair) = state.pop() {
            let left = state.queue.len();
            return Poll::Ready(Some((pair, left)));
        }
        let stale = state.waker.replace(waker);
        drop(state);
        drop(stale);
        Poll::Pending
    }

    /// From now on nothing begins. The waker of a reader is the caller's to wake.
    #[must_use]
    pub(crate) fn close(&self) -> Option<Waker> {
        let waker = {
            let mut state = self.state.lock();
            state.closed = true;
            state.waker.take()
        };
        self.work.notify_all();
        waker
    }

    /// Waits until no callback runs any more, and takes out what has not begun. Closed before.
    pub(crate) fn take_rest(&self) -> VecDeque<Pair<K, V>> {
        let mut state = self.state.lock();
        while state.running > 0 {
            self.idle.wait(&mut state);
        }
        std::mem::take(&mut state.queue)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    fn pair(key: u8) -> Pair<u8, ()> {
        Pair {
            tick: 1,
            key,
            value: (),
        }
    }

    #[test]
    fn nothing_begins_after_close_and_nothing_is_lost() {
        let ready = Ready::new();
        assert!(ready.push([pair(1), pair(2)]).is_none());
        let begun = ready.begin_waiting().expect("two are queued");
        assert_eq!(begun.key, 1);
        ready.end();
        assert!(ready.close().is_none());
        assert!(ready.begin_waiting().is_none());
        assert!(ready.push([pair(3)]).is_none());
        assert!(ready.begin_waiting().is_none());
        let rest: Vec<u8> = ready.take_rest().iter().map(|pair| pair.key).collect();
        assert_eq!(rest, [2, 3]);
    }
}
