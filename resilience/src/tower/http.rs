//! HTTP: statuses as verdicts, hosts and paths as keys.

use std::borrow::Cow;

use http::header::HOST;
use http::{HeaderMap, Request, Response, StatusCode};

use super::{Classify, ClassifyResponse, Key};
use crate::Verdict;

/// Judges by the status: 500 and above is a failure, all below a success.
///
/// Errors of the client's own (4xx) say that the server works. 429 is among them: a server that asks
/// to wait is served better by a retry after the time it gives.
///
/// ```
/// use http::Response;
/// use wheelhouse_resilience::Verdict;
/// use wheelhouse_resilience::tower::{Classify, HttpStatus};
///
/// let response = |status: u16| Response::builder().status(status).body(()).unwrap();
/// let judge = |status| Classify::<_, ()>::classify(&HttpStatus, Ok(&response(status)));
/// assert_eq!(judge(404), Verdict::Success);
/// assert_eq!(judge(503), Verdict::Failure);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HttpStatus;

impl<Body, Error> Classify<Response<Body>, Error> for HttpStatus {
    fn classify(&self, result: Result<&Response<Body>, &Error>) -> Verdict {
        match result {
            Ok(response) if !response.status().is_server_error() => Verdict::Success,
            _ => Verdict::Failure,
        }
    }
}

/// A failure by its status is one at once; a success only when the body has come whole.
impl ClassifyResponse for HttpStatus {
    fn head(&self, status: StatusCode, _headers: &HeaderMap) -> Option<Verdict> {
        status.is_server_error().then_some(Verdict::Failure)
    }

    fn end(&self, _trailers: Option<&HeaderMap>) -> Verdict {
        Verdict::Success
    }
}

/// The host and port of a request: of its URI, or else of its `Host` header; empty without either.
///
/// ```
/// use http::Request;
/// use wheelhouse_resilience::tower::{ByHost, Key};
///
/// let request = Request::get("http://example.org:8080/index").body(()).unwrap();
/// assert_eq!(ByHost.key(&request), "example.org:8080");
/// let request = Request::get("/index").header("host", "example.org").body(()).unwrap();
/// assert_eq!(ByHost.key(&request), "example.org");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByHost;

impl<Body> Key<Request<Body>> for ByHost {
    fn key<'a>(&self, request: &'a Request<Body>) -> Cow<'a, str> {
        let of_uri = request.uri().authority().map(|authority| {
            let text = authority.as_str();
            // Without a user and password.
            text.rsplit_once('@').map_or(text, |(_, host)| host)
        });
        let of_header = || request.headers().get(HOST)?.to_str().ok();
        let host = of_uri.or_else(of_header).unwrap_or_default();
        match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(host.to_ascii_lowercase()),
            false => Cow::Borrowed(host),
        }
    }
}

/// The path of a request: its route where paths have no parameters, and the method of a gRPC call.
///
/// ```
/// use http::Request;
/// use wheelhouse_resilience::tower::{ByPath, Key};
///
/// let request = Request::post("http://example.org/greeter.Greeter/Hello").body(()).unwrap();
/// assert_eq!(ByPath.key(&request), "/greeter.Greeter/Hello");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByPath;

impl<Body> Key<Request<Body>> for ByPath {
    fn key<'a>(&self, request: &'a Request<Body>) -> Cow<'a, str> {
        Cow::Borrowed(request.uri().path())
    }
}
