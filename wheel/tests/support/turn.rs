//! Shorthand for tests of `Wheel`: delays instead of ticks, and what fired as a list.

use wheelhouse_wheel::{TimerKey, Wheel};

/// Slot counts that a case runs on where it does not name one.
pub(crate) const SLOTS: [usize; 6] = [1, 2, 10, 64, 256, 4096];

/// An empty wheel.
pub(crate) fn wheel<T>(slots: usize) -> Wheel<T> {
    Wheel::with_slots(slots).expect("a legal number of slots")
}

/// Advances one tick at a time; returns what fired and when.
pub(crate) fn turn<T>(wheel: &mut Wheel<T>, ticks: u64) -> Vec<(u64, T)> {
    let mut fired = Vec::new();
    for _ in 0..ticks {
        let now = wheel.tick() + 1;
        wheel.advance(now, |_, expired| {
            assert_eq!(expired.deadline, now, "fired at its deadline");
            fired.push((now, expired.value));
        });
        wheel.validate();
    }
    fired
}

/// Advances in one go; returns what fired, with its deadline.
pub(crate) fn jump<T>(wheel: &mut Wheel<T>, now: u64) -> Vec<(u64, T)> {
    let mut fired = Vec::new();
    wheel.advance(now, |_, expired| {
        fired.push((expired.deadline, expired.value))
    });
    wheel.validate();
    fired
}

/// Inserts with a delay from the tick of the latest advance.
pub(crate) fn set<T>(wheel: &mut Wheel<T>, delay: u64, value: T) -> TimerKey {
    wheel.insert(wheel.tick().saturating_add(delay), value)
}

/// Reschedules with a delay from the tick of the latest advance; false if the key is stale.
pub(crate) fn shift<T>(wheel: &mut Wheel<T>, key: TimerKey, delay: u64) -> bool {
    wheel.reschedule(key, wheel.tick().saturating_add(delay))
}
