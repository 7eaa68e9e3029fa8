//! One call of a target, and what its answer means.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;

use super::Shared;
use super::host::Leave;
use super::resolve::NotPublic;
use super::special::is_public;
use crate::engine::{Admission, Delivery, SendError, Sending};

/// Bytes of an answer's body that are read.
const READ: usize = 64 * 1_024;
/// How long it is read.
const READING: Duration = Duration::from_secs(1);
/// What a key may have in a header as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

pub(super) struct Call {
    shared: Arc<Shared>,
    leave: Leave,
}

/// A payload that a request shares with its task.
struct Payload(Arc<RawValue>);

/// What an answer says of the origin.
enum Health {
    Good,
    Bad,
    Neither,
}

impl Call {
    pub(super) fn new(shared: Arc<Shared>, leave: Leave) -> Self {
        Call { shared, leave }
    }
}

impl Admission for Call {
    fn send(self: Box<Self>, delivery: Delivery) -> Sending {
        Box::pin(async move {
            let started = self.leave.begin();
            let (health, outcome) = ask(&self.shared, delivery).await;
            started.settle(|permit| match health {
                Health::Good => permit.success(),
                Health::Bad => permit.failure(),
                Health::Neither => permit.ignored(),
            });
            outcome
        })
    }
}

async fn ask(shared: &Shared, delivery: Delivery) -> (Health, Result<(), SendError>) {
    let (uri, method, headers) = delivery.target.parts();
    let literal = uri.host().and_then(address);
    if shared.refuse_private && literal.is_some_and(|it| !is_public(it)) {
        return (
            Health::Neither,
            Err(SendError::Refused(NotPublic.to_string())),
        );
    }
    let body = match *method {
        Method::GET | Method::DELETE => Bytes::new(),
        _ => Bytes::from_owner(Payload(delivery.payload)),
    };
    let mut request = Request::new(Full::new(body));
    *request.uri_mut() = uri.clone();
    *request.method_mut() = method.clone();
    *request.headers_mut() = headers.clone();
    let sent = request.headers_mut();
    sent.entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!(
            "wheelhouse/",
            env!("CARGO_PKG_VERSION")
        )));
    let key = utf8_percent_encode(&delivery.key, PLAIN).to_string();
    if let Ok(key) = HeaderValue::try_from(key) {
        sent.insert(HeaderName::from_static("wheelhouse-key"), key);
    }
    let attempt = HeaderValue::from(delivery.attempt);
    sent.insert(HeaderName::from_static("wheelhouse-attempt"), attempt);

    match shared.client.request(request).await {
        Ok(response) => {
            let judged = judge(response.status(), response.headers());
            read(response.into_body()).await;
            judged
        }
        Err(error) if is_not_public(&error) => (
            Health::Neither,
            Err(SendError::Refused(NotPublic.to_string())),
        ),
        Err(error) => (Health::Bad, Err(SendError::failed(chain(&error)))),
    }
}

fn judge(status: StatusCode, headers: &HeaderMap) -> (Health, Result<(), SendError>) {
    let code = status.as_u16();
    let reason = format!("the target answered {status}");
    let failed = |reason| {
        let header = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok());
        Err(SendError::Failed {
            reason,
            retry_after: header.and_then(|it| wanted(it, SystemTime::now())),
        })
    };
    match code {
        200..=299 => (Health::Good, Ok(())),
        408 | 425 | 429 => (Health::Neither, failed(reason)),
        500.. => (Health::Bad, failed(reason)),
        300..=399 => {
            let reason = format!("{reason}, and redirects are not followed");
            (Health::Good, Err(SendError::Refused(reason)))
        }
        _ => (Health::Good, Err(SendError::Refused(reason))),
    }
}

/// `Retry-After`: seconds, or a date.
fn wanted(header: &str, now: SystemTime) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(header).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Reads an answer to its end, if that is near, so that its connection can be used again.
async fn read(body: Incoming) {
    let reading = Limited::new(body, READ).collect();
    let _ = tokio::time::timeout(READING, reading).await;
}

fn address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

fn is_not_public(error: &(dyn Error + 'static)) -> bool {
    sources(error).any(|it| {
        let within = it
            .downcast_ref::<std::io::Error>()
            .and_then(|it| it.get_ref());
        it.is::<NotPublic>() || within.is_some_and(|it| it.is::<NotPublic>())
    })
}

/// An error with what has caused it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for error in sources(error) {
        let text = error.to_string();
        if !texts.iter().any(|it| it.contains(&text)) {
            texts.push(text);
        }
    }
    format!("the target was not reached: {}", texts.join(": "))
}

fn sources<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| {
        error.source()
    })
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.get().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_to_be_left_alone_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let seconds = |text| wanted(text, now).map(|it| it.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:48:37 GMT"), Some(0));
        for other in ["", "-1", "1.5", "soon", "99999999999999999999"] {
            assert_eq!(seconds(other), None, "{other}");
        }
    }

    #[test]
    fn addresses_are_seen_as_they_are_written_in_urls() {
        assert!(address("[::1]").is_some_and(|it| it.is_loopback()));
        assert!(address("127.0.0.1").is_some_and(|it| it.is_loopback()));
        assert_eq!(address("localhost"), None);
    }
}
