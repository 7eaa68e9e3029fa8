//! Waiting until threads of this process sleep.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How many threads with this name, of which the system keeps 15 bytes, sleep at this moment.
fn sleeping(name: &str) -> usize {
    let stats = fs::read_dir("/proc/self/task")
        .expect("Linux lists the threads of a process")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    // "1234 (name) S …"
    stats
        .filter(|stat| {
            let (id_and_name, rest) = stat.rsplit_once(')').expect("a name in parentheses");
            id_and_name
                .split_once('(')
                .is_some_and(|(_, it)| it == name)
                && rest.starts_with(" S")
        })
        .count()
}

/// Waits until `count` threads of this name sleep, and fails after ten seconds. A thread that has
/// been woken is not asleep from then on, whether it has got a processor or not.
pub(crate) fn await_asleep(name: &str, count: usize) {
    let give_up = Instant::now() + Duration::from_secs(10);
    while sleeping(name) != count {
        assert!(
            Instant::now() < give_up,
            "{} threads named {name} sleep, not {count}",
            sleeping(name)
        );
        thread::yield_now();
    }
}
