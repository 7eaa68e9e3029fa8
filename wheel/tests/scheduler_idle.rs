//! A driver with nothing to do sleeps, whether it is a task or a thread.
#![cfg(feature = "tokio")]

mod support {
    #[cfg(target_os = "linux")]
    pub(crate) mod asleep;
}

use std::future::ready;
use std::time::Duration;

use wheelhouse_wheel::scheduler::Scheduler;

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_task_that_drives_is_not_woken_while_nothing_is_due() {
    let scheduler = Scheduler::builder().build().unwrap();
    let pending: Vec<_> = (0..1000)
        .map(|n| {
            scheduler
                .after(2 * HOUR + n * HOUR / 1000, || ready(()))
                .unwrap()
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let before = scheduler.stats().wakeups;
    tokio::time::sleep(HOUR).await;
    // Cancelled or put off, they are not looked for either.
    for (n, task) in pending.iter().enumerate() {
        match n % 2 {
            0 => assert!(task.reschedule(24 * HOUR)),
            _ => drop(task.abort()),
        }
    }
    tokio::time::sleep(HOUR / 2).await;
    assert_eq!(scheduler.stats().wakeups, before);
}

/// How often the thread of this name has gone to sleep by itself.
#[cfg(target_os = "linux")]
fn voluntary_switches(name: &str) -> u64 {
    use std::fs;
    let tasks = fs::read_dir("/proc/self/task").expect("Linux lists the threads of a process");
    let status = tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
        .find(|status| status.starts_with(&format!("Name:\t{name}\n")))
        .expect("a thread of that name");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .expect("Linux counts them");
    line.trim().parse().expect("a number")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_thread_that_drives_is_not_woken_while_nothing_is_due() {
    use support::asleep::await_asleep;
    use wheelhouse_wheel::SystemClock;

    let builder = Scheduler::builder().name("idles").clock(SystemClock);
    let scheduler = builder.build().unwrap();
    let pending: Vec<_> = (0..1000)
        .map(|n| scheduler.after(HOUR + n * HOUR, || ready(())).unwrap())
        .collect();
    // The first deadline has woken it, none after that.
    scheduler.settled().await;
    await_asleep("idles", 1);
    let before = (scheduler.stats().wakeups, voluntary_switches("idles"));
    // As long as anything that polls would take to show.
    tokio::time::sleep(Duration::from_millis(500)).await;
    for (n, task) in pending.iter().enumerate() {
        match n % 2 {
            0 => assert!(task.reschedule(1000 * HOUR)),
            _ => drop(task.abort()),
        }
    }
    let after = (scheduler.stats().wakeups, voluntary_switches("idles"));
    assert_eq!(after, before);
}
