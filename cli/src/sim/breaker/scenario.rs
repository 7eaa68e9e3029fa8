//! What happens to the backend, and when calls arrive: from a name or a JSON file.
//!
//! A file is read strictly: what is unknown, missing, doubled or out of range is an error with its
//! line and column.

use std::{fmt, fs, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected, Visitor},
};

use super::rate::Rate;

/// Phases one after the other, and the spacing of the calls.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) phases: Vec<Phase>,
    pub(super) arrivals: Arrivals,
    pub(super) rate: Rate,
}

/// The backend for a while. Times are nanoseconds since the start of the run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Phase {
    pub(super) begin: u64,
    pub(super) end: u64,
    /// The share of calls that fail.
    pub(super) error_rate: f64,
    /// From the start of a call's work to its answer.
    pub(super) latency: u64,
    /// Calls worked on at once.
    pub(super) capacity: Option<u64>,
    /// Whether calls are never answered.
    pub(super) hang: bool,
    /// So long after its arrival a call without an answer is given up.
    pub(super) timeout: u64,
    /// The share of calls whose callers go away.
    pub(super) cancel_rate: f64,
}

impl Phase {
    /// Whether a breaker should keep calls away.
    pub(super) fn is_sick(&self) -> bool {
        self.hang || self.error_rate >= 0.5
    }
}

/// How calls are spaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arrivals {
    /// All the same distance apart.
    #[default]
    Even,
    /// Independent of each other.
    Poisson,
    /// Ten at an instant.
    Bursty,
}

/// The names of the scenarios that need no file.
pub(super) const NAMES: [&str; 12] = [
    "outage-1s",
    "outage-30s",
    "outage-after-1h",
    "constant-20",
    "constant-40",
    "brownout",
    "hang",
    "flapping",
    "cold-heal",
    "capacity-3x",
    "sparse",
    "cancellations",
];

/// The longest run.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

impl Scenario {
    /// The scenario of that name, or else in the file of that name.
    ///
    /// # Errors
    ///
    /// Why it is neither.
    pub(super) fn load(name: &str, rate: Rate) -> Result<Self, String> {
        if let Some(scenario) = Self::named(name, rate) {
            return Ok(scenario);
        }
        let text = fs::read_to_string(name).map_err(|error| {
            format!(
                "{name:?} is not a scenario ({}), and as a file: {error}",
                NAMES.join(", ")
            )
        })?;
        Self::parse(&text, name, rate).map_err(|error| format!("{name}: {error}"))
    }

    /// How long it lasts, in nanoseconds.
    pub(super) fn duration(&self) -> u64 {
        self.phases.last().map_or(0, |phase| phase.end)
    }

    /// The start of the first sick phase.
    pub(super) fn first_sick(&self) -> Option<u64> {
        let sick = self.phases.iter().find(|phase| phase.is_sick());
        sick.map(|phase| phase.begin)
    }

    /// The end of the last sick phase that another phase follows.
    pub(super) fn healing(&self) -> Option<u64> {
        let (_, followed) = self.phases.split_last()?;
        let sick = followed.iter().rev().find(|phase| phase.is_sick());
        sick.map(|phase| phase.end)
    }

    fn named(name: &str, rate: Rate) -> Option<Self> {
        let healthy = || Draft::lasting(60);
        let dead = |seconds| Draft {
            error_rate: Share(1.0),
            ..Draft::lasting(seconds)
        };
        let failing = |seconds, error_rate| Draft {
            error_rate: Share(error_rate),
            ..Draft::lasting(seconds)
        };
        let mut rate = rate;
        let drafts = match name {
            "outage-1s" => vec![healthy(), dead(1), healthy()],
            "outage-30s" => vec![healthy(), dead(30), healthy()],
            "outage-after-1h" => vec![Draft::lasting(3600), dead(30), Draft::lasting(600)],
            "constant-20" => vec![failing(3600, 0.2)],
            "constant-40" => vec![failing(3600, 0.4)],
            "brownout" => {
                let slow = Draft {
                    latency: Time(Duration::from_millis(200)),
                    ..failing(60, 0.5)
                };
                vec![healthy(), slow, healthy()]
            }
            "hang" => {
                let hanging = Draft {
                    hang: true,
                    ..Draft::lasting(30)
                };
                vec![healthy(), hanging, healthy()]
            }
            "flapping" => (0..30).flat_map(|_| [dead(2), Draft::lasting(2)]).collect(),
            "cold-heal" => vec![dead(30), healthy()],
            // A third of what is offered can be served.
            "capacity-3x" => vec![Draft {
                capacity: Some(Capacity(1)),
                latency: Time(Duration::from_nanos(rate.nanos_per(3))),
                ..healthy()
            }],
            "sparse" => {
                rate = Rate::SPARSE;
                vec![healthy(), dead(30), healthy()]
            }
            "cancellations" => vec![Draft {
                cancel_rate: Share(0.5),
                ..healthy()
            }],
            _ => return None,
        };
        Some(Self {
            name: name.to_owned(),
            phases: one_after_the_other(&drafts),
            arrivals: Arrivals::Even,
            rate,
        })
    }

