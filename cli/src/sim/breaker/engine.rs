//! The modelled backend under a virtual clock: calls arrive, are admitted or not, wait, are worked
//! on, and settle.
//!
//! Ground rules:
//! - At one instant calls settle first, in the order of their arrival; then a new phase begins; then
//!   calls arrive.
//! - A call keeps the error rate, latency, timeout and fate of the phase in which it arrives; the
//!   capacity is that of the present phase.
//! - Whether a call is good is drawn from the seed and its number alone, so that it is the same for
//!   every policy, admitted or not.
//! - A cancelled call is dropped by its caller when it would have been answered.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use super::{
    policy::{Outcome, Policy},
    rate::Clockwork,
    scenario::{Phase, Scenario},
    series::Series,
    tally::{Arrival, Figures, Tally},
};

/// Drives `policy` through the scenario, until all admitted calls have settled.
pub(super) fn run<P: Policy>(
    policy: P,
    scenario: &Scenario,
    seed: u64,
    series: Option<&mut Series>,
) -> Figures {
    let mut backend = Backend {
        policy,
        phases: &scenario.phases,
        present: 0,
        healing: scenario.healing(),
        events: BinaryHeap::new(),
        calls: Vec::new(),
        free: Vec::new(),
        waiting: VecDeque::new(),
        working: 0,
        in_flight: 0,
        tally: Tally::new(scenario),
        series,
    };
    let mut clockwork = Clockwork::new(scenario.rate, scenario.arrivals, seed);
    let end = scenario.duration();
    for number in 0.. {
        let at = clockwork.next();
        if at >= end {
            break;
        }
        backend.catch_up(at);
        backend.arrive(number, at, draw(seed, number));
    }
    backend.catch_up(u64::MAX);
    backend.tally.finish(backend.policy.transitions())
}

struct Backend<'a, P: Policy> {
    policy: P,
    phases: &'a [Phase],
    /// The place of the phase that has begun last.
    present: usize,
    healing: Option<u64>,
    events: BinaryHeap<Reverse<Event>>,
    calls: Vec<Call<P::Token>>,
    free: Vec<u32>,
    /// Calls without a place, first come first served. Those that were given up meanwhile are
    /// still in it, and known by their number.
    waiting: VecDeque<(u32, u64)>,
    working: u64,
    in_flight: u64,
    tally: Tally,
    series: Option<&'a mut Series>,
}

/// An admitted call.
struct Call<T> {
    token: Option<T>,
    number: u64,
    good: bool,
    latency: u64,
    /// When it is given up.
    deadline: u64,
    /// How it ends if it is not given up, and `None` if it is never answered.
    answer: Option<Outcome>,
    working: bool,
}

/// The end of a call; the order of the fields is that of the events.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: u64,
    number: u64,
    slot: u32,
    outcome: EventKind,
}

/// A call that waits has an event at its deadline; once it is worked on, it may have an earlier one
/// too, and the later one finds it gone.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    Answered,
    GivenUp,
}

