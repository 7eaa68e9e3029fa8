//! The figures of the policies: a JSON object a line, or a table.

use std::fmt::Write;

use serde::{Serialize, Serializer};

use super::{scenario::Scenario, tally::Figures};
use crate::figures::grouped;

/// What a policy has shown.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) policy: String,
    pub(super) figures: Figures,
}

/// The JSON object: the keys and their order are a contract.
#[derive(Serialize)]
struct Json<'a> {
    policy: &'a str,
    scenario: &'a str,
    rps: f64,
    seed: u64,
    offered: u64,
    good_possible: u64,
    good_served: u64,
    bad_sent: u64,
    bad_before_trip: Option<u64>,
    time_to_trip_ms: Option<Milliseconds>,
    time_to_95_ms: Option<Milliseconds>,
    good_dropped_after_heal: u64,
    false_rejects: u64,
    peak_in_flight_at_heal: Option<u64>,
    probes: u64,
    transitions: u64,
}

/// Nanoseconds, written as milliseconds: whole where they are.
#[derive(Clone, Copy)]
struct Milliseconds(u64);

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, json: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000_000) {
            json.serialize_u64(self.0 / 1_000_000)
        } else {
            json.serialize_f64(self.0 as f64 / 1e6)
        }
    }
}

/// One object a line.
pub(super) fn json(all: &[Shown], scenario: &Scenario, seed: u64) -> String {
    let mut lines = String::new();
    for Shown { policy, figures } in all {
        let json = Json {
            policy,
            scenario: &scenario.name,
            rps: scenario.rate.per_second(),
            seed,
            offered: figures.offered,
            good_possible: figures.good_possible,
            good_served: figures.good_served,
            bad_sent: figures.bad_sent,
            bad_before_trip: figures.bad_before_trip,
            time_to_trip_ms: figures.time_to_trip.map(Milliseconds),
            time_to_95_ms: figures.time_to_95.map(Milliseconds),
            good_dropped_after_heal: figures.good_dropped_after_heal,
            false_rejects: figures.false_rejects,
            peak_in_flight_at_heal: figures.peak_in_flight_at_heal,
            probes: figures.probes,
            transitions: figures.transitions,
        };
        lines.push_str(&serde_json::to_string(&json).expect("names and numbers always serialize"));
        lines.push('\n');
    }
    lines
}

/// A column for each policy.
pub(super) fn table(all: &[Shown], scenario: &Scenario, seed: u64) -> String {
    let mut text = format!("{}, seed {seed}\n\n", settings(scenario));
    let columns: Vec<_> = all.iter().map(column).collect();
    let names = rows(&all[0].figures).map(|(name, _)| name);
    let widest = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let _ = write!(text, "{:widest$}", "");
    for (name, _, width) in &columns {
        let _ = write!(text, "  {name:>width$}");
    }
    text.push('\n');
    for (row, name) in names.iter().enumerate() {
        let _ = write!(text, "{name:widest$}");
        for (_, values, width) in &columns {
            let _ = write!(text, "  {:>width$}", values[row]);
        }
        text.push('\n');
    }
    text
}

/// The scenario in half a sentence.
pub(super) fn settings(scenario: &Scenario) -> String {
    format!(
        "{} at {} calls a second",
        scenario.name,
        scenario.rate.per_second()
    )
}

/// The head of a column, its values, and its width.
fn column(shown: &Shown) -> (&str, Vec<String>, usize) {
    let values: Vec<_> = rows(&shown.figures).map(|(_, value)| value).into();
    let widest = values.iter().map(|value| value.chars().count()).max();
    let width = shown.policy.len().max(widest.unwrap_or(0));
    (&shown.policy, values, width)
}

fn rows(figures: &Figures) -> [(&'static str, String); 12] {
    let none = || "–".to_owned();
    let count = |count: Option<u64>| count.map_or_else(none, grouped);
    let time = |time: Option<u64>| {
        time.map_or_else(none, |nanos| {
            let ms = nanos as f64 / 1e6;
            format!("{} ms", (ms * 10.0).round() / 10.0)
        })
    };
    [
        ("offered", grouped(figures.offered)),
        ("good possible", grouped(figures.good_possible)),
        ("good served", grouped(figures.good_served)),
        ("bad sent", grouped(figures.bad_sent)),
        ("bad before trip", count(figures.bad_before_trip)),
        ("time to trip", time(figures.time_to_trip)),
        ("time to 95 %", time(figures.time_to_95)),
        (
            "good dropped after heal",
            grouped(figures.good_dropped_after_heal),
        ),
        ("false rejects", grouped(figures.false_rejects)),
        (
            "peak in flight at heal",
            count(figures.peak_in_flight_at_heal),
        ),
        ("probes", grouped(figures.probes)),
        ("transitions", grouped(figures.transitions)),
    ]
}