    fn parse(text: &str, name: &str, rate: Rate) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let total = file
            .phases
            .iter()
            .try_fold(Duration::ZERO, |sum, phase| sum.checked_add(phase.lasts.0));
        if file.phases.is_empty() {
            return Err("`phases` is empty, a scenario has one at least".to_owned());
        }
        match total {
            Some(total) if total.is_zero() => {
                Err("the phases last 0s in all, which leaves nothing to run".to_owned())
            }
            Some(total) if total <= LONGEST => Ok(Self {
                name: name.to_owned(),
                phases: one_after_the_other(&file.phases),
                arrivals: file.arrivals,
                rate,
            }),
            _ => Err("the phases last more than 366days in all".to_owned()),
        }
    }
}

fn one_after_the_other(drafts: &[Draft]) -> Vec<Phase> {
    let mut begin = 0;
    let phases = drafts.iter().map(|draft| {
        let phase = Phase {
            begin,
            end: begin + draft.lasts.nanos(),
            error_rate: draft.error_rate.0,
            latency: draft.latency.nanos(),
            capacity: draft.capacity.map(|capacity| capacity.0),
            hang: draft.hang,
            timeout: draft.timeout.nanos(),
            cancel_rate: draft.cancel_rate.0,
        };
        begin = phase.end;
        phase
    });
    phases.collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    phases: Vec<Draft>,
    #[serde(default)]
    arrivals: Arrivals,
}

/// A phase as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Draft {
    #[serde(rename = "for")]
    lasts: Time,
    #[serde(default)]
    error_rate: Share,
    #[serde(default = "Draft::latency")]
    latency: Time,
    #[serde(default)]
    capacity: Option<Capacity>,
    #[serde(default)]
    hang: bool,
    #[serde(default = "Draft::timeout")]
    timeout: Time,
    #[serde(default)]
    cancel_rate: Share,
}

impl Draft {
    fn lasting(seconds: u64) -> Self {
        Self {
            lasts: Time(Duration::from_secs(seconds)),
            error_rate: Share(0.0),
            latency: Self::latency(),
            capacity: None,
            hang: false,
            timeout: Self::timeout(),
            cancel_rate: Share(0.0),
        }
    }

    fn latency() -> Time {
        Time(Duration::from_millis(5))
    }

    fn timeout() -> Time {
        Time(Duration::from_secs(1))
    }
}

/// A duration with its unit, as in "5ms". A bare number is refused: nobody could tell its unit.
#[derive(Debug, Clone, Copy)]
struct Time(Duration);

impl Time {
    fn nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration with its unit, 0s to 366days, as in \"5ms\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                match humantime::parse_duration(text) {
                    Ok(duration) if duration <= LONGEST => Ok(Time(duration)),
                    _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
                }
            }
        }
        json.deserialize_str(Text)
    }
}

/// A part of all calls.
#[derive(Debug, Clone, Copy, Default)]
struct Share(f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(json)?;
        if (0.0..=1.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(D::Error::invalid_value(
                Unexpected::Float(share),
                &"a share, 0.0 to 1.0",
            ))
        }
    }
}

/// Calls worked on at once.
#[derive(Debug, Clone, Copy)]
struct Capacity(u64);

