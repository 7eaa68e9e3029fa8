//! A line on the last while, as go-zero's cache logs one each minute.

use std::fmt;
use std::time::Duration;

use crate::shard::Micros;
use crate::stats::Stats;

/// What a cache has served since the last report; its `Display` is the line that go-zero logs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The name of the cache.
    pub name: String,
    /// What it is about: the time since the last report, or since the cache was built.
    pub span: Duration,
    /// Lookups that found a value.
    pub hits: u64,
    /// Lookups that found none.
    pub misses: u64,
    /// Entries now.
    pub elements: u64,
}

/// Where the last report ended.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    at: Micros,
    hits: u64,
    misses: u64,
}

impl Report {
    /// Lookups in a minute at this rate.
    #[must_use]
    pub fn queries_per_minute(&self) -> f64 {
        let lookups = self.hits.wrapping_add(self.misses) as f64;
        if self.span.is_zero() {
            0.0
        } else {
            lookups * 60.0 / self.span.as_secs_f64()
        }
    }

    /// Hits among lookups in percent; 0 without any.
    #[must_use]
    pub fn hit_percent(&self) -> f64 {
        match self.hits.wrapping_add(self.misses) {
            0 => 0.0,
            lookups => self.hits as f64 * 100.0 / lookups as f64,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cache({}) - qpm: {:.0}, hit_ratio: {:.1}%, elements: {}, hit: {}, miss: {}",
            self.name,
            self.queries_per_minute(),
            self.hit_percent(),
            self.elements,
            self.hits,
            self.misses
        )
    }
}

impl Mark {
    /// The report on what has come since this mark, which moves on.
    pub(crate) fn report(&mut self, name: &str, now: Micros, stats: &Stats) -> Report {
        let report = Report {
            name: name.to_owned(),
            span: Duration::from_micros(now.saturating_sub(self.at)),
            hits: stats.hits.wrapping_sub(self.hits),
            misses: stats.misses.wrapping_sub(self.misses),
            elements: stats.len,
        };
        *self = Mark {
            at: now.max(self.at),
            hits: stats.hits,
            misses: stats.misses,
        };
        report
    }
}
