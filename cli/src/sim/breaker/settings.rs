//! `--set key=value`: what a policy is built with besides its defaults.
//!
//! A policy asks for each of its settings by key, default and range. What was asked for is what is
//! known, so no list of keys can go stale; a key that nobody has asked for is an error.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use crate::args;

/// The values given, and the keys asked for.
#[derive(Debug)]
pub(super) struct Settings {
    given: Vec<Given>,
    /// The settings of each policy that has asked, with their defaults.
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    policy: String,
    settings: Vec<String>,
}

#[derive(Debug)]
struct Given {
    key: String,
    value: String,
    asked: bool,
}

impl Settings {
    /// The pairs `key=value`.
    ///
    /// # Errors
    ///
    /// Names a pair that is none, or a key that comes twice.
    pub(super) fn new(pairs: &[String]) -> Result<Self, String> {
        let mut given: Vec<Given> = Vec::new();
        for pair in pairs {
            let (key, value) = pair
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| format!("--set: {pair:?} is not of the form key=value"))?;
            if given.iter().any(|before| before.key == key) {
                return Err(format!("--set: {key} is given twice"));
            }
            given.push(Given {
                key: key.to_owned(),
                value: value.to_owned(),
                asked: false,
            });
        }
        let known = Vec::new();
        Ok(Self { given, known })
    }

    /// Another policy begins to ask.
    pub(super) fn begin(&mut self, policy: &str) {
        self.known.push(Known {
            policy: policy.to_owned(),
            settings: Vec::new(),
        });
    }

    /// A duration.
    pub(super) fn span(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Result<Duration, String> {
        let shown = humantime::format_duration(default);
        let read = |text: &str| args::duration(text, *range.start(), *range.end());
        self.ask(key, default, shown, read)
    }

    /// A duration in nanoseconds.
    pub(super) fn nanos(
        &mut self,
        key: &'static str,
        default: u64,
        range: RangeInclusive<Duration>,
    ) -> Result<u64, String> {
        let span = self.span(key, Duration::from_nanos(default), range)?;
        Ok(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }

    /// A whole number.
    pub(super) fn whole(
        &mut self,
        key: &'static str,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Result<u64, String> {
        let (low, high) = (*range.start(), *range.end());
        self.ask(key, default, default, |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("{text:?} is not a whole number in {low}..={high}"))
        })
    }

    /// A number.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        default: f64,
        range: RangeInclusive<f64>,
    ) -> Result<f64, String> {
        let (low, high) = (*range.start(), *range.end());
        self.ask(key, default, default, |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("{text:?} is not a number in {low}..={high}"))
        })
    }

    /// Yes or no.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, String> {
        self.ask(key, default, default, |text| match text {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(format!("{text:?} is neither true nor false")),
        })
    }

    /// Every policy has asked.
    ///
    /// # Errors
    ///
    /// Names a key that none of them knows, and those that they do.
    pub(super) fn finish(&self) -> Result<(), String> {
        let Some(unknown) = self.given.iter().find(|given| !given.asked) else {
            return Ok(());
        };
        let known = self.known.iter().map(|known| {
            let settings = known.settings.join(", ");
            format!("{} has {settings}", known.policy)
        });
        Err(format!(
            "--set: there is no setting {:?}; {}",
            unknown.key,
            known.collect::<Vec<_>>().join("; ")
        ))
    }

    fn ask<T>(
        &mut self,
        key: &'static str,
        default: T,
        shown: impl Display,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        if let Some(known) = self.known.last_mut() {
            known.settings.push(format!("{key}={shown}"));
        }
        match self.given.iter_mut().find(|given| given.key == key) {
            None => Ok(default),
            Some(given) => {
                given.asked = true;
                read(&given.value).map_err(|error| format!("--set: {key}: {error}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[&str]) -> Result<Settings, String> {
        let pairs: Vec<_> = pairs.iter().map(ToString::to_string).collect();
        Settings::new(&pairs)
    }

    #[test]
    fn values_are_read_where_they_are_asked_for() {
        let mut set = settings(&["window=2s", "volume=7", "rate=0.25", "jitter=false"]).unwrap();
        let hour = Duration::ZERO..=Duration::from_secs(3600);
        assert_eq!(set.nanos("window", 1, hour.clone()), Ok(2_000_000_000));
        assert_eq!(set.nanos("wait", 1, hour), Ok(1));
        assert_eq!(set.whole("volume", 1, 0..=9), Ok(7));
        assert_eq!(set.number("rate", 0.5, 0.0..=1.0), Ok(0.25));
        assert_eq!(set.flag("jitter", true), Ok(false));
        assert_eq!(set.finish(), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = settings(&["window"]).unwrap_err();
        assert_eq!(error, "--set: \"window\" is not of the form key=value");
        let error = settings(&["a=1", "a=2"]).unwrap_err();
        assert_eq!(error, "--set: a is given twice");

        let mut set = settings(&["window=10", "volume=10", "rate=NaN"]).unwrap();
        let hour = Duration::ZERO..=Duration::from_secs(3600);
        assert_eq!(
            set.nanos("window", 1, hour).unwrap_err(),
            "--set: window: \"10\" is not a duration in 0s..=1h (write 10s, 500us or 1h30m)"
        );
        assert_eq!(
            set.whole("volume", 1, 0..=9).unwrap_err(),
            "--set: volume: \"10\" is not a whole number in 0..=9"
        );
        assert_eq!(
            set.number("rate", 0.5, 0.0..=1.0).unwrap_err(),
            "--set: rate: \"NaN\" is not a number in 0..=1"
        );
    }

    #[test]
    fn a_key_that_nobody_asks_for_is_refused_with_those_that_are() {
        let mut set = settings(&["windw=2s"]).unwrap();
        set.begin("model-x");
        set.whole("volume", 20, 0..=100).unwrap();
        let hour = Duration::ZERO..=Duration::from_secs(3600);
        set.nanos("window", 10_000_000_000, hour).unwrap();
        set.begin("model-y");
        set.flag("jitter", true).unwrap();
        assert_eq!(
            set.finish().unwrap_err(),
            "--set: there is no setting \"windw\"; model-x has volume=20, window=10s; \
             model-y has jitter=true"
        );
    }
}
