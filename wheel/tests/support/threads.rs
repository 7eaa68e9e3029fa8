//! Threads of this process, by name.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How many threads have this name, of which the system keeps 15 bytes.
pub(crate) fn threads_named(name: &str) -> usize {
    fs::read_dir("/proc/self/task")
        .expect("Linux lists the threads of a process")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|comm| comm.trim_end() == name)
        .count()
}

/// Waits until there are `count` threads of this name, and fails after ten seconds. A thread gets
/// its name only once it runs, and is listed a little longer than it runs.
pub(crate) fn await_threads(name: &str, count: usize) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while threads_named(name) != count {
        assert!(
            Instant::now() < give_up,
            "{} threads are named {name}, not {count}",
            threads_named(name)
        );
        thread::sleep(Duration::from_millis(1));
    }
}
