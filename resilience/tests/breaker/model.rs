//! The breaker against a naive model of it, under random programs on a clock that is moved by hand.
//!
//! Properties, checked after every operation:
//! - the same calls are admitted, and rejected for the same reason, with the same `retry_after`;
//! - verdicts are counted or stale alike;
//! - the state, the figures and the sums of the window are the same;
//! - the same transitions are told of, in the same order, at the same instants.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use wheelhouse_resilience::{
    Breaker, Cause, Closing, Consecutive, Cusum, ErrorRate, HalfOpenEnd, OwnedPermit, Reason,
    Settled, State, Verdict,
};
use wheelhouse_wheel::{Clock, ManualClock};

#[derive(Debug, Clone)]
enum Op {
    Advance(u64),
    Begin,
    /// Of the calls in flight, the one with this number, modulo.
    End(usize, Verdict),
    Drop(usize),
    /// A call that ends at once.
    Call(bool),
    ForceOpen,
    Reset,
}

#[derive(Debug, Clone, Copy)]
enum Policy {
    Consecutive(u32),
    Cusum,
    /// Calls, and the least.
    Count(usize, u64),
    /// Buckets of a second, and the least.
    Time(usize, u64),
}

#[derive(Debug, Clone, Copy)]
enum Rule {
    Successes(u32),
    Of(u32, u32),
    Rate(u32),
}

/// Times in milliseconds.
#[derive(Debug, Clone)]
struct Setting {
    policy: Policy,
    rule: Rule,
    cool_down: u64,
    growth: bool,
    probes: u32,
    probe_interval: u64,
    lease: Option<u64>,
    expired: Verdict,
    half_open: Option<(u64, HalfOpenEnd)>,
}

const STABLE: u64 = 5000;
const CAP: u64 = 8000;

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        5 => Just(Verdict::Failure),
        4 => Just(Verdict::Success),
        1 => Just(Verdict::Ignored),
    ]
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => prop_oneof![0..50_u64, 0..1500_u64, Just(1000_u64)].prop_map(Op::Advance),
        6 => Just(Op::Begin),
        6 => (any::<usize>(), verdict()).prop_map(|(call, verdict)| Op::End(call, verdict)),
        1 => any::<usize>().prop_map(Op::Drop),
        8 => any::<bool>().prop_map(Op::Call),
        1 => prop_oneof![5 => Just(Op::Advance(7)), 1 => Just(Op::ForceOpen)],
        1 => prop_oneof![3 => Just(Op::Begin), 1 => Just(Op::Reset)],
    ];
    vec(op, 1..150)
}

