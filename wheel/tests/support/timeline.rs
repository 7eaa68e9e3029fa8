//! A wheel in virtual time that notes what fired and when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wheelhouse_wheel::{Builder, Clock, ManualClock, TimingWheel};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// Key, value, and the time since the start, of each pair that fired.
type Fired = Vec<(&'static str, u32, Duration)>;

/// A threaded wheel with inline callbacks.
pub(crate) struct Timeline {
    pub(crate) clock: ManualClock,
    pub(crate) wheel: TimingWheel<&'static str, u32>,
    fired: Arc<Mutex<Fired>>,
}

impl Timeline {
    pub(crate) fn new(builder: Builder) -> Self {
        let clock = ManualClock::new();
        let start = clock.now();
        let fired = Arc::new(Mutex::new(Vec::new()));
        let wheel = builder
            .clock(clock.clone())
            .build({
                let (clock, fired) = (clock.clone(), fired.clone());
                move |key, value| {
                    let at = clock.now().duration_since(start);
                    fired.lock().unwrap().push((key, value, at));
                }
            })
            .unwrap();
        Timeline {
            clock,
            wheel,
            fired,
        }
    }

    /// With ticks of a millisecond.
    pub(crate) fn with_slots(slots: usize) -> Self {
        Self::new(TimingWheel::builder().slots(slots))
    }

    pub(crate) fn set(&self, key: &'static str, value: u32, delay: Duration) {
        self.wheel.set_timer(key, value, delay).unwrap();
    }

    /// Lets time pass, every deadline in it being the present once.
    pub(crate) fn run_for(&self, time: Duration) {
        self.clock.run_for(time);
    }

    /// What has fired since this was last asked.
    pub(crate) fn fired(&self) -> Fired {
        std::mem::take(&mut self.fired.lock().unwrap())
    }
}
