//! What happens, as it happens: server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::problem::Problem;
use super::{Api, query, view};
use crate::engine::{Event, EventKind, Watch};

/// How often something is sent, so that a connection that is gone is noticed at both ends.
const ALIVE: Duration = Duration::from_secs(15);

struct Watcher {
    watch: Watch,
    prefix: String,
    stopping: CancellationToken,
    begun: bool,
    _place: OwnedSemaphorePermit,
}

#[derive(Serialize)]
struct Shown<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

pub(super) async fn events(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let [prefix] = query::parameters(request.uri(), ["prefix"])?;
    let place = Arc::clone(&api.watchers).try_acquire_owned();
    let watcher = Watcher {
        watch: api.engine.watch(),
        prefix: prefix.unwrap_or_default(),
        stopping: api.engine.stopping().clone(),
        begun: false,
        _place: place.map_err(|_| Problem::too_many_watchers())?,
    };
    let body = Body::from_stream(stream::unfold(watcher, async |mut watcher| {
        let text = watcher.next().await?;
        Some((Ok::<_, std::convert::Infallible>(text), watcher))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

impl Watcher {
    /// The next text, or the end: when the engine begins to stop, or is gone. The server ends it too,
    /// when it is told to stop.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if !self.begun {
            self.begun = true;
            // A client knows by it that nothing is missed from here on.
            return Some(b": watching\n\n".to_vec());
        }
        loop {
            let next = tokio::select! {
                biased;
                next = timeout(ALIVE, self.watch.next()) => next,
                () = self.stopping.cancelled() => return None,
            };
            return Some(match next {
                Err(_) => b": alive\n\n".to_vec(),
                Ok(Ok(None)) => return None,
                Ok(Ok(Some(event))) if !event.key.starts_with(&self.prefix) => continue,
                Ok(Ok(Some(event))) => text(&event),
                Ok(Err(lagged)) => {
                    format!("event: lagged\ndata: {{\"missed\":{}}}\n\n", lagged.0).into_bytes()
                }
            });
        }
    }
}

fn text(event: &Event) -> Vec<u8> {
    let mut shown = Shown {
        key: &event.key,
        attempt: None,
        next: None,
        reason: None,
    };
    let name = match &event.kind {
        EventKind::Created => "created",
        EventKind::Replaced => "replaced",
        EventKind::Moved(next) => {
            shown.next = Some(next.to_string());
            "moved"
        }
        EventKind::Cancelled => "cancelled",
        EventKind::Firing(attempt) => {
            shown.attempt = Some(*attempt);
            "firing"
        }
        EventKind::Delivered(attempt) => {
            shown.attempt = Some(*attempt);
            "delivered"
        }
        EventKind::Retrying(attempt, next, reason) => {
            shown.attempt = Some(*attempt);
            shown.next = Some(next.to_string());
            shown.reason = Some(reason);
            "retrying"
        }
        EventKind::Dead(reason) => {
            shown.reason = Some(reason);
            "dead"
        }
    };
    let mut out = format!("event: {name}\ndata: ").into_bytes();
    // JSON has no line ends but in its texts, where they are written out.
    view::write(&shown, &mut out);
    out.extend_from_slice(b"\n\n");
    out
}
