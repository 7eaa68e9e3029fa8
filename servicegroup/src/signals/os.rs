//! Unix signals, on a thread of their own so that a blocked runtime does not keep them from coming.
//!
//! What a handler does cannot be undone (signal-hook leaves its handler in place), so each signal
//! gets, once in the life of the process and in this order:
//!
//! 1. the default action, while `idle` is true: no group listens to the signal;
//! 2. an immediate exit with 128 + n, while `armed` is true: a signal has been heard;
//! 3. setting `armed`.
//!
//! SIGHUP gets only the first. The order matters: the first signal finds `armed` false and sets it,
//! and the second exits, in the handler, whatever the threads of the process do.
//!
//! | flag | true | written by |
//! |---|---|---|
//! | `idle`, one per signal | no group listens to it | [`Signals`] under the lock |
//! | `armed` | a signal has come since the first group listened | the handler; cleared under the lock when no group listens |

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use signal_hook::consts::{FORBIDDEN, SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals as Iterator};

use super::{Listening, SignalSink, SignalSource};

/// Unix signals: SIGTERM and SIGINT stop the group, SIGHUP calls its reload hooks if it has any.
///
/// A second SIGTERM or SIGINT ends the process at once with code 128 + n. (coreutils' `timeout` sends
/// its signal twice, to the process and to its group, unless it is called with `--foreground`.) After the end of the group
/// signals act by default again. Groups that run at the same time all hear each signal.
#[derive(Debug, Clone)]
pub struct OsSignals {
    stop: Vec<i32>,
}

impl Default for OsSignals {
    fn default() -> Self {
        OsSignals::new([SIGTERM, SIGINT])
    }
}

impl OsSignals {
    /// These signals, by number, stop the group. SIGKILL, SIGSTOP, SIGILL, SIGFPE and SIGSEGV cannot
    /// be had: a run with one of them fails.
    #[must_use]
    pub fn new(stop: impl IntoIterator<Item = i32>) -> Self {
        OsSignals {
            stop: stop.into_iter().collect(),
        }
    }
}

impl SignalSource for OsSignals {
    fn listen(self: Box<Self>, sink: SignalSink) -> io::Result<Listening> {
        if let Some(signal) = self.stop.iter().find(|it| FORBIDDEN.contains(it)) {
            return Err(io::Error::other(format!(
                "signal {signal} cannot be listened to"
            )));
        }
        let reload = sink.wants_reload() && !self.stop.contains(&SIGHUP);
        let mut all = self.stop.clone();
        all.extend(reload.then_some(SIGHUP));

        // The flags first: from then on nothing acts by default.
        let mut guard = Guard {
            signals: Vec::new(),
            thread: None,
        };
        for &signal in &all {
            SIGNALS.lock().listen(signal, self.stop.contains(&signal))?;
            guard.signals.push(signal);
        }
        let mut signals = Iterator::new(&all)?;
        let handle = signals.handle();
        let thread = thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    match reload && signal == SIGHUP {
                        true => sink.reload(),
                        false => _ = sink.stop(signal),
                    }
                }
            })?;
        guard.thread = Some((handle, thread));
        Ok(Listening::new(guard))
    }
}

/// One group listens to these signals.
struct Guard {
    signals: Vec<i32>,
    thread: Option<(Handle, thread::JoinHandle<()>)>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.thread.take() {
            handle.close();
            // It sends and never blocks. Its panics would be the sink's, which has none.
            let _ = thread.join();
        }
        let mut signals = SIGNALS.lock();
        for &signal in &self.signals {
            signals.leave(signal);
        }
    }
}

/// The signals of the process that some group has listened to.
struct Signals {
    armed: Option<Arc<AtomicBool>>,
    known: BTreeMap<i32, Known>,
}

struct Known {
    idle: Arc<AtomicBool>,
    groups: usize,
    stops: bool,
}

static SIGNALS: Mutex<Signals> = Mutex::new(Signals {
    armed: None,
    known: BTreeMap::new(),
});

impl Signals {
    fn listen(&mut self, signal: i32, stops: bool) -> io::Result<()> {
        let armed = self.armed.get_or_insert_default().clone();
        let known = match self.known.entry(signal) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let idle = Arc::new(AtomicBool::new(true));
                flag::register_conditional_default(signal, idle.clone())?;
                unknown.insert(Known {
                    idle,
                    groups: 0,
                    stops: false,
                })
            }
        };
        if stops && !known.stops {
            flag::register_conditional_shutdown(signal, 128 + signal, armed.clone())?;
            flag::register(signal, armed)?;
            known.stops = true;
        }
        known.groups += 1;
        // SeqCst, as in the handler on the other side; nothing else is read through it.
        known.idle.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn leave(&mut self, signal: i32) {
        if let Some(known) = self.known.get_mut(&signal) {
            known.groups -= 1;
            if known.groups == 0 {
                // SeqCst, as in the handler on the other side.
                known.idle.store(true, Ordering::SeqCst);
            }
        }
        if let Some(armed) = &self.armed
            && self.known.values().all(|it| it.groups == 0)
        {
            // SeqCst, as in the handler on the other side.
            armed.store(false, Ordering::SeqCst);
        }
    }
}
