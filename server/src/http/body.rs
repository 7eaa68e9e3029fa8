//! Bodies of requests: of the type that is expected, in time, no longer than allowed.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use super::MAX_BODY;
use super::problem::Problem;

/// How much of a body that is too long is read before it is answered: a client that is still writing may
/// not see an answer.
const PATIENCE: usize = 8 << 20;

/// The JSON of a request.
pub(super) async fn json(request: Request, timeout: Duration) -> Result<Bytes, Problem> {
    let (parts, body) = request.into_parts();
    let is_json = |it: &str| it == "application/json" || it.ends_with("+json");
    if !kind(&parts.headers).is_some_and(|it| is_json(&it)) {
        return Err(Problem::wrong_type("application/json"));
    }
    let length = parts.headers.get(CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    let too_long = length.is_some_and(|it| it > MAX_BODY as u64);
    if too_long && parts.headers.contains_key(EXPECT) {
        // It has not begun to send.
        return Err(Problem::too_large("a body"));
    }
    read(body, Instant::now() + timeout).await
}

/// The media type that a request's body is said to be, in lower case and without parameters.
pub(super) fn kind(headers: &HeaderMap) -> Option<String> {
    let mut said = headers.get_all(CONTENT_TYPE).iter();
    let (Some(header), None) = (said.next(), said.next()) else {
        return None;
    };
    let text = header.to_str().ok()?;
    let media = text.split(';').next().unwrap_or_default();
    Some(media.trim().to_ascii_lowercase())
}

async fn read(mut body: Body, until: Instant) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut all = Vec::new();
    let mut length = 0_usize;
    loop {
        let frame = timeout_at(until, body.frame()).await;
        let data = match frame.map_err(|_| Problem::slow_body())? {
            None => break,
            Some(Err(_)) => return Err(Problem::broken_body()),
            // Trailers say nothing here.
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        length += data.len();
        if length > MAX_BODY {
            all = Vec::new();
            if length > PATIENCE {
                break;
            }
        } else if length == data.len() {
            first = data;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
    }
    if length > MAX_BODY {
        return Err(Problem::too_large("a body"));
    }
    Ok(if all.is_empty() { first } else { all.into() })
}
