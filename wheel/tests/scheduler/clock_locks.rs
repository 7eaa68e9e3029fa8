//! The clock is user code: it is read outside every lock, so that it may ask the scheduler.

use std::future::ready;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use crate::support::within::within_a_minute;
use wheelhouse_wheel::scheduler::{Scheduler, Status, TaskOptions, TaskRef};
use wheelhouse_wheel::{Clock, SystemClock};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Whenever it is read, it looks at a task, which takes the locks of that and of its shard.
#[derive(Clone, Default)]
struct Curious(Arc<OnceLock<(Scheduler, TaskRef)>>);

impl Curious {
    fn look(&self) {
        if let Some((scheduler, task)) = self.0.get() {
            drop((task.status(), task.name(), task.pause(), task.resume()));
            drop((scheduler.get("key"), scheduler.stats()));
        }
    }
}

impl Clock for Curious {
    fn now(&self) -> Instant {
        self.look();
        SystemClock.now()
    }

    fn system_now(&self) -> SystemTime {
        self.look();
        SystemClock.system_now()
    }
}

#[test]
fn a_clock_may_look_at_the_task_that_asks_it() {
    within_a_minute(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let clock = Curious::default();
            let builder = Scheduler::builder().clock(clock.clone());
            let scheduler = builder.build().unwrap();
            let keyed = scheduler.task().key("key").max_concurrent(2);
            let task = now_and_much_later(keyed.immediately());
            clock.0.set((scheduler.clone(), task.clone())).ok().unwrap();
            while scheduler.stats().succeeded == 0 || task.status() != Status::Scheduled {
                tokio::task::yield_now().await;
            }
            assert!(task.next_run().is_some());
            assert!(task.reschedule(HOUR) && task.reschedule_at(Instant::now()));
            let keyed = scheduler.task().key("key").run_limit(3);
            let last = keyed.every(MS, || ready(())).unwrap();
            assert_eq!(last.await, Ok(()));
        });
    });
}

#[cfg(feature = "cron")]
fn now_and_much_later(options: TaskOptions) -> TaskRef {
    options.cron("@yearly", "UTC", || ready(())).unwrap().task()
}

#[cfg(not(feature = "cron"))]
fn now_and_much_later(options: TaskOptions) -> TaskRef {
    options.every(24 * HOUR, || ready(())).unwrap().task()
}
