//! Timing wheel.
#![warn(missing_docs)]

mod clock;
mod sync;
mod timing_wheel;
mod wheel;

pub use clock::{Clock, Driven, ManualClock, SystemClock};
pub use timing_wheel::{
    BuildError, Builder, Closed, Executor, ExpiredStream, Lateness, ManualTimingWheel, SetError,
    Stats, TimingWheel, TryError, TrySetError, WeakTimingWheel,
};
pub use wheel::{Drain, Expired, Iter, SlotsError, TimerKey, Wheel, WheelStats};
