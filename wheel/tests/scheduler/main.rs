//! The scheduler in virtual time: one program, since each would be linked with all of tokio.
//!
//! What counts threads, heap or wake-ups, listens to what a process tells, or takes real time has a
//! program of its own: `scheduler_*.rs` beside this folder.
#![cfg(feature = "tokio")]

#[path = "../support"]
mod support {
    pub(crate) mod civil;
    pub(crate) mod runs;
    pub(crate) mod schedule;
    pub(crate) mod told;
    pub(crate) mod within;
}

mod arguments;
mod basics;
mod blocking;
mod calendar;
mod clock_locks;
mod clocks;
mod concurrency;
#[cfg(feature = "cron")]
mod cron;
mod defaults;
mod drain;
mod events;
mod faults;
mod handles;
mod hostile;
mod interval;
mod keys;
mod limits;
#[cfg(feature = "cron")]
mod model;
mod overlap;
mod pause;
mod policies;
mod retry;
mod timeout;
mod wild_clock;
