//! Processor time of this process, and context switches of its threads, as the kernel counts them.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// User and system time that this process has used so far.
///
/// # Panics
///
/// When the kernel has no such clock, which Linux always has.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .expect("the clock of the process's processor time")
        .into()
}

/// Identifiers of the threads that this process has now.
///
/// # Panics
///
/// Without `/proc`.
pub fn threads() -> HashSet<u32> {
    fs::read_dir("/proc/self/task")
        .expect("/proc/self/task")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// How often the threads that are not in `before` have given up the processor of their own accord:
/// each sleep that ended counts once. Threads that have ended are not seen.
///
/// # Panics
///
/// Without `/proc`.
pub fn voluntary_switches_since(before: &HashSet<u32>) -> u64 {
    threads()
        .difference(before)
        .filter_map(|thread| fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok())
        .map(|status| {
            status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
                .and_then(|count| count.trim().parse::<u64>().ok())
                .expect("a count of voluntary context switches")
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_thread_that_sleeps_and_wakes_is_counted() {
        let before = threads();
        let (wake, woken) = mpsc::channel::<()>();
        let (answer, answered) = mpsc::channel::<()>();
        let sleeper = thread::spawn(move || {
            for () in woken {
                answer.send(()).unwrap();
            }
        });
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(1));
            wake.send(()).unwrap();
            answered.recv().unwrap();
        }
        assert!(voluntary_switches_since(&before) >= 15);
        drop(wake);
        sleeper.join().unwrap();
    }

    #[test]
    fn work_takes_processor_time() {
        let before = cpu_time();
        let mut sum = 0_u64;
        while cpu_time() - before < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
    }
}
