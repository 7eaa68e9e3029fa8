//! [`Sampler`]: a thread that samples on time, for those who ask for it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Inner, Shedder};

/// A thread that samples the processor usage for a [`Shedder`] every period of real time, so that no
/// call has to read files. Dropping it ends the thread, and calls sample again; it ends by itself
/// when the last handle of the shedder is gone.
#[must_use = "the thread ends when this is dropped"]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    pub(super) fn start(shedder: &Shedder, period: Duration) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (weak, stopped) = (Arc::downgrade(&shedder.inner), stop.clone());
        let thread = thread::Builder::new().name("wheelhouse-sampler".to_owned());
        let thread = thread.spawn(move || run(&weak, &stopped, period))?;
        Ok(Sampler {
            stop,
            thread: Some(thread),
        })
    }
}

fn run(weak: &Weak<Inner>, stop: &AtomicBool, period: Duration) {
    let _driving = Driving::begin(weak);
    // Relaxed: the unpark that follows the store publishes it.
    while !stop.load(Ordering::Relaxed)
        && let Some(inner) = weak.upgrade()
    {
        Shedder { inner }.sample();
        // An early return only makes one more round, in which nothing is due.
        thread::park_timeout(period);
    }
}

/// Calls leave the samples to this thread as long as this is there, however the thread ends: the
/// shedder's clock is code of its user's, and may panic.
struct Driving<'a>(&'a Weak<Inner>);

impl<'a> Driving<'a> {
    fn begin(weak: &'a Weak<Inner>) -> Self {
        if let Some(inner) = weak.upgrade() {
            inner.heat.driver_begins();
        }
        Driving(weak)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            inner.heat.driver_ends();
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It contains the panics of the source, and is quick about its last round. Should the
            // clock have panicked there, that was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").finish_non_exhaustive()
    }
}
