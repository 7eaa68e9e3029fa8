//! A worker of tokio's that has been given something to do while it is busy.
//!
//! A worker of the multi-thread runtime keeps the task that it woke or spawned last in a slot of its
//! own, from which no other worker takes it, and looks there when what it does at the moment comes back
//! to it. Code that computes for a second after it has scheduled something would hold up the driver, or a
//! run, for that second, though other workers are idle.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Lets other workers take the task that the calling thread woke or spawned last, if it is a worker. Costs
/// an empty task, which takes that one's place in the slot.
pub(crate) fn share_last_woken() {
    if let Ok(runtime) = Handle::try_current()
        && runtime.runtime_flavor() == RuntimeFlavor::MultiThread
    {
        drop(runtime.spawn(async {}));
    }
}
