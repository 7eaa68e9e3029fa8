//! Groups inside one process, by the paused clock of the runtime.

mod budget;
mod consumers;
mod failures;
mod handles;
mod many;
mod order;
mod support;
