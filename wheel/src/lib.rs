//! Timing wheel.
#![warn(missing_docs)]

mod wheel;

pub use wheel::{Expired, SlotsError, TimerKey, Wheel, WheelStats};
