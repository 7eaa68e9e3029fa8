//! Ctrl-C on every platform.

use std::io;

use super::{Listening, SignalSink, SignalSource};

/// The number of SIGINT, which Ctrl-C stands for.
const INTERRUPT: i32 = 2;

/// Ctrl-C through tokio: the default where there are no Unix signals.
///
/// The first asks the group to stop, the second ends the process with code 130. Unlike
/// [`OsSignals`](crate::OsSignals), it is a task: it hears nothing while the runtime is blocked, and
/// tokio keeps the signal after the group's end.
#[derive(Debug, Clone, Copy, Default)]
pub struct CtrlC;

impl SignalSource for CtrlC {
    fn listen(self: Box<Self>, sink: SignalSink) -> io::Result<Listening> {
        let task = tokio::spawn(async move {
            let mut heard = false;
            while tokio::signal::ctrl_c().await.is_ok() {
                if std::mem::replace(&mut heard, true) {
                    std::process::exit(128 + INTERRUPT);
                }
                sink.stop(INTERRUPT);
            }
        });
        Ok(Listening::new(AbortOnDrop(task.abort_handle())))
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
