//! The figures of a run, counted as it goes, in memory that does not grow with its length.
//!
//! Ground rules: the engine tells of every arrival, settlement and of the healing, in order. Which
//! rejections fall in the span after healing is known only once it has ended, so arrivals of the
//! run that might end it are held back: at most those of 100 ms, or twenty.

use std::collections::VecDeque;

use super::{policy::Outcome, scenario::Scenario};

/// Arrivals that a run of mostly admitted ones has at least.
const FEWEST: usize = 20;
/// And the span that it covers at least, in nanoseconds.
const SPAN: u64 = 100_000_000;
/// How long after healing the calls in flight are looked at.
const AFTER_HEAL: u64 = 5_000_000_000;

/// What a run has shown.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figures {
    pub(super) offered: u64,
    pub(super) good_possible: u64,
    pub(super) good_served: u64,
    pub(super) bad_sent: u64,
    pub(super) bad_before_trip: Option<u64>,
    pub(super) time_to_trip: Option<u64>,
    pub(super) time_to_95: Option<u64>,
    pub(super) good_dropped_after_heal: u64,
    pub(super) false_rejects: u64,
    pub(super) peak_in_flight_at_heal: Option<u64>,
    pub(super) probes: u64,
    pub(super) transitions: u64,
}

/// A call as it arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) at: u64,
    /// Whether an unhindered caller would have got what it wanted.
    pub(super) good: bool,
    /// Whether it comes in a sick phase.
    pub(super) sick: bool,
    pub(super) admitted: bool,
}

impl Arrival {
    fn is_good_rejected(self) -> bool {
        self.good && !self.admitted
    }
}

/// Counts.
#[derive(Debug)]
pub(super) struct Tally {
    figures: Figures,
    /// From here on failures and rejections are those of the trip.
    trip_from: u64,
    bad_since: u64,
    tripped: bool,
    healing: Option<u64>,
    recovery: Recovery,
}

/// The search for the run of admitted arrivals that ends the span after healing.
#[derive(Debug)]
enum Recovery {
    /// Not healed, or found, or never to come.
    Over,
    Searching {
        /// Whether the arrival at the front is the first since healing.
        at_first: bool,
        held: VecDeque<Arrival>,
        admitted: usize,
    },
}

impl Tally {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            figures: Figures {
                offered: 0,
                good_possible: 0,
                good_served: 0,
                bad_sent: 0,
                bad_before_trip: None,
                time_to_trip: None,
                time_to_95: None,
                good_dropped_after_heal: 0,
                false_rejects: 0,
                peak_in_flight_at_heal: None,
                probes: 0,
                transitions: 0,
            },
            trip_from: scenario.first_sick().unwrap_or(0),
            bad_since: 0,
            tripped: false,
            healing: scenario.healing(),
            recovery: Recovery::Over,
        }
    }

    /// A call has arrived and was admitted or not; it counts as in flight if it was.
    #[inline]
    pub(super) fn arrived(&mut self, arrival: Arrival, probe: bool, in_flight: u64) {
        self.figures.offered += 1;
        self.figures.good_possible += u64::from(arrival.good);
        self.figures.probes += u64::from(probe);
        if !arrival.admitted && !self.tripped && arrival.at >= self.trip_from {
            self.tripped = true;
            self.figures.bad_before_trip = Some(self.bad_since);
            self.figures.time_to_trip = Some(arrival.at - self.trip_from);
        }
        if let (Some(healed), Some(peak)) = (self.healing, &mut self.figures.peak_in_flight_at_heal)
            && arrival.at < healed + AFTER_HEAL
        {
            *peak = in_flight.max(*peak);
        }
        match self.recovery {
            Recovery::Over => self.figures.false_rejects += false_reject(arrival),
            Recovery::Searching { .. } => self.search(arrival),
        }
    }

    /// An admitted call has ended.
    #[inline]
    pub(super) fn settled(&mut self, at: u64, outcome: Outcome, good: bool) {
        match outcome {
            Outcome::Success => self.figures.good_served += u64::from(good),
            Outcome::Failure => {
                self.figures.bad_sent += 1;
                self.bad_since += u64::from(at >= self.trip_from);
            }
            Outcome::Cancelled => {}
        }
    }

    /// The instant of healing is there, with so many calls still in flight.
    pub(super) fn healed(&mut self, in_flight: u64) {
        self.figures.peak_in_flight_at_heal = Some(in_flight);
        self.recovery = Recovery::Searching {
            at_first: true,
            held: VecDeque::new(),
            admitted: 0,
        };
    }

    /// Everything has settled.
    pub(super) fn finish(mut self, transitions: u64) -> Figures {
        self.figures.transitions = transitions;
        // What is held ends with the run and may be a run all the same.
        while let Recovery::Searching { held, .. } = &self.recovery
            && !held.is_empty()
        {
            self.judge();
        }
        self.figures
    }

    fn search(&mut self, arrival: Arrival) {
        while let Recovery::Searching { held, .. } = &self.recovery
            && held.len() >= FEWEST
            && arrival.at - held[0].at >= SPAN
        {
            self.judge();
        }
        match &mut self.recovery {
            Recovery::Searching { held, admitted, .. } => {
                *admitted += usize::from(arrival.admitted);
                held.push_back(arrival);
            }
            Recovery::Over => self.figures.false_rejects += false_reject(arrival),
        }
    }

    /// Decides on the run that begins with the oldest arrival held, and ends with the youngest.
    fn judge(&mut self) {
        let Recovery::Searching {
            at_first,
            held,
            admitted,
        } = &mut self.recovery
        else {
            return;
        };
        if *admitted * 100 >= held.len() * 95 {
            let late = held[0].at - self.healing.unwrap_or(0);
            self.figures.time_to_95 = Some(if *at_first { 0 } else { late });
            let rejects = held.iter().copied().map(false_reject).sum::<u64>();
            self.figures.false_rejects += rejects;
            self.recovery = Recovery::Over;
        } else if let Some(oldest) = held.pop_front() {
            *at_first = false;
            *admitted -= usize::from(oldest.admitted);
            self.figures.good_dropped_after_heal += u64::from(oldest.is_good_rejected());
        }
    }
}

