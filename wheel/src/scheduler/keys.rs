//! Which task carries which key, and the places for the runs of a key, which outlive its tasks.
//!
//! The lock of the map is taken before those of shards, tasks and gates. A key is in the map as long as a
//! task carries it or a run of it holds or waits for a place.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;

use super::claim::advance_all;
use super::entry::{Entry, Phase, flag};
use super::error::Refusal;
use super::gate::Gate;
use super::inner::Inner;
use super::options::{Duplicate, Options};

#[derive(Default)]
pub(super) struct Keys {
    map: Mutex<HashMap<Arc<str>, Holder>>,
}

struct Holder {
    /// The latest task of the key, unless it has ended.
    task: Option<Arc<dyn Entry>>,
    gate: Arc<Gate>,
    places: usize,
}

impl Keys {
    /// Makes and files a task with a key. `file` gets the gate of the key. Where there is no room, it
    /// takes the place of the task that it replaces, if no run of that is in progress.
    pub(super) fn install(
        &self,
        inner: &Inner,
        key: &Arc<str>,
        options: &Options,
        has_room: bool,
        file: impl FnOnce(Arc<Gate>) -> Result<Arc<dyn Entry>, Refusal>,
    ) -> Result<(), Refusal> {
        let places = options.places();
        let mut map = self.map.lock();
        if options.duplicate == Duplicate::Refuse
            && let Some(Holder {
                task: Some(task), ..
            }) = map.get(key)
            && task.head().phase() != Phase::Ended
        {
            return Err(Refusal::Duplicate { key: key.clone() });
        }
        let displaced = if has_room {
            None
        } else {
            let old = map.get(key).and_then(|holder| holder.task.clone());
            let displaced = old.and_then(|old| Some((inner.displace(&*old)?, old)));
            Some(displaced.ok_or(Refusal::Full)?)
        };
        let holder = map.entry(key.clone()).or_insert_with(|| Holder {
            task: None,
            gate: Arc::new(Gate::new(places)),
            places,
        });
        let gate = holder.gate.clone();
        let filed = match file(gate.clone()) {
            Ok(task) => {
                let replaced = holder.task.replace(task.clone());
                // Under the lock of the map, so that the last word on the places is the holder's.
                let let_in = if holder.places == places {
                    Vec::new()
                } else {
                    gate.resize(places)
                };
                holder.places = places;
                drop(map);
                advance_all(let_in);
                inner.announce(&*task);
                if let Some(replaced) = replaced {
                    // What it tells is of no interest: the new task waits for a run in progress. And
                    // if it had to make room it has ended.
                    let _ = inner.cancel(&*replaced);
                }
                Ok(())
            }
            Err(refusal) => {
                if holder.task.is_none() && gate.is_idle() {
                    map.remove(key);
                }
                drop(map);
                Err(refusal)
            }
        };
        if let Some((displaced, old)) = displaced {
            inner.bury_displaced(&*old, displaced);
        }
        filed
    }

    pub(super) fn task(&self, key: &str) -> Option<Arc<dyn Entry>> {
        let map = self.map.lock();
        let task = map.get(key)?.task.clone()?;
        (task.head().phase() != Phase::Ended).then_some(task)
    }

    /// A task has ended.
    pub(super) fn task_ended(&self, inner: &Inner, entry: &dyn Entry) {
        self.let_go(inner, entry, |holder| {
            let is_latest = |task: &mut Arc<dyn Entry>| std::ptr::addr_eq(Arc::as_ptr(task), entry);
            holder.task.take_if(is_latest)
        });
    }

    /// A run has given up its place.
    pub(super) fn run_ended(&self, inner: &Inner, entry: &dyn Entry) {
        self.let_go(inner, entry, |_| None);
    }

    fn let_go(
        &self,
        inner: &Inner,
        entry: &dyn Entry,
        take: impl FnOnce(&mut Holder) -> Option<Arc<dyn Entry>>,
    ) {
        if !entry.head().has(flag::GATED) {
            return;
        }
        let key = inner.options(entry.lock().as_deref()).key.clone();
        let Some(key) = key else {
            return;
        };
        let mut map = self.map.lock();
        let Some(holder) = map.get_mut(&key) else {
            return;
        };
        let taken = take(holder);
        let removed = if holder.task.is_none() && holder.gate.is_idle() {
            map.remove(&key)
        } else {
            None
        };
        drop(map);
        drop((taken, removed));
    }
}
