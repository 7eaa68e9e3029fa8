//! Who is told when a task ends.
//!
//! # Ground rules
//! - An entry is added and taken under the lock of its key's shard, so it is there if and only if the
//!   task is that its owner asked about.
//! - Its owner's code is called after that lock is released.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::task::Key;

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// It was delivered, and does not repeat.
    Delivered,
    /// It was given up, and does not repeat.
    Dead,
    /// It was cancelled.
    Cancelled,
    /// Another was put under its key.
    Replaced,
    /// It is still pending, and the engine has stopped.
    Stopped,
}

/// What is called when a task has ended.
pub(super) type Tell = Box<dyn FnOnce(Ending) + Send>;

/// Those who have asked, by key. Beside the records, which are many more as a rule.
#[derive(Default)]
pub(super) struct Endings {
    waiting: Mutex<HashMap<Key, Vec<Tell>>>,
    /// Keys in the map. Relaxed: a thread that decides about a key holds its shard's lock, and so did
    /// the one that has added it, so the count it reads includes that one.
    keys: AtomicUsize,
}

/// Those who are to be told, once no lock is held.
#[derive(Default)]
#[must_use = "they wait to be told"]
pub(super) struct Ended(Vec<Tell>);

impl Endings {
    pub(super) fn add(&self, key: &Key, tell: Tell) {
        let mut waiting = self.waiting.lock();
        waiting.entry(key.clone()).or_default().push(tell);
        self.keys.store(waiting.len(), Ordering::Relaxed);
    }

    pub(super) fn take(&self, key: &Key) -> Ended {
        if self.keys.load(Ordering::Relaxed) == 0 {
            return Ended::default();
        }
        let mut waiting = self.waiting.lock();
        let taken = waiting.remove(key).unwrap_or_default();
        self.keys.store(waiting.len(), Ordering::Relaxed);
        Ended(taken)
    }

    pub(super) fn take_all(&self) -> Ended {
        let mut waiting = self.waiting.lock();
        let all = std::mem::take(&mut *waiting);
        self.keys.store(0, Ordering::Relaxed);
        Ended(all.into_values().flatten().collect())
    }
}

impl Ended {
    /// A panic of one keeps nothing from the others.
    pub(super) fn tell(self, ending: Ending) {
        for tell in self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| tell(ending)));
        }
    }
}

impl fmt::Debug for Endings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endings")
            .field("keys", &self.keys.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