/// 1 for a call that should have been let through, outside the span after healing.
fn false_reject(arrival: Arrival) -> u64 {
    u64::from(arrival.is_good_rejected() && !arrival.sick)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::breaker::rate::Rate;

    const MS: u64 = 1_000_000;

    /// A tally of `outage-1s`, healed at 61 s, and the times counted from there.
    fn healed() -> Tally {
        let scenario = Scenario::load("outage-1s", Rate::of(1000)).unwrap();
        let mut tally = Tally::new(&scenario);
        tally.healed(0);
        tally
    }

    fn arrive(tally: &mut Tally, at_ms: u64, admitted: bool) {
        let arrival = Arrival {
            at: 61_000 * MS + at_ms * MS,
            good: true,
            sick: false,
            admitted,
        };
        tally.arrived(arrival, false, u64::from(admitted));
    }

    #[test]
    fn recovery_at_once_is_zero() {
        let mut tally = healed();
        for at in 0..500 {
            arrive(&mut tally, at, at != 50);
        }
        let figures = tally.finish(0);
        assert_eq!(figures.time_to_95, Some(0));
        assert_eq!(figures.good_dropped_after_heal, 0);
        assert_eq!(figures.false_rejects, 1);
    }

    #[test]
    fn recovery_begins_with_the_first_arrival_of_a_good_run() {
        let mut tally = healed();
        for at in 0..1000 {
            arrive(&mut tally, at, at >= 300);
        }
        let figures = tally.finish(0);
        // Of the hundred arrivals from 295 on five are rejected.
        assert_eq!(figures.time_to_95, Some(295 * MS));
        assert_eq!(figures.good_dropped_after_heal, 295);
        assert_eq!(figures.false_rejects, 5);
    }

    #[test]
    fn a_run_has_twenty_arrivals_where_they_are_sparse() {
        let mut tally = healed();
        for number in 0..100 {
            arrive(&mut tally, number * 50, number >= 10);
        }
        let figures = tally.finish(0);
        // One rejected of twenty is 95 % admitted.
        assert_eq!(figures.time_to_95, Some(9 * 50 * MS));
        assert_eq!(
            (figures.good_dropped_after_heal, figures.false_rejects),
            (9, 1)
        );
    }

    #[test]
    fn a_run_may_be_cut_by_the_end() {
        let mut tally = healed();
        for at in 0..200 {
            arrive(&mut tally, at, at == 199);
        }
        let figures = tally.finish(0);
        assert_eq!(figures.time_to_95, Some(199 * MS));
        assert_eq!(figures.good_dropped_after_heal, 199);
    }

    #[test]
    fn without_recovery_all_good_rejections_are_in_the_span() {
        let mut tally = healed();
        for at in 0..200 {
            arrive(&mut tally, at, at % 2 == 1 && at < 190);
        }
        let figures = tally.finish(0);
        assert_eq!(figures.time_to_95, None);
        assert_eq!(figures.good_dropped_after_heal, 105);
        assert_eq!(figures.false_rejects, 0);
    }

    #[test]
    fn the_trip_counts_from_the_first_sick_phase() {
        let scenario = Scenario::load("outage-30s", Rate::of(1000)).unwrap();
        let mut tally = Tally::new(&scenario);
        let arrival = |at, admitted| Arrival {
            at: at * MS,
            good: false,
            sick: true,
            admitted,
        };
        tally.arrived(arrival(10, false), false, 0);
        tally.settled(20 * MS, Outcome::Failure, false);
        for at in 60_000..60_004 {
            tally.arrived(arrival(at, true), false, 0);
            tally.settled(at * MS, Outcome::Failure, false);
        }
        tally.arrived(arrival(60_016, false), false, 0);
        tally.settled(60_016 * MS, Outcome::Failure, false);
        let figures = tally.finish(2);
        assert_eq!(figures.bad_before_trip, Some(4));
        assert_eq!(figures.time_to_trip, Some(16 * MS));
        assert_eq!((figures.bad_sent, figures.transitions), (6, 2));
        assert_eq!(figures.peak_in_flight_at_heal, None);
    }

    #[test]
    fn the_peak_is_of_five_seconds() {
        let mut tally = healed();
        let arrival = |at_ms: u64| Arrival {
            at: (61_000 + at_ms) * MS,
            good: true,
            sick: false,
            admitted: true,
        };
        tally.arrived(arrival(0), false, 3);
        tally.arrived(arrival(4_999), false, 7);
        tally.arrived(arrival(5_000), false, 9);
        assert_eq!(tally.finish(0).peak_in_flight_at_heal, Some(7));
    }
}