fn setting() -> impl Strategy<Value = Setting> {
    let policy = prop_oneof![
        (1..7_u32).prop_map(Policy::Consecutive),
        Just(Policy::Cusum),
        (1..40_usize, 0..20_u64).prop_map(|(size, least)| Policy::Count(size, least)),
        (1..6_usize, 0..20_u64).prop_map(|(buckets, least)| Policy::Time(buckets, least)),
    ];
    let rule = prop_oneof![
        (1..4_u32).prop_map(Rule::Successes),
        (1..3_u32, 0..3_u32).prop_map(|(needed, more)| Rule::Of(needed, needed + more)),
        (1..4_u32).prop_map(Rule::Rate),
    ];
    let time = || prop_oneof![Just(0), Just(500), Just(1000), 0..3000_u64];
    let end = prop_oneof![Just(HalfOpenEnd::Open), Just(HalfOpenEnd::Closed)];
    (
        policy,
        rule,
        time(),
        any::<bool>(),
        1..4_u32,
        time(),
        proptest::option::of(time()),
        verdict(),
        proptest::option::of((time(), end)),
    )
        .prop_map(
            |(
                policy,
                rule,
                cool_down,
                growth,
                probes,
                probe_interval,
                lease,
                expired,
                half_open,
            )| {
                Setting {
                    policy,
                    rule,
                    cool_down,
                    growth,
                    probes,
                    probe_interval,
                    lease,
                    expired,
                    half_open,
                }
            },
        )
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn build(setting: &Setting, clock: &ManualClock) -> Breaker {
    let builder = Breaker::consecutive()
        .clock(clock.clone())
        .cool_down(ms(setting.cool_down))
        .growth(if setting.growth { 2.0 } else { 1.0 })
        .max_cool_down(ms(CAP))
        .stable_after(ms(STABLE))
        .max_probes(setting.probes)
        .probe_interval(ms(setting.probe_interval))
        .lease(setting.lease.map(ms))
        .expired_as(setting.expired);
    let builder = match setting.half_open {
        Some((time, end)) => builder.max_half_open(ms(time), end),
        None => builder,
    };
    let builder = match setting.policy {
        Policy::Consecutive(failures) => builder.trip_on(Consecutive::failures(failures)),
        Policy::Cusum => builder.trip_on(Cusum::new()),
        Policy::Count(size, least) => {
            builder.trip_on(ErrorRate::above(0.5).last(size).minimum(least))
        }
        Policy::Time(buckets, least) => {
            let span = ms(1000 * buckets as u64);
            builder.trip_on(ErrorRate::above(0.5).within(span, buckets).minimum(least))
        }
    };
    let closing = match setting.rule {
        Rule::Successes(needed) => Closing::successes(needed),
        Rule::Of(needed, of) => Closing::of(needed, of),
        Rule::Rate(of) => Closing::rate(of, 0.5),
    };
    builder.closing(closing).build().unwrap()
}

#[derive(Debug, Default)]
struct Figures {
    successes: u64,
    failures: u64,
    ignored: u64,
    cancelled: u64,
    rejected: u64,
    stale: u64,
    probes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    generation: usize,
    /// Of a probe.
    number: Option<u64>,
}

/// The model. Times in milliseconds since the start.
struct Model {
    setting: Setting,
    now: u64,
    state: State,
    /// Transitions so far.
    told: Vec<(State, Cause, u64)>,
    until: u64,
    /// What a closed breaker has counted: when, and whether it failed.
    outcomes: VecDeque<(u64, bool)>,
    evidence: f64,
    /// Whether a failure found the rate too large, and only calls missing.
    watched: bool,
    leases: Vec<(u64, u64)>,
    probed: (u32, u32),
    next_probe: u64,
    /// Since it was built or reset.
    opened: bool,
    level: i32,
    closed_at: u64,
    figures: Figures,
}

impl Model {
    fn new(setting: Setting) -> Self {
        Model {
            setting,
            now: 0,
            state: State::Closed,
            told: Vec::new(),
            until: u64::MAX,
            outcomes: VecDeque::new(),
            evidence: 0.0,
            watched: false,
            leases: Vec::new(),
            probed: (0, 0),
            next_probe: 0,
            opened: false,
            level: 0,
            closed_at: 0,
            figures: Figures::default(),
        }
    }

    fn enter(&mut self, state: State, cause: Cause) {
        self.until = match state {
            State::Open => {
                let stable = self.now - self.closed_at >= STABLE;
                self.level = match self.state {
                    State::Closed if stable => 0,
                    _ if !self.opened => 0,
                    _ => self.level + 1,
                };
                self.opened = true;
                let growth = if self.setting.growth { 2_f64 } else { 1.0 };
                let grown = self.setting.cool_down as f64 * growth.powi(self.level);
                self.now + (grown as u64).min(CAP)
            }
            State::HalfOpen => match self.setting.half_open {
                Some((time, _)) => self.now + time,
                None => u64::MAX,
            },
            _ => u64::MAX,
        };
        if state == State::Closed {
            self.outcomes.clear();
            self.evidence = 0.0;
            self.watched = false;
            self.closed_at = self.now;
            if cause == Cause::Forced {
                (self.opened, self.next_probe) = (false, 0);
            }
        }
        self.leases.clear();
        self.probed = (0, 0);
        self.state = state;
        self.told.push((state, cause, self.now));
    }

    fn catch_up(&mut self) {
        if self.state == State::Open && self.now >= self.until {
            self.enter(State::HalfOpen, Cause::CooledDown);
        }
        while self.state == State::HalfOpen {
            let Some(at) = self
                .leases
                .iter()
                .position(|(_, expires)| self.now >= *expires)
            else {
                break;
            };
            self.leases.swap_remove(at);
            self.probe_ended(self.setting.expired);
        }
        if self.state == State::HalfOpen && self.now >= self.until {
            match self.setting.half_open.unwrap().1 {
                HalfOpenEnd::Open => self.enter(State::Open, Cause::HalfOpenTimeout),
                HalfOpenEnd::Closed => self.enter(State::Closed, Cause::HalfOpenTimeout),
            }
        }
    }

    fn begin(&mut self) -> Result<Call, (Reason, Option<u64>)> {
        let admitted = self.try_begin();
        self.figures.rejected += u64::from(admitted.is_err());
        admitted
    }

    fn try_begin(&mut self) -> Result<Call, (Reason, Option<u64>)> {
        if matches!(self.state, State::Open | State::HalfOpen) {
            self.catch_up();
        }
        let call = Call {
            generation: self.told.len(),
            number: None,
        };
        match self.state {
            State::Open => Err((Reason::Open, Some(self.until - self.now))),
            State::ForcedOpen => Err((Reason::ForcedOpen, None)),
            State::HalfOpen => {
                let most = match self.setting.rule {
                    Rule::Successes(n) | Rule::Of(_, n) | Rule::Rate(n) => n,
                };
                let settled = self.probed.0 + self.probed.1;
                let held = self.leases.len() as u32;
                if held >= self.setting.probes || held + settled >= most {
                    let first = self
                        .leases
                        .iter()
                        .map(|(_, expires)| *expires)
                        .min()
                        .unwrap();
                    let after = (first != u64::MAX).then(|| first - self.now);
                    return Err((Reason::HalfOpenFull, after));
                }
                if self.now < self.next_probe {
                    return Err((Reason::ProbeInterval, Some(self.next_probe - self.now)));
                }
                let number = self.figures.probes;
                self.figures.probes += 1;
                self.next_probe = self.now + self.setting.probe_interval;
                let expires = self
                    .setting
                    .lease
                    .map_or(u64::MAX, |lease| self.now + lease);
                self.leases.push((number, expires));
                Ok(Call {
                    number: Some(number),
                    ..call
                })
            }
            _ => Ok(call),
        }
    }

    fn end(&mut self, call: Call, verdict: Verdict) -> Settled {
        match call.number {
            Some(number) => {
                self.catch_up();
                let Some(at) = self.leases.iter().position(|(held, _)| *held == number) else {
                    self.figures.stale += 1;
                    return Settled::Stale;
                };
                self.leases.swap_remove(at);
                self.probe_ended(verdict);
            }
            None if call.generation != self.told.len() => {
                self.figures.stale += 1;
                return Settled::Stale;
            }
            None => self.closed_ended(verdict),
        }
        Settled::Counted
    }

    fn drop(&mut self, call: Call) {
        self.figures.cancelled += 1;
        if let Some(number) = call.number
            && let Some(at) = self.leases.iter().position(|(held, _)| *held == number)
        {
            self.leases.swap_remove(at);
            self.next_probe = 0;
        }
    }

    fn probe_ended(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Ignored => {
                self.figures.ignored += 1;
                self.next_probe = 0;
                return;
            }
            Verdict::Success => {
                self.figures.successes += 1;
                self.probed.0 += 1;
            }
            Verdict::Failure => {
                self.figures.failures += 1;
                self.probed.1 += 1;
            }
        }
        let (good, bad) = self.probed;
        let close = match self.setting.rule {
            Rule::Successes(_) if bad > 0 => Some(false),
            Rule::Successes(needed) => (good >= needed).then_some(true),
            Rule::Of(needed, _) if good >= needed => Some(true),
            Rule::Of(needed, of) => (bad > of - needed).then_some(false),
            Rule::Rate(of) => (good + bad >= of).then_some(2 * bad <= good + bad),
        };
        match close {
            Some(true) => self.enter(State::Closed, Cause::ProbesSucceeded),
            Some(false) => self.enter(State::Open, Cause::ProbesFailed),
            None => {}
        }
    }

    /// Requests and errors in the window.
    fn window(&self) -> (usize, usize) {
        let counted: Vec<bool> = match self.setting.policy {
            Policy::Count(size, _) => {
                let gone = self.outcomes.len().saturating_sub(size);
                self.outcomes
                    .iter()
                    .skip(gone)
                    .map(|(_, failed)| *failed)
                    .collect()
            }
            Policy::Time(buckets, _) => {
                let in_window = |at: u64| at / 1000 + buckets as u64 > self.now / 1000;
                let inside = self.outcomes.iter().filter(|(at, _)| in_window(*at));
                inside.map(|(_, failed)| *failed).collect()
            }
            _ => return (0, 0),
        };
        (
            counted.len(),
            counted.iter().filter(|failed| **failed).count(),
        )
    }

    fn closed_ended(&mut self, verdict: Verdict) {
        let failed = match verdict {
            Verdict::Ignored => {
                self.figures.ignored += 1;
                return;
            }
            Verdict::Success => false,
            Verdict::Failure => true,
        };
        self.figures.successes += u64::from(!failed);
        self.figures.failures += u64::from(failed);
        self.outcomes.push_back((self.now, failed));
        let weight = match failed {
            true => (0.7_f64 / 0.2).ln(),
            false => -(0.8_f64 / 0.3).ln(),
        };
        self.evidence = (self.evidence + weight).max(0.0);
        let (requests, errors) = self.window();
        let mut too_many = |least: u64| {
            // Rates look when a call fails; and when one goes well, if only calls were missing.
            let looks = failed || self.watched;
            let (over, enough) = (2 * errors > requests, requests as u64 >= least);
            self.watched = looks && over && !enough || failed && self.watched;
            looks && over && enough
        };
        let tripped = match self.setting.policy {
            Policy::Consecutive(most) => {
                let run = self.outcomes.iter().rev().take_while(|(_, failed)| *failed);
                (run.count() >= most as usize).then_some("consecutive failures")
            }
            Policy::Cusum => (self.evidence >= 1e9_f64.ln()).then_some("cusum"),
            Policy::Count(size, least) => too_many(least.min(size as u64)).then_some("error rate"),
            Policy::Time(_, least) => too_many(least).then_some("error rate"),
        };
        if let Some(policy) = tripped {
            self.enter(State::Open, Cause::Tripped(policy));
        }
    }

    fn state(&self) -> State {
        match self.state {
            State::Open if self.now >= self.until => State::HalfOpen,
            state => state,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(setting in setting(), ops in ops()) {
        let clock = ManualClock::new();
        let start: Instant = clock.now();
        let breaker = build(&setting, &clock);
        let events = breaker.subscribe();
        let mut model = Model::new(setting);
        let mut told = 0;
        let mut calls: Vec<(OwnedPermit, Call)> = Vec::new();
        for op in ops {
            let begin = |model: &mut Model| {
                let real = breaker.try_acquire_owned();
                let modelled = model.begin();
                match (&real, &modelled) {
                    (Ok(permit), Ok(call)) => assert_eq!(permit.is_probe(), call.number.is_some()),
                    (Err(real), Err((reason, after))) => {
                        assert_eq!(real.reason(), *reason);
                        assert_eq!(real.retry_after(), after.map(ms));
                    }
                    _ => panic!("{real:?} against {modelled:?}"),
                }
                real.ok().zip(modelled.ok())
            };
            match op {
                Op::Advance(by) => {
                    clock.advance(ms(by));
                    model.now += by;
                }
                Op::Begin => calls.extend(begin(&mut model)),
                Op::End(at, verdict) => if !calls.is_empty() {
                    let (permit, call) = calls.swap_remove(at % calls.len());
                    prop_assert_eq!(permit.settle(verdict), model.end(call, verdict));
                },
                Op::Drop(at) => if !calls.is_empty() {
                    let (permit, call) = calls.swap_remove(at % calls.len());
                    drop(permit);
                    model.drop(call);
                },
                Op::Call(success) => {
                    let verdict = if success { Verdict::Success } else { Verdict::Failure };
                    if let Some((permit, call)) = begin(&mut model) {
                        prop_assert_eq!(permit.settle(verdict), model.end(call, verdict));
                    }
                }
                Op::ForceOpen => {
                    breaker.force_open();
                    if model.state != State::ForcedOpen {
                        model.enter(State::ForcedOpen, Cause::Forced);
                    }
                }
                Op::Reset => {
                    breaker.reset();
                    model.enter(State::Closed, Cause::Forced);
                }
            }
            prop_assert_eq!(breaker.state(), model.state());
            while let Some(event) = events.try_next() {
                let (to, cause, at) = model.told[told];
                told += 1;
                prop_assert_eq!((event.to, event.cause, event.at), (to, cause, start + ms(at)));
                prop_assert_eq!(event.sequence, told as u64);
            }
            prop_assert_eq!(told, model.told.len());
            let (stats, figures) = (breaker.stats(), &model.figures);
            prop_assert_eq!(
                (stats.successes, stats.failures, stats.ignored, stats.cancelled),
                (figures.successes, figures.failures, figures.ignored, figures.cancelled)
            );
            prop_assert_eq!(
                (stats.rejected, stats.stale, stats.probes),
                (figures.rejected, figures.stale, figures.probes)
            );
            let (requests, errors) = model.window();
            if model.state == State::Closed {
                prop_assert_eq!(
                    (stats.window.requests, stats.window.errors),
                    (requests as u64, errors as u64)
                );
            }
        }
        for (permit, _) in calls {
            permit.ignored();
        }
    }
}
