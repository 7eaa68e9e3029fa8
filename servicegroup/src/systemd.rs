//! Telling systemd how the group is, and taking the sockets that it hands over.
//!
//! | moment | message |
//! |---|---|
//! | all levels are up | `READY=1`, `STATUS=` |
//! | a reload begins, ends | `RELOADING=1` with `MONOTONIC_USEC=`, `READY=1` |
//! | while it serves, where the unit has a watchdog | `WATCHDOG=1`, twice per its time, by the driver: a blocked runtime is silent |
//! | a stop begins | `STOPPING=1`, `STATUS=`, `EXTEND_TIMEOUT_USEC=` with the total |

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use listenfd::ListenFd;
use parking_lot::Mutex;
use sd_notify::NotifyState;

/// The sockets of `LISTEN_FDS` that nobody has taken. The variable is read once, and cleared.
static INHERITED: Mutex<Option<ListenFd>> = Mutex::new(None);

/// The listening TCP socket at `index`, from 0, that the process was given by `LISTEN_FDS`: by
/// systemd's socket activation, or by the process that this one replaces. `None` if there is none, or
/// it has been taken.
///
/// The socket stays open while one process replaces another, so no connection is refused.
///
/// ```
/// use std::net::TcpListener;
/// use wheelhouse_servicegroup::inherited_listener;
///
/// # fn main() -> std::io::Result<()> {
/// let listener = match inherited_listener(0)? {
///     Some(listener) => listener,
///     None => TcpListener::bind("127.0.0.1:0")?,
/// };
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// When what is there is no listening TCP socket.
pub fn inherited_listener(index: usize) -> io::Result<Option<TcpListener>> {
    let mut inherited = INHERITED.lock();
    let sockets = inherited.get_or_insert_with(ListenFd::from_env);
    match index < sockets.len() {
        true => sockets.take_tcp_listener(index),
        false => Ok(None),
    }
}

// Nobody listens, where these fail: then there is nothing to do.

pub(crate) fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

pub(crate) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
    }
}

pub(crate) fn stopping(reason: &str, total: Duration) {
    let micros = u32::try_from(total.as_micros()).unwrap_or(u32::MAX);
    let status = format!("stopping: {reason}");
    let _ = sd_notify::notify(&[
        NotifyState::Stopping,
        NotifyState::Status(&status),
        NotifyState::ExtendTimeoutUsec(micros),
    ]);
}

/// Reports for duty for as long as it is polled, if somebody wants that.
pub(crate) async fn watchdog() {
    let Some(within) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    let mut ticks = tokio::time::interval((within / 2).max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
    }
}