impl<'de> Deserialize<'de> for Capacity {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        match u64::deserialize(json)? {
            0 => Err(D::Error::invalid_value(
                Unexpected::Unsigned(0),
                &"a number of calls, 1 at least",
            )),
            calls => Ok(Self(calls)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn parse(text: &str) -> Result<Scenario, String> {
        Scenario::parse(text, "a file", Rate::of(1000))
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let scenario = parse(r#"{"phases":[{"for":"1h"},{"for":"30s","error_rate":1}]}"#).unwrap();
        assert_eq!(scenario.arrivals, Arrivals::Even);
        assert_eq!(
            scenario.phases[1],
            Phase {
                begin: 3600 * SECOND,
                end: 3630 * SECOND,
                error_rate: 1.0,
                latency: 5_000_000,
                capacity: None,
                hang: false,
                timeout: SECOND,
                cancel_rate: 0.0,
            }
        );
        let scenario = parse(
            r#"{"arrivals":"bursty","phases":[{"for":"1s","latency":"1h","capacity":3,"hang":true,
               "timeout":"2ms","cancel_rate":0.25}]}"#,
        );
        let scenario = scenario.unwrap();
        assert_eq!(scenario.arrivals, Arrivals::Bursty);
        let phase = &scenario.phases[0];
        assert_eq!((phase.latency, phase.timeout), (3600 * SECOND, 2_000_000));
        assert_eq!((phase.capacity, phase.hang), (Some(3), true));
        assert_eq!(phase.cancel_rate, 0.25);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, message) in [
            ("{}", "missing field `phases` at line 1 column 2"),
            ("{\"phases\":[]}", "`phases` is empty"),
            (
                "{\"phases\":[{}]}",
                "missing field `for` at line 1 column 13",
            ),
            (
                "{\"phases\":[{\"for\":10}]}",
                "invalid type: integer `10`, expected a duration",
            ),
            (
                "{\"phases\":[{\"for\":\"10\"}]}",
                "invalid value: string \"10\", expected a duration",
            ),
            (
                "{\"phases\":[{\"for\":\"1s\",\n\"error_rate\":1.5}]}",
                "invalid value: floating point `1.5`, expected a share, 0.0 to 1.0 at line 2 column 17",
            ),
            (
                "{\"phases\":[{\"for\":\"1s\",\"capacity\":0}]}",
                "invalid value: integer `0`, expected a number of calls, 1 at least",
            ),
            (
                "{\"phases\":[{\"for\":\"1s\",\"err\":0}]}",
                "unknown field `err`, expected one of `for`, `error_rate`, `latency`, `capacity`, `hang`, `timeout`, `cancel_rate`",
            ),
            (
                "{\"phases\":[{\"for\":\"1s\"}],\"arrivals\":\"evenly\"}",
                "unknown variant `evenly`, expected one of `even`, `poisson`, `bursty`",
            ),
            (
                "{\"phases\":[{\"for\":\"0s\"}]}",
                "the phases last 0s in all",
            ),
            (
                "{\"phases\":[{\"for\":\"366days\"},{\"for\":\"1s\"}]}",
                "the phases last more than 366days",
            ),
            (
                "{\"phases\":",
                "EOF while parsing a value at line 1 column 10",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    #[test]
    fn every_name_is_a_scenario() {
        for name in NAMES {
            let scenario = Scenario::load(name, Rate::of(1000)).unwrap();
            assert_eq!(scenario.name, name);
        }
        assert!(Scenario::load("outage", Rate::of(1000)).is_err());
    }

    #[test]
    fn sick_phases_and_healing() {
        for (name, first_sick, healing) in [
            ("outage-1s", Some(60), Some(61)),
            ("outage-after-1h", Some(3600), Some(3630)),
            ("constant-40", None, None),
            ("brownout", Some(60), Some(120)),
            ("hang", Some(60), Some(90)),
            ("flapping", Some(0), Some(118)),
            ("cold-heal", Some(0), Some(30)),
            ("capacity-3x", None, None),
            ("sparse", Some(60), Some(90)),
            ("cancellations", None, None),
        ] {
            let scenario = Scenario::load(name, Rate::of(1000)).unwrap();
            let seconds = |at: Option<u64>| at.map(|at| at / SECOND);
            assert_eq!(
                (seconds(scenario.first_sick()), seconds(scenario.healing())),
                (first_sick, healing),
                "{name}"
            );
        }
        let ends_sick = parse(
            r#"{"phases":[{"for":"1s","hang":true},{"for":"2s"},{"for":"3s","error_rate":0.5}]}"#,
        );
        assert_eq!(ends_sick.unwrap().healing(), Some(SECOND));
    }

    #[test]
    fn three_times_the_capacity_at_any_rate() {
        let scenario = Scenario::load("capacity-3x", Rate::of(1500)).unwrap();
        assert_eq!(scenario.phases[0].latency, 2_000_000);
        assert_eq!(scenario.phases[0].capacity, Some(1));
    }
}
