//! How a sleeping driver is woken by an earlier deadline.
//!
//! The word `wake_at` holds the tick until which the driver sleeps, or [`AWAKE`].
//!
//! | value | meaning | who may leave it |
//! |---|---|---|
//! | `AWAKE` (0) | the driver runs, and looks at every shard before it sleeps | the driver, in `publish` |
//! | 1 | the driver sleeps until its stream is read: no deadline is earlier | as below, but for `ring` |
//! | tick `t` | the driver sleeps, or is about to, until `t` | the driver when it wakes; `ring` with an earlier deadline and `wake` (stop, a moved clock, a stream's reader), who then owe the ring |
//!
//! The protocol, every access sequentially consistent (a `Word` knows no other):
//!
//! 1. A caller makes its deadline visible in its shard.
//! 2. The caller reads `wake_at`; when its deadline is earlier, it writes `AWAKE`, so that other
//!    callers need not do the same, and rings the driver's bell.
//! 3. The driver writes `wake_at`.
//! 4. The driver looks at every shard, and does not sleep if one shows an earlier deadline.
//!
//! Proof sketch. In the single order of these accesses either 3 comes before 2, and the caller
//! sees the published tick and rings; or 2 comes before 3, hence 1 before 4, and the driver sees
//! the deadline. A ring that comes before the sleep is kept as a token, so it is not lost.
//! Checked by `timing_wheel::loom_tests::an_earlier_deadline_wakes_a_sleeping_driver`.

use std::fmt;
use std::time::Duration;

use crate::sync::{Parker, Unparker, Word};

/// Tick 0 is the instant of building; nothing is ever due then, so no deadline is below it.
const AWAKE: u64 = 0;

/// What wakes a driver that sleeps. Either kind keeps one ring that comes before the sleep.
pub(crate) enum Bell {
    /// The driver is a thread.
    Thread(Unparker),
    /// The driver is a task.
    #[cfg(feature = "tokio")]
    Task(std::sync::Arc<tokio::sync::Notify>),
}

impl Bell {
    fn ring(&self) {
        match self {
            Bell::Thread(unparker) => unparker.unpark(),
            #[cfg(feature = "tokio")]
            Bell::Task(notify) => {
                notify.notify_one();
                super::worker::share_last_woken();
            }
        }
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bell::Thread(_) => "Thread(..)",
            #[cfg(feature = "tokio")]
            Bell::Task(_) => "Task(..)",
        })
    }
}

/// The callers' side.
#[derive(Debug)]
pub(crate) struct Alarm {
    wake_at: Word,
    bell: Bell,
}

impl Alarm {
    /// The alarm of the driver that `bell` wakes.
    pub(crate) fn new(bell: Bell) -> Self {
        Alarm {
            wake_at: Word::new(AWAKE),
            bell,
        }
    }

    /// Step 2: wakes the driver if it would sleep past `tick`.
    #[inline]
    pub(crate) fn ring(&self, tick: u64) {
        // The other side is the store in `sleep`.
        if tick < self.wake_at.load() {
            self.wake();
        }
    }

    /// Wakes the driver if it sleeps or is about to.
    #[cold]
    pub(crate) fn wake(&self) {
        // Rung in any case: who finds `AWAKE` must not rely on a token that another has put
        // there before, and that an earlier sleep may have used up.
        self.wake_at.store(AWAKE);
        self.bell.ring();
    }

    /// Step 3: the driver is about to sleep until `tick`. Step 4 and the sleep itself follow, then
    /// [`awake`](Self::awake).
    pub(crate) fn publish(&self, tick: u64) {
        // The other side is the load in `ring`.
        self.wake_at.store(tick.max(AWAKE + 1));
    }

    /// The driver runs: from here on every shard is looked at again before the next sleep.
    pub(crate) fn awake(&self) {
        self.wake_at.store(AWAKE);
    }

    /// Steps 3 and 4 on a thread, then sleeps for `timeout` (without one, until woken), unless `stay_awake`
    /// says that there is something to do. Returns whether it slept.
    pub(crate) fn sleep(
        &self,
        parker: &Parker,
        tick: u64,
        timeout: Option<Duration>,
        stay_awake: impl FnOnce() -> bool,
    ) -> bool {
        self.publish(tick);
        let slept = !stay_awake();
        if slept {
            match timeout {
                Some(timeout) => parker.park_timeout(timeout),
                None => parker.park(),
            }
        }
        self.awake();
        slept
    }
}
