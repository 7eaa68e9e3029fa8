//! The thread that fires: applies what callers left in the channels, takes what is due tick by
//! tick, hands it out, and sleeps until the next deadline.

use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::drive::ticks::NEVER;
use crate::sync::Parker;

use super::executor::Outlet;
use super::shard::Pair;
use super::shared::Shared;

/// How many pairs of a shard are taken out under one hold of its lock. Commands get in between.
pub(crate) const BATCH: usize = 64;

/// How long the driver stays away from a clock that has panicked.
const PAUSE: Duration = Duration::from_millis(10);

/// A tick that nothing is due before, so that a driver which sleeps until then is not woken by
/// deadlines: it waits for room in its stream.
const FIRST: u64 = 1;

pub(crate) struct Driver<K, V> {
    shared: Arc<Shared<K, V>>,
    parker: Parker,
    outlet: Outlet<K, V>,
    /// Whether the clock stands still until it is moved, and wakes the driver itself.
    virtual_time: bool,
    /// Taken out, not handed out yet.
    due: Vec<Pair<K, V>>,
}

impl<K, V> Driver<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    pub(crate) fn new(
        shared: Arc<Shared<K, V>>,
        parker: Parker,
        outlet: Outlet<K, V>,
        virtual_time: bool,
    ) -> Self {
        Driver {
            shared,
            parker,
            outlet,
            virtual_time,
            due: Vec::new(),
        }
    }

    /// Runs until the wheel is stopped.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let _on_behalf = shared.enter();
        while !shared.is_stopping() {
            // A panic of the clock must not end the driver, nor keep it busy.
            if !shared.contain("clock", || self.pass()) {
                self.parker.park_timeout(PAUSE);
            }
        }
        // An inline driver stopped in the middle of a batch: the rest has not begun.
        shared.wake(shared.lanes[0].push(self.due.drain(..)));
        shared.life.driver_ended();
        // The callback goes with the driver: its own `Drop` still runs on a thread of the wheel.
        drop(self);
    }

    /// Fires the earliest tick that is due, or sleeps if none is. Also a driver that lags behind
    /// goes tick by tick, so that callbacks can still move and remove what is due at the next.
    fn pass(&mut self) {
        let request = if self.virtual_time {
            self.shared.life.requested()
        } else {
            0
        };
        let read = self.shared.clock.now();
        let now = self.shared.ticks.at(read);
        let room = self.outlet.room(&self.shared);
        let bound = self.shared.earliest();
        if bound <= now && room > 0 {
            // Nothing may be due at the bound; then this raises it.
            self.shared.fire(bound, BATCH, room, &mut self.due);
            self.outlet.hand_out(&self.shared, &mut self.due);
            return;
        }
        let blocked = room == 0;
        if self.virtual_time {
            // Whoever moved the clock waits for what was sent before, also if somebody else is just
            // applying it. In real time that somebody wakes the driver.
            self.shared.flush();
        }
        let tick = if blocked {
            FIRST
        } else {
            self.shared.next_tick()
        };
        if tick <= now && !blocked {
            return;
        }
        if self.virtual_time {
            self.shared.life.settle(request);
        }
        self.sleep(tick, blocked, request, read);
    }

    fn sleep(&mut self, tick: u64, blocked: bool, request: u64, read: Instant) {
        let shared = &self.shared;
        let timeout = if self.virtual_time || blocked || tick == NEVER {
            None
        } else {
            // The later of two readings: one that has gone far back must not make it sleep as long.
            let now = shared.clock.now().max(read);
            let due = shared.ticks.instant(tick);
            due.map(|due| due.saturating_duration_since(now))
        };
        if timeout == Some(Duration::ZERO) {
            return;
        }
        let slept = shared.alarm.sleep(&self.parker, tick, timeout, || {
            shared.is_stopping()
                || (blocked && self.outlet.has_drained(shared))
                || (!blocked && shared.shards.iter().any(|shard| shard.earliest() < tick))
                || (self.virtual_time && shared.life.requested() != request)
        });
        if slept {
            shared.ledger.woken();
        }
    }
}
