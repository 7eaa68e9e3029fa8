//! The stream of events that the Hystrix dashboard reads: [`Dashboard`].

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::time::{Interval, MissedTickBehavior};

use super::{Command, Shared};

/// How often each command is shown.
const INTERVAL: Duration = Duration::from_secs(1);

/// Commands that are shown together, to any number of readers. Clones are the same dashboard.
///
/// It does not keep commands alive: one that is gone is shown no longer. It has no task of its own: each
/// stream looks at the commands once a second while it is read.
///
/// What a stream yields are complete server-sent events, so any HTTP server can send them as the body
/// of a response with `content-type: text/event-stream`. With axum:
///
/// ```text
/// async fn hystrix_stream(State(dashboard): State<Dashboard>) -> impl IntoResponse {
///     let events = dashboard.stream().map(Ok::<_, Infallible>);
///     ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events))
/// }
/// ```
///
/// ```
/// use wheelhouse_resilience::Command;
/// use wheelhouse_resilience::command::Dashboard;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let command = Command::builder("search").build()?;
/// let dashboard = Dashboard::new();
/// dashboard.add(&command);
/// let event = dashboard.stream().next().await;
/// assert!(event.starts_with(r#"data: {"type":"HystrixCommand","name":"search","#));
/// assert!(event.ends_with("}\n\n"));
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Dashboard {
    commands: Arc<Mutex<Vec<Weak<Shared>>>>,
}

impl Dashboard {
    /// A dashboard without commands.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Shows `command` from the next second on; once, however often it is added.
    pub fn add(&self, command: &Command) {
        let added = Arc::downgrade(&command.shared);
        let mut commands = self.commands.lock();
        commands.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&added));
        commands.push(added);
    }

    /// The commands, now and every second from now on, for one reader.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its timer.
    #[must_use = "a stream does nothing unless read"]
    pub fn stream(&self) -> DashboardStream {
        let mut interval = tokio::time::interval(INTERVAL);
        // A reader that was slow gets what is so now, not what it has missed.
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        DashboardStream {
            dashboard: self.clone(),
            interval,
            events: VecDeque::new(),
        }
    }

    /// One event for each command, in the order in which they were added; without commands one that
    /// says so, for a reader that is gone is only noticed by sending.
    fn events(&self) -> VecDeque<String> {
        let commands: Vec<_> = {
            let commands = self.commands.lock();
            commands.iter().filter_map(Weak::upgrade).collect()
        };
        if commands.is_empty() {
            return VecDeque::from(["ping: \n\n".to_owned()]);
        }
        let events = commands
            .iter()
            .map(|command| format!("data: {}\n\n", command.snapshot_json()));
        events.collect()
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard")
            .field("commands", &self.commands.lock().len())
            .finish_non_exhaustive()
    }
}

/// Server-sent events of a [`Dashboard`], without an end: one for each command and second.
#[must_use = "a stream does nothing unless read"]
pub struct DashboardStream {
    dashboard: Dashboard,
    interval: Interval,
    /// Those of this second that were not read yet.
    events: VecDeque<String>,
}

impl DashboardStream {
    /// The next event. It can be dropped without losing one.
    pub async fn next(&mut self) -> String {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<String> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Poll::Ready(event);
            }
            ready!(self.interval.poll_tick(context));
            self.events = self.dashboard.events();
        }
    }
}

impl Stream for DashboardStream {
    type Item = String;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<String>> {
        self.poll_event(context).map(Some)
    }
}

impl fmt::Debug for DashboardStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardStream")
            .field("dashboard", &self.dashboard)
            .finish_non_exhaustive()
    }
}
