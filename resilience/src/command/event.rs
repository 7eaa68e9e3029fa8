//! What happens to calls of a command: [`Event`], and how often it did.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use wheelhouse_collection::{Bucket, BuildError, Counts, RollingWindow};

/// The window that the dashboard shows.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
pub(super) const WINDOW_BUCKETS: usize = 10;

/// What happened to a call of a command. Each call has one of the first seven; one with a fallback
/// has one of the others besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// It ran and succeeded.
    Success,
    /// It ran and failed, or panicked.
    Failure,
    /// It took longer than the command allows.
    Timeout,
    /// Its caller gave it up.
    Cancelled,
    /// As many were running as may.
    Rejected,
    /// The breaker was open.
    ShortCircuit,
    /// Its caller's deadline passed.
    DeadlineExceeded,
    /// The fallback succeeded.
    FallbackSuccess,
    /// The fallback failed, or panicked.
    FallbackFailure,
    /// As many fallbacks were running as may.
    FallbackRejected,
}

impl Event {
    /// Every event.
    pub const ALL: [Event; 10] = [
        Event::Success,
        Event::Failure,
        Event::Timeout,
        Event::Cancelled,
        Event::Rejected,
        Event::ShortCircuit,
        Event::DeadlineExceeded,
        Event::FallbackSuccess,
        Event::FallbackFailure,
        Event::FallbackRejected,
    ];

    /// Its name, as hystrix-go has it: `"short-circuit"`, say.
    ///
    /// ```
    /// use wheelhouse_resilience::command::Event;
    ///
    /// assert_eq!(Event::FallbackSuccess.name(), "fallback-success");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Event::Success => "success",
            Event::Failure => "failure",
            Event::Timeout => "timeout",
            Event::Cancelled => "cancelled",
            Event::Rejected => "rejected",
            Event::ShortCircuit => "short-circuit",
            Event::DeadlineExceeded => "deadline-exceeded",
            Event::FallbackSuccess => "fallback-success",
            Event::FallbackFailure => "fallback-failure",
            Event::FallbackRejected => "fallback-rejected",
        }
    }

    /// Whether the call ran to an end that says something about what it called.
    pub(super) fn has_run(self) -> bool {
        matches!(self, Event::Success | Event::Failure | Event::Timeout)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An event as a hook is told of it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CommandEvent<'a> {
    /// The command's name.
    pub command: &'a str,
    /// What happened.
    pub event: Event,
    /// Since the call began.
    pub elapsed: Duration,
}

/// How often each event happened.
///
/// ```
/// use wheelhouse_resilience::Command;
/// use wheelhouse_resilience::command::Event;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let command = Command::builder("search").build()?;
/// command.run(async { Ok::<_, std::io::Error>(1) }).await?;
/// let counts = command.stats().rolling;
/// assert_eq!((counts.of(Event::Success), counts.requests(), counts.errors()), (1, 1, 0));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts([u64; Event::ALL.len()]);

impl EventCounts {
    /// How often `event` happened.
    #[must_use]
    pub fn of(&self, event: Event) -> u64 {
        self.0[event as usize]
    }

    /// All calls, whatever became of them.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.0[..=Event::DeadlineExceeded as usize].iter().sum()
    }

    /// Calls that failed or timed out. Rejections and short circuits are not errors, since nothing
    /// was called.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.of(Event::Failure) + self.of(Event::Timeout)
    }

    /// Errors among the calls that ran to an end, in percent: what the breaker goes by. 0 without
    /// such calls.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        let ran = self.of(Event::Success) + self.errors();
        match ran {
            0 => 0.0,
            _ => self.errors() as f64 * 100.0 / ran as f64,
        }
    }
}

/// Counts events, in all and over the last while.
pub(super) struct Tally {
    /// Relaxed: they are only read as figures.
    totals: [AtomicU64; Event::ALL.len()],
    /// By the number of the event, four to a window.
    recent: [RollingWindow<Four>; 3],
}

impl Tally {
    pub(super) fn new(now: Instant) -> Result<Self, BuildError> {
        let length = WINDOW / WINDOW_BUCKETS as u32;
        let window = || RollingWindow::starting_at(now, WINDOW_BUCKETS, length);
        Ok(Tally {
            totals: Default::default(),
            recent: [window()?, window()?, window()?],
        })
    }

    /// `nanos` since the instant it was made for.
    pub(super) fn add(&self, event: Event, nanos: u64) {
        let index = event as usize;
        self.totals[index].fetch_add(1, Ordering::Relaxed);
        self.recent[index / 4].add_at_nanos(nanos, index % 4);
    }

    pub(super) fn totals(&self) -> EventCounts {
        EventCounts(std::array::from_fn(|index| {
            self.totals[index].load(Ordering::Relaxed)
        }))
    }

    pub(super) fn recent(&self, now: Instant) -> EventCounts {
        let windows = self
            .recent
            .each_ref()
            .map(|window| window.snapshot_at(now).0);
        EventCounts(std::array::from_fn(|index| windows[index / 4][index % 4]))
    }
}

/// Four counters, of which a value names the one to raise.
struct Four([u64; 4]);

impl Bucket for Four {
    type Value = usize;
    type Counters = [u32; 4];

    fn increments(index: usize) -> Counts<Self> {
        let mut counts = [0; 4];
        counts[index] = 1;
        counts
    }

    fn from_counts(counts: Counts<Self>) -> Self {
        Four(counts)
    }
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_counted_as_itself_and_for_ten_seconds() {
        let start = Instant::now();
        let tally = Tally::new(start).unwrap();
        for (index, event) in Event::ALL.into_iter().enumerate() {
            assert_eq!(event as usize, index);
            (0..=index).for_each(|_| tally.add(event, 0));
        }
        for counts in [tally.totals(), tally.recent(start + Duration::from_secs(9))] {
            for (index, event) in Event::ALL.into_iter().enumerate() {
                assert_eq!(counts.of(event), index as u64 + 1, "{event}");
            }
            assert_eq!((counts.requests(), counts.errors()), (28, 5));
            assert_eq!(counts.error_percent(), 500.0 / 6.0);
        }
        assert_eq!(tally.recent(start + WINDOW), EventCounts::default());
        assert_eq!(EventCounts::default().error_percent(), 0.0);
    }
}
