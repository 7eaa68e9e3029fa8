//! Takes what is due out of the wheels, and sleeps until the next deadline: as a task on tokio's
//! clock, as a thread on any other.
//!
//! What is due is taken as a whole before its tasks are started, in the order of ticks and then of
//! priorities. What a caller schedules meanwhile for the same ticks comes in the next round, so that a
//! task which never catches up holds up no other.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::clock::Driven;
use crate::drive::life::OnBehalf;
use crate::drive::ticks::NEVER;
use crate::sync::Parker;

use super::claim::Claim;
use super::inner::Inner;
use super::shard::Timed;

/// For how many tasks of one tick the driver keeps room.
pub(super) const KEPT: usize = 1024;

/// How many are taken out under one hold of a shard's lock.
const BATCH: usize = 64;

/// How many tasks the driver's task starts before it lets others run.
const TURN: usize = 256;

/// How long the driver stays away from a clock that has panicked.
const PAUSE: Duration = Duration::from_millis(10);

/// A thread that drives.
pub(super) struct ThreadDriver {
    pub(super) inner: Arc<Inner>,
    pub(super) parker: Parker,
    /// Whether the clock stands still until it is moved, and wakes the driver itself.
    pub(super) virtual_time: bool,
}

impl ThreadDriver {
    pub(super) fn run(self) {
        let inner = self.inner.clone();
        let _ended = Ended(inner.clone());
        let _on_behalf = OnBehalf::of(Arc::as_ptr(&inner).addr());
        let mut hands = Hands::default();
        while !inner.life.is_stopping() {
            // A panic of the clock must not end the driver, nor keep it busy.
            if !inner.contain("clock", || self.pass(&mut hands)) {
                self.parker.park_timeout(PAUSE);
            }
        }
    }

    fn pass(&self, hands: &mut Hands) {
        let inner = &self.inner;
        let request = if self.virtual_time {
            inner.life.requested()
        } else {
            0
        };
        let read = inner.clock.now();
        let now = inner.ticks.at(read);
        if let Some(mut due) = Due::take(inner, now, hands) {
            due.start(usize::MAX);
            return;
        }
        let tick = inner.next_tick();
        if tick <= now {
            return;
        }
        if self.virtual_time {
            inner.life.settle(request);
        }
        let timeout = if self.virtual_time || tick == NEVER {
            None
        } else {
            // The later of two readings: one that has gone far back must not make it sleep as long.
            let now = inner.clock.now().max(read);
            let due = inner.ticks.instant(tick);
            due.map(|due| due.saturating_duration_since(now))
        };
        if timeout == Some(Duration::ZERO) {
            return;
        }
        let slept = inner.alarm.sleep(&self.parker, tick, timeout, || {
            self.inner.has_work(tick) || (self.virtual_time && inner.life.requested() != request)
        });
        if slept {
            inner.woken();
        }
    }
}

/// A task that drives on tokio's clock.
pub(super) fn drive(inner: Arc<Inner>, bell: Arc<Notify>) -> impl Future<Output = ()> {
    // Made here, since a runtime that has shut down drops the task before its first step.
    let ended = Ended(inner.clone());
    async move {
        sleep_and_start(&inner, &bell).await;
        drop(ended);
    }
}

async fn sleep_and_start(inner: &Arc<Inner>, bell: &Notify) {
    let mut begun = 0;
    let mut hands = Hands::default();
    while !inner.life.is_stopping() {
        let now = inner.ticks.at(inner.clock.now());
        if let Some(mut due) = Due::take(inner, now, &mut hands) {
            // A round counts as well: a task that never catches up makes one of its own each time.
            begun += 1 + due.rest.len() % TURN;
            while due.start(TURN) {
                tokio::task::yield_now().await;
            }
            if begun >= TURN {
                begun = 0;
                tokio::task::yield_now().await;
            }
            continue;
        }
        let tick = inner.next_tick();
        if tick <= now {
            continue;
        }
        inner.alarm.publish(tick);
        if !inner.has_work(tick) {
            match inner.ticks.instant(tick).filter(|_| tick != NEVER) {
                Some(due) => {
                    let sleep = tokio::time::sleep_until(due.into());
                    tokio::select! {
                        () = sleep => {}
                        () = bell.notified() => {}
                    }
                }
                None => bell.notified().await,
            }
            inner.woken();
        }
        inner.alarm.awake();
    }
}