impl<P: Policy> Backend<'_, P> {
    /// Everything that happens up to and at `until` and before the arrivals then.
    fn catch_up(&mut self, until: u64) {
        loop {
            let next_phase = self
                .phases
                .get(self.present + 1)
                .map_or(u64::MAX, |phase| phase.begin);
            match self.events.peek() {
                Some(Reverse(event)) if event.at <= until && event.at <= next_phase => {
                    if let Some(Reverse(event)) = self.events.pop() {
                        self.settle(&event);
                    }
                }
                _ if next_phase <= until && self.present + 1 < self.phases.len() => {
                    self.begin_phase(next_phase);
                }
                _ => return,
            }
        }
    }

    fn begin_phase(&mut self, at: u64) {
        self.present += 1;
        // Phases of no length may begin at the same instant: only the first heals.
        if self.healing.is_some_and(|healing| healing <= at) {
            self.healing = None;
            self.tally.healed(self.in_flight);
        }
        self.fill_places(at);
    }

    fn arrive(&mut self, number: u64, at: u64, draws: [f64; 2]) {
        let phase = &self.phases[self.present];
        let fails = draws[0] < phase.error_rate;
        let cancelled = draws[1] < phase.cancel_rate;
        let good = !(fails || cancelled || phase.hang);
        let sick = phase.is_sick();
        let admitted = self.policy.admit(at);
        let is_admitted = admitted.is_some();
        let mut probe = false;
        if let Some(admitted) = admitted {
            probe = admitted.probe;
            self.in_flight += 1;
            let answer = if cancelled {
                Some(Outcome::Cancelled)
            } else if phase.hang {
                None
            } else if fails {
                Some(Outcome::Failure)
            } else {
                Some(Outcome::Success)
            };
            let call = Call {
                token: Some(admitted.token),
                number,
                good,
                latency: phase.latency,
                deadline: at.saturating_add(phase.timeout),
                answer,
                working: false,
            };
            self.accept(call, at);
        }
        let arrival = Arrival {
            at,
            good,
            sick,
            admitted: is_admitted,
        };
        self.tally.arrived(arrival, probe, self.in_flight);
        if let Some(series) = &mut self.series {
            series.arrived(arrival);
        }
    }

    /// Gives the call a place, or lets it wait for one.
    fn accept(&mut self, call: Call<P::Token>, now: u64) {
        let (number, deadline) = (call.number, call.deadline);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.calls[slot as usize] = call;
                slot
            }
            None => {
                self.calls.push(call);
                u32::try_from(self.calls.len() - 1).expect("fewer calls in flight than 2^32")
            }
        };
        if self.has_place() {
            if !self.work_on(slot, now) {
                self.push(deadline, number, slot, EventKind::GivenUp);
            }
        } else {
            self.waiting.push_back((slot, number));
            self.push(deadline, number, slot, EventKind::GivenUp);
        }
    }

    fn has_place(&self) -> bool {
        let capacity = self.phases[self.present].capacity;
        capacity.is_none_or(|capacity| self.working < capacity)
    }

    /// Begins with a call, and says whether it will be answered before it is given up.
    fn work_on(&mut self, slot: u32, now: u64) -> bool {
        self.working += 1;
        let call = &mut self.calls[slot as usize];
        call.working = true;
        let answered = now.saturating_add(call.latency);
        let in_time = call.answer.is_some() && answered <= call.deadline;
        if in_time {
            let number = call.number;
            self.push(answered, number, slot, EventKind::Answered);
        }
        in_time
    }

    fn push(&mut self, at: u64, number: u64, slot: u32, outcome: EventKind) {
        self.events.push(Reverse(Event {
            at,
            number,
            slot,
            outcome,
        }));
    }

    fn settle(&mut self, event: &Event) {
        let call = &mut self.calls[event.slot as usize];
        // Another call may have the slot by now.
        if call.number != event.number {
            return;
        }
        let Some(token) = call.token.take() else {
            return;
        };
        let outcome = match event.outcome {
            EventKind::Answered => call.answer.unwrap_or(Outcome::Failure),
            EventKind::GivenUp => Outcome::Failure,
        };
        let (good, working) = (call.good, call.working);
        self.free.push(event.slot);
        self.in_flight -= 1;
        self.policy.settle(token, outcome, event.at);
        self.tally.settled(event.at, outcome, good);
        if let Some(series) = &mut self.series {
            series.settled(event.at, outcome);
        }
        if working {
            self.working -= 1;
            self.fill_places(event.at);
        }
    }

    fn fill_places(&mut self, now: u64) {
        while !self.waiting.is_empty() && self.has_place() {
            let Some((slot, number)) = self.waiting.pop_front() else {
                return;
            };
            let call = &self.calls[slot as usize];
            // One that was given up is gone, and its slot may have another call.
            if call.number == number && call.token.is_some() {
                self.work_on(slot, now);
            }
        }
    }
}

