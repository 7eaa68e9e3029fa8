//! Waiting until a scheduler is quiet: that nothing is due or runs, that a shutdown has come a step
//! further, that the driver has ended.
//!
//! A watcher counts itself in `watchers` before it looks; whoever changes what it looks at does so first
//! and reads `watchers` then. So either the watcher sees the change or it is told of it.

use std::sync::atomic::Ordering::SeqCst;

use super::inner::Inner;

impl Inner {
    pub(super) fn notify_watchers(&self) {
        // A watcher counts itself before it looks at what this caller has changed, under a lock or
        // by an access that is sequentially consistent as well.
        if self.watchers.load() > 0 {
            self.quiet.notify_waiters();
        }
    }

    /// The driver takes tasks out of the wheels, or has registered all that it took.
    pub(super) fn driver_is_busy(&self, busy: bool) {
        self.driver_busy.store(busy, SeqCst);
        if !busy {
            self.notify_watchers();
        }
    }

    /// Whether nothing is due or runs. A task may go from one of the places that are looked at to
    /// another meanwhile; then all are looked at again, until one is found in its place or none moves.
    pub(super) fn is_settled(&self) -> bool {
        let moves = || -> u64 { self.shards.iter().map(|shard| shard.moves()).sum() };
        loop {
            let before = moves();
            let due = self.next_tick() <= self.ticks.at(self.clock.now());
            // The other side is the store when the driver begins to take tasks out.
            let busy = due || self.driver_busy.load(SeqCst) || self.in_progress() > 0;
            if busy || moves() == before {
                return !busy;
            }
        }
    }

    /// The driver has ended.
    pub(super) fn driver_has_gone(&self) {
        self.life.driver_ended();
        self.driver_gone.store(true, SeqCst);
        self.notify_watchers();
        self.contain("waker", || self.events.close());
    }

    /// Ends the driver, and waits for that.
    pub(super) async fn stop_driver(&self) {
        self.life.stop();
        self.alarm.wake();
        self.until(|| self.driver_gone.load(SeqCst)).await;
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // It is on its way out. Its panics have been contained.
            let _ = thread.join();
        }
    }

    /// Waits until `is_quiet`, which is looked at again whenever a run or a task has ended.
    pub(super) async fn until(&self, is_quiet: impl Fn() -> bool) {
        struct Watch<'a>(&'a Inner);
        impl Drop for Watch<'_> {
            fn drop(&mut self) {
                self.0.watchers.fetch_sub(1);
            }
        }
        self.watchers.fetch_add(1);
        let _watch = Watch(self);
        loop {
            let mut changed = std::pin::pin!(self.quiet.notified());
            changed.as_mut().enable();
            if is_quiet() {
                return;
            }
            changed.await;
        }
    }
}