/// A task that ends what a thread drives when the runtime ends that it would run on.
pub(super) fn watch(inner: Arc<Inner>, thread_ended: Arc<Notify>) -> impl Future<Output = ()> {
    struct Watch {
        inner: Arc<Inner>,
        is_over: bool,
    }
    impl Drop for Watch {
        fn drop(&mut self) {
            if !self.is_over {
                self.inner.abandon();
            }
        }
    }
    // Made here, as in `drive`.
    let mut watch = Watch {
        inner,
        is_over: false,
    };
    async move {
        thread_ended.notified().await;
        watch.is_over = true;
        drop(watch);
    }
}

/// Room for what a driver has in hand, kept from tick to tick.
#[derive(Default)]
struct Hands {
    due: Vec<(u64, Timed)>,
    runs: Vec<Claim>,
}

/// What is due and has not been started.
struct Due<'a> {
    inner: &'a Arc<Inner>,
    rest: std::vec::Drain<'a, (u64, Timed)>,
    runs: &'a mut Vec<Claim>,
}

impl<'a> Due<'a> {
    /// Takes out what is due at `now`, by tick and then by priority. `None` when there is nothing; and
    /// yet what it takes may be nothing.
    ///
    /// All of it, not the earliest tick alone: a task that never catches up is always the earliest.
    fn take(inner: &'a Arc<Inner>, now: u64, hands: &'a mut Hands) -> Option<Self> {
        if inner.earliest() > now {
            return None;
        }
        inner.driver_is_busy(true);
        let Hands { due, runs } = hands;
        due.shrink_to(KEPT);
        runs.shrink_to(KEPT);
        for shard in inner.shards.iter().filter(|shard| shard.earliest() <= now) {
            while !shard.fire(&mut shard.lock(), now, BATCH, due) {}
        }
        let order = |(tick, timed): &(u64, Timed)| match timed {
            // Somebody waits for it already.
            Timed::Timeout(_) => (*tick, i16::MIN),
            Timed::Task(entry) => (*tick, -i16::from(entry.head().priority())),
        };
        if !due.is_sorted_by_key(order) {
            // Stable: those of one priority stay in the order in which they were filed.
            due.sort_by_key(order);
        }
        Some(Due {
            inner,
            rest: due.drain(..),
            runs,
        })
    }

    /// Starts at most `count` of them. False when none is left.
    fn start(&mut self, count: usize) -> bool {
        for (tick, timed) in self.rest.by_ref().take(count) {
            match timed {
                Timed::Task(entry) => self.runs.extend(self.inner.come_due(entry, tick)),
                Timed::Timeout(timeout) => {
                    if let Some(waker) = timeout.elapse() {
                        self.inner.contain("waker", || waker.wake());
                    }
                }
            }
        }
        if !self.runs.is_empty() {
            self.inner.make_ready(self.runs.drain(..));
        }
        self.rest.len() > 0
    }
}

impl Drop for Due<'_> {
    /// A driver that is dropped in the middle leaves tasks that will not run.
    fn drop(&mut self) {
        for (_, timed) in self.rest.by_ref() {
            if let Timed::Task(entry) = timed {
                self.inner.cut(&*entry);
            }
        }
        self.inner.driver_is_busy(false);
    }
}

impl Inner {
    /// Whether a driver that is about to sleep until `tick` has something to do before that.
    fn has_work(&self, tick: u64) -> bool {
        self.life.is_stopping() || self.earliest() < tick
    }
}

/// The driver has ended, however: nothing will run any more.
struct Ended(Arc<Inner>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.close();
        self.0.driver_has_gone();
    }
}

/// What a clock knows of a scheduler.
pub(super) fn driven(inner: &Arc<Inner>) -> Weak<dyn Driven> {
    let driven: Arc<dyn Driven> = inner.clone();
    Arc::downgrade(&driven)
}

impl Driven for Inner {
    fn catch_up(&self) {
        let request = self.life.request();
        self.alarm.wake();
        if !OnBehalf::any() {
            self.life.wait_until_settled(request);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match self.next_tick() {
            NEVER => None,
            tick => self.ticks.instant(tick),
        }
    }
}
