//! What differs between systems: the length of the kernel's tick, and what is known of a process
//! without `/proc`.

use std::time::Duration;

/// Ticks a second in `/proc/<pid>/stat`.
pub(super) fn ticks_per_second() -> u64 {
    #[cfg(unix)]
    if let Ok(Some(ticks)) = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        && ticks > 0
    {
        return ticks.unsigned_abs();
    }
    // Linux has told programs of hundredths of a second ever since it left the i386.
    100
}

/// Processor time of this process; `None` where the system does not tell.
pub(super) fn process_time() -> Option<Duration> {
    #[cfg(unix)]
    {
        use nix::sys::resource::{UsageWho, getrusage};
        use nix::sys::time::TimeValLike;

        let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
        let micros = (usage.user_time() + usage.system_time()).num_microseconds();
        Some(Duration::from_micros(micros.unsigned_abs()))
    }
    #[cfg(not(unix))]
    None
}

/// Processors that this process may run on, one at least.
pub(super) fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |processors| processors.get() as u64)
}