/// Two numbers in 0..1 for the call of that number: whether it fails, and whether it is cancelled.
fn draw(seed: u64, number: u64) -> [f64; 2] {
    // One step of SplitMix64 (Steele, Lea and Flood, 2014) each, from a place of its own.
    let mix = |place: u64| {
        let mut word = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    let start = mix(seed.wrapping_add(1));
    let share = |word: u64| (word >> 11) as f64 / (1_u64 << 53) as f64;
    let place = start.wrapping_add(number.wrapping_mul(2));
    [share(mix(place)), share(mix(place.wrapping_add(1)))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::breaker::{
        policy::Admitted,
        rate::Rate,
        scenario::{Arrivals, Scenario},
    };

    const MS: u64 = 1_000_000;

    /// Admits everything but the calls of some instants, and notes what it is told.
    struct Recorder<'a> {
        reject: &'a dyn Fn(u64) -> bool,
        log: &'a mut Vec<(u64, &'static str)>,
    }

    impl Policy for Recorder<'_> {
        type Token = u64;

        fn admit(&mut self, now: u64) -> Option<Admitted<u64>> {
            self.log.push((now / MS, "arrives"));
            if (self.reject)(now / MS) {
                None
            } else {
                Admitted::plain(now)
            }
        }

        fn settle(&mut self, _: u64, outcome: Outcome, now: u64) {
            let word = match outcome {
                Outcome::Success => "succeeds",
                Outcome::Failure => "fails",
                Outcome::Cancelled => "is cancelled",
            };
            self.log.push((now / MS, word));
        }

        fn transitions(&self) -> u64 {
            0
        }
    }

    fn phase(begin: u64, end: u64) -> Phase {
        Phase {
            begin: begin * MS,
            end: end * MS,
            error_rate: 0.0,
            latency: 5 * MS,
            capacity: None,
            hang: false,
            timeout: 1000 * MS,
            cancel_rate: 0.0,
        }
    }

    fn scenario(rps: u64, phases: Vec<Phase>) -> Scenario {
        Scenario {
            name: "a test".to_owned(),
            phases,
            arrivals: Arrivals::Even,
            rate: Rate::of(rps),
        }
    }

    /// The log of a run that rejects nothing, and its figures.
    fn play(scenario: &Scenario) -> (Vec<(u64, &'static str)>, Figures) {
        let mut log = Vec::new();
        let policy = Recorder {
            reject: &|_| false,
            log: &mut log,
        };
        let figures = run(policy, scenario, 1, None);
        (log, figures)
    }

    #[test]
    fn calls_settle_before_others_arrive() {
        let (log, figures) = play(&scenario(200, vec![phase(0, 12)]));
        let wanted = [
            (0, "arrives"),
            (5, "succeeds"),
            (5, "arrives"),
            (10, "succeeds"),
            (10, "arrives"),
            (15, "succeeds"),
        ];
        assert_eq!(log, wanted);
        assert_eq!((figures.offered, figures.good_served), (3, 3));
    }

    #[test]
    fn what_is_over_the_capacity_waits_its_turn_and_is_given_up() {
        let narrow = Phase {
            capacity: Some(1),
            latency: 30 * MS,
            timeout: 65 * MS,
            ..phase(0, 40)
        };
        let (log, figures) = play(&scenario(100, vec![narrow]));
        let settled: Vec<_> = log.iter().filter(|(_, what)| *what != "arrives").collect();
        let wanted = [
            (30, "succeeds"),
            // Arrived at 10, begun at 30.
            (60, "succeeds"),
            // Arrived at 20, begun at 60, given up in the middle, which frees the place; the one
            // that arrived at 30 begins then and has not enough time left either.
            (85, "fails"),
            (95, "fails"),
        ];
        assert_eq!(settled, wanted.iter().collect::<Vec<_>>());
        assert_eq!((figures.good_possible, figures.good_served), (4, 2));
        assert_eq!(figures.bad_sent, 2);
    }

    #[test]
    fn a_phase_without_a_limit_lets_the_waiting_go_on() {
        let narrow = Phase {
            capacity: Some(1),
            latency: 100 * MS,
            ..phase(0, 20)
        };
        let (log, _) = play(&scenario(100, vec![narrow, phase(20, 30)]));
        let settled: Vec<_> = log.iter().filter(|(_, what)| *what != "arrives").collect();
        // The call of 10 begins at 20 and keeps its latency.
        let wanted = [(25, "succeeds"), (100, "succeeds"), (120, "succeeds")];
        assert_eq!(settled, wanted.iter().collect::<Vec<_>>());
    }

    #[test]
    fn calls_that_hang_are_given_up_and_cancelled_ones_are_not_failures() {
        let hanging = Phase {
            hang: true,
            timeout: 40 * MS,
            ..phase(0, 20)
        };
        let leaving = Phase {
            cancel_rate: 1.0,
            ..phase(20, 30)
        };
        let (log, figures) = play(&scenario(100, vec![hanging, leaving]));
        let settled: Vec<_> = log.iter().filter(|(_, what)| *what != "arrives").collect();
        let wanted = [(25, "is cancelled"), (40, "fails"), (50, "fails")];
        assert_eq!(settled, wanted.iter().collect::<Vec<_>>());
        assert_eq!((figures.good_possible, figures.bad_sent), (0, 2));
    }

    #[test]
    fn an_answer_at_the_deadline_counts() {
        let exact = Phase {
            timeout: 5 * MS,
            ..phase(0, 10)
        };
        let (_, figures) = play(&scenario(100, vec![exact]));
        assert_eq!((figures.good_served, figures.bad_sent), (1, 0));
    }

    #[test]
    fn good_calls_are_the_same_for_every_policy() {
        let half = Phase {
            error_rate: 0.5,
            ..phase(0, 1000)
        };
        let scenario = scenario(1000, vec![half, phase(1000, 2000)]);
        let (_, all) = play(&scenario);
        let mut log = Vec::new();
        let policy = Recorder {
            reject: &|at| at % 3 == 0,
            log: &mut log,
        };
        let some = run(policy, &scenario, 1, None);
        assert_eq!(all.good_possible, some.good_possible);
        assert!((1400..1600).contains(&all.good_possible));
        assert!(some.good_served < all.good_served);
        assert_eq!(some.false_rejects + some.good_dropped_after_heal, 333);
    }

    #[test]
    fn in_flight_at_healing_is_what_is_left_and_what_comes() {
        let dead = Phase {
            error_rate: 1.0,
            latency: 500 * MS,
            ..phase(0, 100)
        };
        let (_, figures) = play(&scenario(100, vec![dead, phase(100, 200)]));
        // Ten are left, and one of the healthy ones is there at a time.
        assert_eq!(figures.peak_in_flight_at_heal, Some(11));
    }

    #[test]
    fn draws_are_spread_evenly_and_differ_by_seed() {
        let mut tenths = [0_u32; 10];
        let mut both = 0;
        for number in 0..100_000 {
            let [fails, cancelled] = draw(1, number);
            tenths[(fails * 10.0) as usize] += 1;
            both += u32::from(fails < 0.5 && cancelled < 0.5);
        }
        assert!(tenths.iter().all(|count| (9_700..10_300).contains(count)));
        assert!((24_500..25_500).contains(&both), "{both}");
        assert_ne!(draw(1, 0), draw(2, 0));
    }
}
