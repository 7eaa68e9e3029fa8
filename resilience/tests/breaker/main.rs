//! Breakers, throttles and their registry, one program. What counts bytes, listens to traces or
//! stresses has one of its own beside this folder.

mod behaviour;
mod cases;
mod clocks;
mod common;
mod faults;
mod half_open;
mod hostile;
mod model;
mod registry;
mod throttle;
