//! A wheel without a thread.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::time::Instant;

use super::TimingWheel;

/// A [`TimingWheel`] that fires when it is told to, from [`Builder::manual`](super::Builder::manual).
///
/// It is the same code that a driver runs, on one shard and on the caller's thread, and pairs are
/// taken out one by one, so that a callback can still take the next of its tick: for simulations, tests, and loops that have a thread of their own. It dereferences to the
/// [`TimingWheel`], whose handles other threads and the callback may use as well.
#[must_use = "nothing fires unless it is turned"]
pub struct ManualTimingWheel<K, V> {
    wheel: TimingWheel<K, V>,
    callback: Box<dyn FnMut(K, V) + Send>,
    /// The tick of the latest turn.
    turned: u64,
}

impl<K, V> ManualTimingWheel<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    pub(super) fn new(wheel: TimingWheel<K, V>, callback: Box<dyn FnMut(K, V) + Send>) -> Self {
        for shard in &wheel.shared().shards {
            shard.lock().turned_by_hand = true;
        }
        ManualTimingWheel {
            wheel,
            callback,
            turned: 0,
        }
    }

    /// Fires everything due at ticks up to `now`, tick by tick, within a tick in the order in which
    /// timers were last set or moved. Returns how many fired.
    ///
    /// What a callback removes, and has not fired yet, does not fire. What it sets is due after the
    /// clock's present instant, so it waits for a later turn when `now` is no later than that. An
    /// instant before that of an earlier turn changes nothing, and after a stop nothing fires.
    pub fn turn(&mut self, now: Instant) -> usize {
        let shared = self.wheel.shared().clone();
        let _on_behalf = shared.enter();
        // A stop elsewhere waits for the turn as it does for a driver.
        shared.life.driver_starts();
        let limit = shared.ticks.at(now);
        if limit < self.turned {
            return 0;
        }
        self.turned = limit;
        let mut due = Vec::with_capacity(1);
        let mut fired = 0;
        while !shared.is_stopping() {
            let tick = shared.next_tick();
            if tick > limit {
                break;
            }
            loop {
                shared.fire(tick, 1, 1, &mut due);
                let Some(pair) = due.pop() else { break };
                fired += 1;
                shared.begun(&pair, now);
                shared.contain("callback", || (self.callback)(pair.key, pair.value));
            }
        }
        shared.life.driver_ended();
        fired
    }
}

impl<K, V> Deref for ManualTimingWheel<K, V> {
    type Target = TimingWheel<K, V>;

    fn deref(&self) -> &TimingWheel<K, V> {
        &self.wheel
    }
}

impl<K, V> fmt::Debug for ManualTimingWheel<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualTimingWheel").finish_non_exhaustive()
    }
}
