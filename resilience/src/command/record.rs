//! What a command writes down of its calls, and that each is written down once: [`Ending`].

use tokio::time::Instant;

use crate::contain::Contained;

use super::Shared;
use super::event::{CommandEvent, Event, Tally};
use super::latency::Latency;
use super::meters::Meters;

/// Code of the user's that is told of events.
pub(super) type Hook = dyn Fn(&CommandEvent<'_>) + Send + Sync;

pub(super) struct Record {
    pub(super) tally: Tally,
    pub(super) latency: Latency,
    pub(super) meters: Meters,
    pub(super) hook: Option<Box<Hook>>,
    pub(super) hooks: Contained,
    /// The metrics recorder and the tracing subscriber.
    pub(super) observers: Contained,
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

    /// Writes down `event`, and returns when it happened. How long it took is left to the caller.
    pub(super) fn end(mut self, event: Event) -> Instant {
        self.over = true;
        self.write(event)
    }

    fn write(&self, event: Event) -> Instant {
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.began);
        let (name, record) = (&*self.shared.name, &self.shared.record);
        record.tally.add(event, now.into_std());
        // Contained, as the hook is, since this may run while another panic unwinds.
        record.observers.run(|| {
            record.meters.happened(event, elapsed);
            #[cfg(feature = "tracing")]
            if event != Event::Success {
                tracing::debug!(command = name, event = event.name(), ?elapsed, "command");
            }
        });
        let Some(hook) = &record.hook else {
            return now;
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
        now
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if std::thread::panicking() {
            let now = self.write(self.panicked);
            if self.panicked.has_run() {
                let took = now.saturating_duration_since(self.began);
                let record = &self.shared.record;
                record.latency.note(now.into_std(), Some(took), None);
            }
        } else if let Some(event) = self.given_up {
            self.write(event);
        }
    }
}
