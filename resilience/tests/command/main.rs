//! Commands.
#![cfg(feature = "tokio")]

mod blocking;
mod common;
mod dashboard;
mod ending;
mod fallbacks;
mod opening;
mod settings;
