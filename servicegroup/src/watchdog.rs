//! The thread that keeps the hard deadline, whatever the runtime does.
//!
//! It sleeps until somebody asks the group to stop, and then until the group has ended or the total
//! is used up. It waits for nothing that user code or a blocked standard error could hold: the board's
//! records are locked for moments only, and the last line is written by a thread that it leaves alone
//! when that does not get on.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::shared::Shared;

/// How long the last line may take to write.
const LAST_LINE: Duration = Duration::from_millis(100);

pub(crate) fn spawn(shared: Arc<Shared>, total: Duration) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new()
        .name("watchdog".into())
        .spawn(move || watch(&shared, total))
}

fn watch(shared: &Arc<Shared>, total: Duration) {
    let asked = shared.asked.wait_blocking();
    let Some(deadline) = asked.at.checked_add(total) else {
        return;
    };
    if shared.ended.wait_until(deadline).is_some() {
        return;
    }
    if shared.claim_end() {
        let report = {
            shared.board.give_up_all();
            shared.report(true, false)
        };
        let (written, waits) = mpsc::channel();
        let writer = {
            let shared = shared.clone();
            let line = report.to_string();
            thread::Builder::new().spawn(move || {
                shared.board.write(&line);
                // The watchdog may have stopped waiting.
                let _ = written.send(());
            })
        };
        if writer.is_ok() {
            // Written or not, this is the end.
            let _ = waits.recv_timeout(LAST_LINE);
        }
    } else if shared
        .ended
        .wait_until(Instant::now() + LAST_LINE)
        .is_some()
    {
        // The run has ended in time, to the moment.
        return;
    }
    exit(shared.deadline_exit_code);
}

/// Ends the process without a look at anything: no destructors, no exit handlers.
#[cfg(unix)]
fn exit(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

#[cfg(not(unix))]
fn exit(code: i32) -> ! {
    std::process::exit(code)
}
