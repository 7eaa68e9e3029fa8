//! gRPC: codes in headers and trailers as verdicts.

use http::{HeaderMap, Response, StatusCode};

use super::{Classify, ClassifyResponse};
use crate::Verdict;

/// Judges by the gRPC code.
///
/// | code | verdict |
/// |---|---|
/// | `UNKNOWN` 2, `DEADLINE_EXCEEDED` 4, `RESOURCE_EXHAUSTED` 8, `INTERNAL` 13, `UNAVAILABLE` 14, `DATA_LOSS` 15 | failure |
/// | `CANCELLED` 1 | ignored |
/// | the others | success: the server has answered |
/// | none, or not a code | failure, as its client sees `UNKNOWN` |
///
/// A response without a body has its code in the headers; of others it comes in the trailers, after
/// the body, so it is known only [`until_body_ends`](super::GuardLayer::until_body_ends). Without that
/// such a response is judged by its status: a success when it is 200.
///
/// ```
/// use http::{HeaderMap, HeaderValue, StatusCode};
/// use wheelhouse_resilience::Verdict;
/// use wheelhouse_resilience::tower::{ClassifyResponse, GrpcStatus};
///
/// let mut headers = HeaderMap::new();
/// assert_eq!(GrpcStatus.head(StatusCode::OK, &headers), None);
/// headers.insert("grpc-status", HeaderValue::from_static("14"));
/// assert_eq!(GrpcStatus.end(Some(&headers)), Verdict::Failure);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GrpcStatus;

impl GrpcStatus {
    /// What this code says.
    #[must_use]
    pub fn verdict(code: u16) -> Verdict {
        match code {
            1 => Verdict::Ignored,
            2 | 4 | 8 | 13 | 14 | 15 | 17.. => Verdict::Failure,
            _ => Verdict::Success,
        }
    }

    /// What the code in these headers or trailers says, if there is one.
    fn verdict_in(headers: &HeaderMap) -> Option<Verdict> {
        let code = headers.get("grpc-status")?.to_str().ok();
        let code = code.and_then(|code| code.trim().parse().ok());
        Some(code.map_or(Verdict::Failure, GrpcStatus::verdict))
    }
}

impl ClassifyResponse for GrpcStatus {
    fn head(&self, status: StatusCode, headers: &HeaderMap) -> Option<Verdict> {
        match GrpcStatus::verdict_in(headers) {
            None if status != StatusCode::OK => Some(Verdict::Failure),
            verdict => verdict,
        }
    }

    fn end(&self, trailers: Option<&HeaderMap>) -> Verdict {
        trailers
            .and_then(GrpcStatus::verdict_in)
            .unwrap_or(Verdict::Failure)
    }

    fn needs_trailers(&self) -> bool {
        true
    }
}

impl<Body, Error> Classify<Response<Body>, Error> for GrpcStatus {
    fn classify(&self, result: Result<&Response<Body>, &Error>) -> Verdict {
        match result {
            Ok(response) => self
                .head(response.status(), response.headers())
                .unwrap_or(Verdict::Success),
            Err(_) => Verdict::Failure,
        }
    }
}
