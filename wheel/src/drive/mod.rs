//! What the drivers of both fronts, the keyed wheel's and the scheduler's, stand on.

pub(crate) mod alarm;
pub(crate) mod life;
pub(crate) mod ticks;
#[cfg(feature = "tokio")]
pub(crate) mod worker;
