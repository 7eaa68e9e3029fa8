//! What a run looks like over time, for the plot: counts in slices of equal length.

use super::{policy::Outcome, scenario::Scenario, tally::Arrival};

/// Slices of a plot.
const SLICES: u64 = 240;
/// A run is shown whole unless its outage takes up less than this part of it.
const SMALL_PART: u64 = 10;
/// An outage is shown with as much around it at least, in nanoseconds.
const LEAST_AROUND: u64 = 30_000_000_000;

/// The part of a run that is plotted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View {
    pub(super) begin: u64,
    pub(super) end: u64,
}

impl View {
    /// The whole run, or an outage that would be too small in it, with some time before and more
    /// after.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let whole = Self {
            begin: 0,
            end: scenario.duration(),
        };
        let (Some(sick), Some(healed)) = (scenario.first_sick(), scenario.healing()) else {
            return whole;
        };
        let around = (healed - sick).max(LEAST_AROUND);
        if around.saturating_mul(SMALL_PART) > whole.end {
            return whole;
        }
        Self {
            begin: sick.saturating_sub(around),
            end: whole.end.min(healed.saturating_add(2 * around)),
        }
    }
}

/// Counts over time.
#[derive(Debug, Clone)]
pub(super) struct Series {
    view: View,
    /// Nanoseconds to a slice.
    length: u64,
    pub(super) slices: Vec<Slice>,
}

/// Counts of a slice.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Slice {
    pub(super) offered: u64,
    pub(super) admitted: u64,
    /// Calls that ended in it as failures.
    pub(super) failed: u64,
}

impl Series {
    pub(super) fn new(view: View) -> Self {
        let span = view.end - view.begin;
        let length = span.div_ceil(SLICES).max(1);
        let slices = usize::try_from(span.div_ceil(length)).unwrap_or(0);
        Self {
            view,
            length,
            slices: vec![Slice::default(); slices],
        }
    }

    /// Nanoseconds to a slice.
    pub(super) fn slice_length(&self) -> u64 {
        self.length
    }

    #[inline]
    pub(super) fn arrived(&mut self, arrival: Arrival) {
        if let Some(slice) = self.slice(arrival.at) {
            slice.offered += 1;
            slice.admitted += u64::from(arrival.admitted);
        }
    }

    #[inline]
    pub(super) fn settled(&mut self, at: u64, outcome: Outcome) {
        if outcome == Outcome::Failure
            && let Some(slice) = self.slice(at)
        {
            slice.failed += 1;
        }
    }

    fn slice(&mut self, at: u64) -> Option<&mut Slice> {
        let since = at.checked_sub(self.view.begin)?;
        self.slices
            .get_mut(usize::try_from(since / self.length).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::breaker::rate::Rate;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_small_outage_is_shown_large() {
        for (name, begin, end) in [
            ("outage-30s", 0, 150),
            ("outage-after-1h", 3570, 3690),
            ("constant-20", 0, 3600),
            ("flapping", 0, 120),
        ] {
            let scenario = Scenario::load(name, Rate::of(1000)).unwrap();
            let view = View::of(&scenario);
            assert_eq!(
                (view.begin / SECOND, view.end / SECOND),
                (begin, end),
                "{name}"
            );
        }
    }

    #[test]
    fn slices_cover_the_view_and_nothing_else() {
        let view = View {
            begin: 100,
            end: 1000,
        };
        let mut series = Series::new(view);
        for at in 0..2000 {
            let arrival = Arrival {
                at,
                good: true,
                sick: false,
                admitted: at % 2 == 0,
            };
            series.arrived(arrival);
            series.settled(at, Outcome::Failure);
        }
        let sum = |count: fn(&Slice) -> u64| series.slices.iter().map(count).sum::<u64>();
        assert_eq!(sum(|slice| slice.offered), 900);
        assert_eq!(sum(|slice| slice.admitted), 450);
        assert_eq!(sum(|slice| slice.failed), 900);
    }
}
