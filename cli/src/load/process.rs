//! What the operating system says about this process; the only file that differs by system.

use std::time::Duration;

/// Bytes of memory that are resident, where the system tells (Linux).
#[cfg(target_os = "linux")]
pub(super) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes of memory that are resident, where the system tells (Linux).
#[cfg(not(target_os = "linux"))]
pub(super) fn resident_bytes() -> Option<u64> {
    None
}

/// User and system time of all threads so far, where the system tells (Unix).
#[cfg(unix)]
pub(super) fn cpu_time() -> Option<Duration> {
    use nix::sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike,
    };
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let micros = (usage.user_time() + usage.system_time()).num_microseconds();
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// User and system time of all threads so far, where the system tells (Unix).
#[cfg(not(unix))]
pub(super) fn cpu_time() -> Option<Duration> {
    None
}
