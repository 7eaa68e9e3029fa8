//! What a command writes down of its calls, and that each is written down once: [`Ending`].

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::nanos;
use crate::contain::Contained;

use super::Shared;
use super::event::{CommandEvent, Event, Tally};
use super::latency::Latency;
use super::meters::Meters;

/// Code of the user's that is told of events.
pub(super) type Hook = dyn Fn(&CommandEvent<'_>) + Send + Sync;

pub(super) struct Record {
    /// From when on its nanoseconds count.
    pub(super) start: Instant,
    pub(super) tally: Tally,
    pub(super) latency: Latency,
    pub(super) meters: Meters,
    pub(super) hook: Option<Box<Hook>>,
    pub(super) hooks: Contained,
    /// The metrics recorder and the tracing subscriber.
    pub(super) observers: Contained,
}

impl Record {
    pub(super) fn nanos_at(&self, now: Instant) -> u64 {
        nanos(now.saturating_duration_since(self.start))
    }
}

/// Something that will end: a call, or its fallback. Dropped before it was said how, it has panicked
/// or was given up, which are events too.
pub(super) struct Ending<'a> {
    shared: &'a Shared,
    began: Instant,
    panicked: Event,
    /// `None` where giving up is not counted.
    given_up: Option<Event>,
    over: bool,
}

impl<'a> Ending<'a> {
    pub(super) fn of_call(shared: &'a Shared, began: Instant) -> Self {
        Self::new(shared, began, Event::Failure, Some(Event::Cancelled))
    }

    /// Of the fallback of a call that began at `began`.
    pub(super) fn of_fallback(shared: &'a Shared, began: Instant) -> Self {
        Self::new(shared, began, Event::FallbackFailure, None)
    }

    fn new(shared: &'a Shared, began: Instant, panicked: Event, given_up: Option<Event>) -> Self {
        Ending {
            shared,
            began,
            panicked,
            given_up,
            over: false,
        }
    }

    /// Writes down `event`, and returns when it happened, and how long after the beginning. How long it
    /// took is left to the caller to note.
    pub(super) fn end(mut self, event: Event) -> (u64, Duration) {
        self.over = true;
        self.write(event)
    }

    fn write(&self, event: Event) -> (u64, Duration) {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.began);
        let (name, record) = (&*self.shared.name, &self.shared.record);
        let nanos = record.nanos_at(now);
        record.tally.add(event, nanos);
        // Contained, as the hook is, since this may run while another panic unwinds.
        record.observers.run(|| {
            record.meters.happened(event, elapsed);
            #[cfg(feature = "tracing")]
            if event != Event::Success {
                tracing::debug!(command = name, event = event.name(), ?elapsed, "command");
            }
        });
        let Some(hook) = &record.hook else {
            return (nanos, elapsed);
        };
        let told = CommandEvent {
            command: name,
            event,
            elapsed,
        };
        if record.hooks.run(|| hook(&told)).is_none() {
            record.observers.run(|| {
                #[cfg(feature = "tracing")]
                tracing::error!(command = name, event = event.name(), "hook panicked");
            });
        }
        (nanos, elapsed)
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if std::thread::panicking() {
            let (nanos, took) = self.write(self.panicked);
            if self.panicked.has_run() {
                let record = &self.shared.record;
                record.latency.note(nanos, Some(took), None);
            }
        } else if let Some(event) = self.given_up {
            self.write(event);
        }
    }
}
