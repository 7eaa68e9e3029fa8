//! What the callbacks of every runtime subject do: note that a timer has fired, and how late.

use std::time::Instant;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// The callback's ledger, the same for every subject.
///
/// One lock guards it: the subjects that fire on one thread never wait for it, and those that fire
/// on several hold it for tens of nanoseconds.
#[derive(Debug)]
pub struct Recorder {
    epoch: Instant,
    values: Values,
    /// Whether each key is noted.
    keys: bool,
    fired: Mutex<Fired>,
}

/// What the timers' values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Values {
    /// Any numbers.
    Plain,
    /// When the timer is due, in nanoseconds since the epoch.
    Due,
}

/// What has fired so far.
#[derive(Debug, Clone)]
pub struct Fired {
    /// Timers.
    pub count: u64,
    /// Sum of their keys.
    pub keys: u64,
    /// Sum of their values.
    pub values: u64,
    /// Timers whose callback began before they were due.
    pub early: u64,
    /// Callback start minus due, in nanoseconds, to three digits.
    pub lateness: Histogram<u64>,
    /// Every key, in the order of firing, if they are noted.
    pub each: Vec<u64>,
    /// Timers due before this value are left out of `lateness`.
    measured_from: u64,
}

impl Recorder {
    /// Counts what fires, whatever the values.
    pub fn counting() -> &'static Self {
        Self::new(Values::Plain, false)
    }

    /// Also measures lateness; the values are those that [`value_of`](Self::value_of) gives.
    pub fn lateness() -> &'static Self {
        Self::new(Values::Due, false)
    }

    /// Also notes each key.
    pub fn lateness_and_keys() -> &'static Self {
        Self::new(Values::Due, true)
    }

    /// Lives as long as the process, so that no subject pays for sharing it. A run makes one.
    fn new(values: Values, keys: bool) -> &'static Self {
        let lateness = Histogram::new_with_bounds(1, 1_000_000_000_000, 3)
            .expect("1 ns to 1000 s to three digits is a range the histogram allows");
        Box::leak(Box::new(Self {
            epoch: Instant::now(),
            values,
            keys,
            fired: Mutex::new(Fired {
                count: 0,
                keys: 0,
                values: 0,
                early: 0,
                lateness,
                each: Vec::new(),
                measured_from: 0,
            }),
        }))
    }

    /// The value of a timer that is due at `due`.
    pub fn value_of(&self, due: Instant) -> u64 {
        (due - self.epoch).as_nanos() as u64
    }

    /// Measures lateness anew, of timers due at `from` or after.
    pub fn measure_from(&self, from: Instant) {
        let from = self.value_of(from);
        let mut fired = self.fired.lock();
        fired.measured_from = from;
        fired.lateness.reset();
    }

    /// The callback.
    pub fn fired(&self, key: u64, value: u64) {
        let now = match self.values {
            Values::Plain => None,
            Values::Due => Some(self.value_of(Instant::now())),
        };
        let mut fired = self.fired.lock();
        fired.count += 1;
        fired.keys += key;
        fired.values += value;
        match now.map(|now| now.checked_sub(value)) {
            None => {}
            Some(None) => fired.early += 1,
            Some(Some(late)) if value >= fired.measured_from => {
                fired.lateness.saturating_record(late);
            }
            Some(Some(_)) => {}
        }
        if self.keys {
            fired.each.push(key);
        }
    }

    /// Timers fired so far.
    pub fn count(&self) -> u64 {
        self.fired.lock().count
    }

    /// A copy of everything noted so far.
    pub fn snapshot(&self) -> Fired {
        self.fired.lock().clone()
    }
}
