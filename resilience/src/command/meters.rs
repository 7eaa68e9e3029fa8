//! A command's figures for the `metrics` facade; without that feature nothing.

use std::time::Duration;

use super::event::Event;

/// Where the recorder that was installed when the command was built keeps its figures.
#[derive(Debug)]
pub(super) struct Meters {
    #[cfg(feature = "metrics")]
    recorded: Recorded,
}

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct Recorded {
    /// By the number of the event.
    events: [metrics::Counter; Event::ALL.len()],
    seconds: metrics::Histogram,
}

#[cfg(feature = "metrics")]
impl Meters {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_owned();
        let events = Event::ALL.map(|event| {
            metrics::counter!(
                "wheelhouse_command_events_total",
                "command" => name.clone(), "event" => event.name()
            )
        });
        let seconds = metrics::histogram!("wheelhouse_command_seconds", "command" => name);
        Meters {
            recorded: Recorded { events, seconds },
        }
    }

    pub(super) fn happened(&self, event: Event, elapsed: Duration) {
        self.recorded.events[event as usize].increment(1);
        if event.has_run() {
            self.recorded.seconds.record(elapsed);
        }
    }
}

#[cfg(not(feature = "metrics"))]
impl Meters {
    pub(super) fn new(_name: &str) -> Self {
        Meters {}
    }

    pub(super) fn happened(&self, _event: Event, _elapsed: Duration) {}
}
