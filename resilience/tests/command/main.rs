//! Commands.
#![cfg(feature = "tokio")]

mod blocking;
mod calls;
mod dashboard;
