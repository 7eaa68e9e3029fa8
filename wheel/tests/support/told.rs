//! What a scheduler has told a listener, in words.

use wheelhouse_wheel::scheduler::{EventError, EventKind, EventStream};

/// Each event so far, as "name: what".
pub(crate) fn told(events: &mut EventStream) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let event = match events.try_next() {
            Ok(Some(event)) => event,
            Ok(None) | Err(EventError::Closed) => return lines,
            Err(error) => panic!("a listener that keeps up: {error}"),
        };
        let what = match event.kind {
            EventKind::Scheduled => "scheduled".to_owned(),
            EventKind::Started { attempt } => format!("started {attempt}"),
            EventKind::Finished { took } => format!("finished in {took:?}"),
            EventKind::Failed { error } => format!("failed, {error}"),
            EventKind::Retried { after } => format!("retried after {after:?}"),
            EventKind::Missed { late } => format!("missed by {late:?}"),
            EventKind::Cancelled => "cancelled".to_owned(),
            other => panic!("an event that is new: {other:?}"),
        };
        lines.push(format!("{}: {what}", event.task));
    }
}
