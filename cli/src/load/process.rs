//! What the operating system says about this process; the only file that differs by system.

use std::time::Duration;

/// Bytes of memory that this process could still get, where the system tells (Linux): what is free or
/// can be made so, and no more than its control group (version 2) has left.
#[cfg(target_os = "linux")]
pub(super) fn available_bytes() -> Option<u64> {
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let swap = bytes_of(&memory, "SwapFree:").unwrap_or(0);
    let system = bytes_of(&memory, "MemAvailable:")?.saturating_add(swap);
    Some(group_left().map_or(system, |left| left.min(system)))
}

/// Bytes of memory that this process could still get, where the system tells (Linux).
#[cfg(not(target_os = "linux"))]
pub(super) fn available_bytes() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn group_left() -> Option<u64> {
    use std::fs::read_to_string;
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = std::path::Path::new("/sys/fs/cgroup").join(path);
    // Without a limit it says "max".
    let bytes = |file| -> Option<u64> {
        let text = read_to_string(folder.join(file)).ok()?;
        text.trim().parse().ok()
    };
    Some(bytes("memory.max")?.saturating_sub(bytes("memory.current")?))
}

/// What a file of the system says in kB after this word.
#[cfg(target_os = "linux")]
fn bytes_of(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes of memory that are resident, where the system tells (Linux).
#[cfg(target_os = "linux")]
pub(super) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    bytes_of(&status, "VmRSS:")
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
