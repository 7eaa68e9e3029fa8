//! Where the wish to stop or to reload comes from, apart from handles.

#[cfg(unix)]
mod os;
mod portable;

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::report::Reason;
use crate::shared::Shared;

#[cfg(unix)]
pub use os::OsSignals;
pub use portable::CtrlC;

/// Where signals come from. A source of one's own makes any event a signal.
///
/// ```
/// use std::io;
/// use wheelhouse_servicegroup::{Listening, ServiceGroup, SignalSink, SignalSource};
///
/// /// A line on standard input ends the program.
/// struct Terminal;
///
/// impl SignalSource for Terminal {
///     fn listen(self: Box<Self>, sink: SignalSink) -> io::Result<Listening> {
///         std::thread::Builder::new().spawn(move || {
///             let _ = io::stdin().read_line(&mut String::new());
///             sink.stop(15);
///         })?;
///         Ok(Listening::new(()))
///     }
/// }
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let group = ServiceGroup::builder().signals(Terminal).build()?;
/// # Ok(()) }
/// ```
pub trait SignalSource: Send + 'static {
    /// Begins to listen, before the first service is started, and goes on until what is returned is
    /// dropped. It must not block.
    ///
    /// # Errors
    ///
    /// What keeps it from listening: then nothing is started, and the run fails.
    fn listen(self: Box<Self>, sink: SignalSink) -> io::Result<Listening>;
}

/// What a [`SignalSource`] tells its group with, from any thread.
#[derive(Clone)]
pub struct SignalSink {
    shared: Arc<Shared>,
    wants_reload: bool,
}

impl SignalSink {
    pub(crate) fn new(shared: Arc<Shared>, wants_reload: bool) -> Self {
        SignalSink {
            shared,
            wants_reload,
        }
    }

    /// Asks the group to stop because of the signal with this number. True if nobody had asked
    /// before.
    pub fn stop(&self, signal: i32) -> bool {
        self.shared.ask(Reason::Signal(signal))
    }

    /// Has the reload hooks called.
    pub fn reload(&self) {
        self.shared.reload.notify_one();
    }

    /// Whether the group has reload hooks. If not, SIGHUP is none of its business.
    #[must_use]
    pub fn wants_reload(&self) -> bool {
        self.wants_reload
    }
}

impl fmt::Debug for SignalSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalSink").finish_non_exhaustive()
    }
}

/// Somebody listens. Dropping it ends that.
#[must_use = "dropped, it ends the listening"]
pub struct Listening {
    _until_dropped: Box<dyn Send>,
}

impl Listening {
    /// `guard` is dropped when the group has ended.
    pub fn new(guard: impl Send + 'static) -> Self {
        Listening {
            _until_dropped: Box::new(guard),
        }
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").finish_non_exhaustive()
    }
}

/// What this system has.
#[cfg(unix)]
pub(crate) fn system() -> Box<dyn SignalSource> {
    Box::new(OsSignals::default())
}

#[cfg(not(unix))]
pub(crate) fn system() -> Box<dyn SignalSource> {
    Box::new(CtrlC)
}
