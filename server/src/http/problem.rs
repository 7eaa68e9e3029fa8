//! Errors, as problem JSON by RFC 9457. The one list of all of them.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::{MAX_BODY, MAX_HEAD};
use crate::engine::Refused;
use crate::task::TaskError;

/// What the type of each begins with.
const PREFIX: &str = "urn:wheelhouse:problem:";

/// What is wrong with a request.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    field: Option<&'static str>,
}

#[derive(Serialize)]
struct Shown<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

impl Problem {
    fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Problem {
            status,
            kind,
            title,
            detail: detail.into(),
            field: None,
        }
    }

    pub(super) fn bad_path(detail: &str) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Problem::new(status, "bad-path", "The path is malformed", detail)
    }

    pub(super) fn bad_query(detail: String) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Problem::new(status, "bad-query", "The query is malformed", detail)
    }

    pub(super) fn broken_body() -> Self {
        let detail = "the body ended before it was whole, or is not framed as HTTP has it";
        let status = StatusCode::BAD_REQUEST;
        Problem::new(status, "broken-body", "The body is broken", detail)
    }

    pub(super) fn bad_idempotency_key() -> Self {
        let detail = "it has to be said once, with 1 to 256 visible ASCII characters";
        let title = "The Idempotency-Key is malformed";
        Problem::new(
            StatusCode::BAD_REQUEST,
            "bad-idempotency-key",
            title,
            detail,
        )
    }

    pub(super) fn unauthorized() -> Self {
        let detail = "send the token in the header `authorization: Bearer …`";
        let title = "A token is needed";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", title, detail)
    }

    pub(super) fn no_such_path() -> Self {
        let detail = "the paths are listed at /openapi.json";
        let title = "There is nothing at this path";
        Problem::new(StatusCode::NOT_FOUND, "no-such-path", title, detail)
    }

    pub(super) fn no_such_letter(number: u64) -> Self {
        let detail = format!("there is no dead letter {number}");
        let title = "There is no such dead letter";
        Problem::new(StatusCode::NOT_FOUND, "no-such-letter", title, detail)
    }

    pub(super) fn wrong_method() -> Self {
        let detail = "the header `allow` lists those that are allowed";
        let title = "The method is not allowed here";
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Problem::new(status, "wrong-method", title, detail)
    }

    pub(super) fn slow_body() -> Self {
        let detail = "the body did not come in time; send it faster";
        let title = "The body is too slow";
        Problem::new(StatusCode::REQUEST_TIMEOUT, "slow-body", title, detail)
    }

    pub(super) fn key_taken(key: &str) -> Self {
        let detail = format!("another task has the key {key:?}; cancel it, or leave the letter");
        let title = "Another task has the key";
        Problem::new(StatusCode::CONFLICT, "key-taken", title, detail)
    }

    pub(super) fn too_large(what: &str) -> Self {
        let detail = format!("{what} may have {MAX_BODY} bytes");
        let title = "The body is too large";
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", title, detail)
    }

    pub(super) fn wrong_type(allowed: &str) -> Self {
        let detail = format!("say what the body is in the header `content-type`: {allowed}");
        let title = "The body is of another type";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Problem::new(status, "wrong-type", title, detail)
    }

    pub(super) fn key_reused() -> Self {
        let detail = "another request had this Idempotency-Key; choose a new one for each";
        let title = "The Idempotency-Key belongs to another request";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Problem::new(status, "idempotency-key-reused", title, detail)
    }

    pub(super) fn head_too_large() -> Self {
        let detail = format!("the head of a request may have {MAX_HEAD} bytes");
        let title = "The head is too large";
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Problem::new(status, "head-too-large", title, detail)
    }

    pub(super) fn internal() -> Self {
        let detail = "the server failed; that is its fault, and is in its log";
        let title = "The server failed";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Problem::new(status, "internal", title, detail)
    }

    pub(super) fn overloaded() -> Self {
        let detail = "the server has more to do than it can; try again later";
        unavailable("overloaded", "The server is overloaded", detail)
    }

    pub(super) fn too_many_watchers() -> Self {
        let detail = "as many watch already as may; try again later";
        unavailable("too-many-watchers", "Too many watch", detail)
    }

    pub(super) fn stopping() -> Self {
        let detail = Refused::Stopping.to_string();
        unavailable("stopping", "The server is stopping", detail)
    }

    /// Whether the request may do what it asked for when it comes again as it is.
    pub(super) fn passes(&self) -> bool {
        self.status.is_server_error()
    }

    /// Its JSON, for a line of a batch.
    pub(super) fn write(&self, line: Option<u64>, out: &mut Vec<u8>) {
        let shown = Shown {
            r#type: format!("{PREFIX}{}", self.kind),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            field: self.field,
            line,
        };
        // A vector takes everything, and all keys are texts.
        let _ = serde_json::to_writer(out, &shown);
    }
}

impl From<TaskError> for Problem {
    fn from(error: TaskError) -> Self {
        let status = StatusCode::BAD_REQUEST;
        let detail = error.to_string();
        let field = match error {
            TaskError::Json(_) => {
                let title = "The body is not what is expected here";
                return Problem::new(status, "malformed", title, detail);
            }
            TaskError::Field { field, .. } => Some(field),
        };
        Problem {
            field,
            ..Problem::new(
                status,
                "not-allowed",
                "A field has a value that is not allowed",
                detail,
            )
        }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Task(error) => error.into(),
            Refused::NotFound(_) => {
                let title = "There is no such task";
                Problem::new(StatusCode::NOT_FOUND, "no-such-task", title, detail)
            }
            Refused::UnderWay(_) => {
                let title = "An attempt is under way";
                Problem::new(StatusCode::CONFLICT, "under-way", title, detail)
            }
            Refused::Full(_) => unavailable("full", "As many tasks are pending as may be", detail),
            Refused::Stopping => Problem::stopping(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut body = Vec::with_capacity(256);
        self.write(None, &mut body);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, json);
        match self.status {
            StatusCode::UNAUTHORIZED => {
                let scheme = HeaderValue::from_static("Bearer realm=\"wheelhouse\"");
                headers.insert(WWW_AUTHENTICATE, scheme);
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            // What is left of the body is not worth reading.
            StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

fn unavailable(kind: &'static str, title: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, kind, title, detail)
}
