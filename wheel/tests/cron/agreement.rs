//! Agreement with croniter, another implementation, on 12 000 random questions.
//!
//! fixtures/cron.py asked them: expressions and starts over eight zones, in 2024 to 2030. Where the
//! answers differ, it has to be for one of the reasons of [`Reason`], and a clock that is watched
//! minute by minute (the model) decides for ours.

use std::collections::BTreeMap;

use crate::support::cron_model::{Model, wall};
use wheelhouse_wheel::cron::{Cron, TimeZone, Timestamp};

const QUESTIONS: &str = include_str!("../fixtures/cron.txt");
const DAY: i64 = 86_400;

/// Where croniter differs by design, or falls short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// It makes up for the runs that an interval loses to a gap, where the hours are not `*`: soon
    /// after the gap, at a time that the expression does not name. Ours makes up for fixed times.
    MadeUpInterval,
    /// It runs a fixed time in both rounds of a repeated hour; ours in the first.
    FixedTwice,
    /// It makes up for a fixed time at the first whole minute after the gap plus the expression's
    /// second; ours at the first instant.
    SecondsAfterGap,
    /// It passes over runs of an interval in the second round of a repeated hour.
    SecondRoundMissed,
}

struct Question {
    zone: TimeZone,
    start: i64,
    theirs: i64,
    expression: &'static str,
}

fn questions() -> Vec<Question> {
    let zones = QUESTIONS
        .lines()
        .find_map(|line| line.strip_prefix("# Zones: "))
        .unwrap();
    let zones: Vec<_> = zones
        .split(' ')
        .map(|name| TimeZone::get(name).unwrap())
        .collect();
    let question = |line: &'static str| {
        let mut parts = line.splitn(4, ' ');
        let mut number = || parts.next().unwrap().parse::<i64>().unwrap();
        let [zone, start, delay] = [number(), number(), number()];
        Question {
            zone: zones[usize::try_from(zone).unwrap()].clone(),
            start,
            theirs: start + delay,
            expression: parts.next().unwrap(),
        }
    };
    let lines = QUESTIONS.lines().filter(|line| !line.starts_with('#'));
    lines.map(question).collect()
}

/// The last change of the offset at or before `second`, and whether the clock went forward.
fn last_change(zone: &TimeZone, second: i64) -> (i64, bool) {
    let change = zone
        .preceding(Timestamp::from_second(second + 1).unwrap())
        .next()
        .unwrap();
    let at = change.timestamp().as_second();
    (at, wall(zone, at) > wall(zone, at - 1) + 1)
}

/// Whether the clock has shown the same before.
fn is_second_round(zone: &TimeZone, second: i64) -> bool {
    let (at, forward) = last_change(zone, second);
    !forward && wall(zone, second) <= wall(zone, at - 1)
}

impl Question {
    fn reason(&self, model: &Model, ours: i64) -> Option<Reason> {
        let Self {
            ref zone, theirs, ..
        } = *self;
        let matches = |second| model.matches(wall(zone, second));
        let (change, forward) = last_change(zone, theirs);
        if !model.fixed && theirs < ours && !matches(theirs) && forward && theirs < change + 60 {
            Some(Reason::MadeUpInterval)
        } else if model.fixed && theirs < ours && matches(theirs) && is_second_round(zone, theirs) {
            Some(Reason::FixedTwice)
        } else if model.fixed && forward && ours == change && theirs < change + 60 && !matches(ours)
        {
            Some(Reason::SecondsAfterGap)
        } else if !model.fixed && ours < theirs && matches(ours) && is_second_round(zone, ours) {
            Some(Reason::SecondRoundMissed)
        } else {
            None
        }
    }

    fn is_near_a_change(&self) -> bool {
        let [from, to] =
            [-2 * DAY, 2 * DAY].map(|days| Timestamp::from_second(self.start + days).unwrap());
        self.zone
            .following(from)
            .next()
            .is_some_and(|change| change.timestamp() <= to)
    }
}

#[test]
fn every_answer_agrees_or_differs_for_a_known_reason() {
    let questions = questions();
    let near = questions
        .iter()
        .filter(|question| question.is_near_a_change())
        .count();
    assert!(questions.len() >= 10_000 && near * 3 >= questions.len());

    let mut agreed = 0;
    let mut explained = BTreeMap::new();
    let mut unexplained = Vec::new();
    for question in &questions {
        let Question {
            ref zone,
            start,
            theirs,
            expression,
        } = *question;
        let cron = Cron::new(expression, zone).unwrap();
        let next = cron.next_after(Timestamp::from_second(start).unwrap());
        let ours = next.unwrap().as_second();
        if ours == theirs {
            agreed += 1;
            continue;
        }
        let model = Model::read(expression);
        let watched = |tick| {
            let first = start + tick - start.rem_euclid(tick);
            model
                .runs(zone, first, ours.max(theirs) + 1, tick)
                .first()
                .copied()
        };
        // Looking once a minute is enough for runs at second 0.
        let tick = if expression.split(' ').count() == 5 {
            60
        } else {
            1
        };
        match question.reason(&model, ours) {
            Some(reason) if watched(tick) == Some(ours) => {
                *explained.entry(reason).or_insert(0) += 1
            }
            reason => unexplained.push(format!(
                "{expression:?} in {zone:?} from {start}: {ours}, croniter {theirs}, {reason:?}"
            )),
        }
    }
    println!(
        "{agreed} of {} agreed, {near} near a change, {explained:?}",
        questions.len()
    );
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    // A reason that explains nothing any more is to be taken out.
    assert_eq!(explained.len(), 4, "{explained:?}");
    // As the documentation of the module says.
    assert_eq!((questions.len(), agreed), (12_000, 12_000 - 72));
}
