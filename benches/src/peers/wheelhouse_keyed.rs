//! `wheelhouse_keyed`: `wheelhouse_wheel::TimingWheel<u64, u64>`.
//!
//! Settings: the defaults, written out: 1 ms interval, 512 slots, 16 shards, channels of 64
//! commands, at most 16 777 216 pending, callbacks inline on the driver. Each caller has a
//! handle of its own.

use std::time::{Duration, Instant};

use wheelhouse_wheel::{Executor, SystemClock, TimingWheel};

use super::{Caller, KeyedTimers, Left, Recorder};

/// The adapter.
#[derive(Debug)]
pub struct WheelhouseKeyed(TimingWheel<u64, u64>);

impl KeyedTimers for WheelhouseKeyed {
    type Caller = Handle;

    fn start(recorder: &'static Recorder) -> Self {
        let built = TimingWheel::builder()
            .interval(Duration::from_millis(1))
            .slots(512)
            .shards(16)
            .channel(64)
            .max_pending(16_777_216)
            .executor(Executor::Inline)
            .clock(SystemClock)
            .build(|key, value| recorder.fired(key, value));
        Self(built.expect("the default settings are accepted"))
    }

    fn caller(&self) -> Handle {
        Handle(self.0.clone())
    }

    fn flush(&self) {
        self.0.flush().expect(RUNS);
    }

    fn stop(self) -> Left {
        let mut left = Left::default();
        for (_, value) in self.0.stop() {
            left.add(value);
        }
        left
    }
}

const RUNS: &str = "the wheel takes operations until it is stopped";

/// One calling thread's side.
#[derive(Debug)]
pub struct Handle(TimingWheel<u64, u64>);

impl Caller for Handle {
    #[inline]
    fn set(&mut self, key: u64, value: u64, delay: Duration) {
        self.0.set_timer(key, value, delay).expect(RUNS);
    }

    /// The wheel reads its clock itself, a little later, so that its own deadline is never before
    /// `due`.
    #[inline]
    fn set_due(&mut self, key: u64, value: u64, _due: Instant, delay: Duration) {
        self.0.set_timer(key, value, delay).expect(RUNS);
    }

    #[inline]
    fn move_to(&mut self, key: u64, delay: Duration) {
        self.0.move_timer(key, delay).expect(RUNS);
    }

    #[inline]
    fn remove(&mut self, key: u64) {
        self.0.remove_timer(key).expect(RUNS);
    }
}
