//! Tasks one by one, and pages of them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::body;
use super::guard::keep;
use super::problem::Problem;
use super::replay::Answer;
use super::{Api, query, view};
use crate::engine::{Cancelled, MAX_PAGE, Put, Refused};
use crate::task::{Due, Task};

/// Tasks on a page when the client does not say.
const PAGE: usize = 100;
/// About how many bytes a page has at most, unless it is of one task.
const PAGE_BYTES: usize = 4 << 20;

#[derive(Serialize)]
struct Done<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    under_way: Option<bool>,
}

pub(super) async fn put(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let key = query::key(request.uri())?;
    let (parts, body) = (head(&request), body::json(request, api.body_timeout).await?);
    let promise = api.admit()?;
    let response = api
        .replays
        .answer((&parts.method, &parts.uri, &parts.headers), &body, || {
            let task = Task::from_json(&body)?;
            let put = api.engine.put(key.clone(), task)?;
            let (status, result) = match put {
                Put::Created => (StatusCode::CREATED, "created"),
                Put::Replaced => (StatusCode::OK, "replaced"),
            };
            let done = Done {
                result: Some(result),
                ..Done::of(&key)
            };
            let location = (status == StatusCode::CREATED)
                .then(|| HeaderValue::from_str(parts.uri.path()).ok())
                .flatten();
            Ok(Answer {
                status,
                location,
                ..done.answer()
            })
        })
        .await;
    keep(promise);
    response
}

pub(super) async fn change(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let key = query::key(request.uri())?;
    let (parts, body) = (head(&request), body::json(request, api.body_timeout).await?);
    let promise = api.admit()?;
    let response = api
        .replays
        .answer((&parts.method, &parts.uri, &parts.headers), &body, || {
            let next = api.engine.move_due(&key, Due::from_json(&body)?)?;
            let done = Done {
                next: Some(next.to_string()),
                ..Done::of(&key)
            };
            Ok(done.answer())
        })
        .await;
    keep(promise);
    response
}

pub(super) async fn cancel(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let key = query::key(request.uri())?;
    let promise = api.admit()?;
    let asked = (request.method(), request.uri(), request.headers());
    let response = api
        .replays
        .answer(asked, b"", || {
            let cancelled = api.engine.cancel(&key)?;
            let done = Done {
                under_way: Some(cancelled == Cancelled::UnderWay),
                ..Done::of(&key)
            };
            Ok(done.answer())
        })
        .await;
    keep(promise);
    response
}

pub(super) async fn find(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let key = query::key(request.uri())?;
    let promise = api.admit()?;
    let found = api.engine.find(&key);
    keep(promise);
    let status = found.ok_or(Refused::NotFound(key.clone()))?;
    let mut out = Vec::with_capacity(256);
    view::task(&key, &status, &mut out);
    Ok(Answer::ok(out).into_response())
}

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let [prefix, limit, cursor] = query::parameters(request.uri(), ["prefix", "limit", "cursor"])?;
    let limit = query::limit(limit.as_deref(), PAGE, MAX_PAGE)?;
    let promise = api.admit()?;
    let prefix = prefix.unwrap_or_default();
    let page = api.engine.list(&prefix, cursor.as_deref(), limit)?;

    let mut out = b"{\"tasks\":[".to_vec();
    let mut cursor = page.cursor;
    let mut last = None;
    for (key, status) in &page.tasks {
        if last.is_some() {
            if out.len() > PAGE_BYTES {
                cursor = last;
                break;
            }
            out.push(b',');
        }
        view::task(key, status, &mut out);
        last = Some(key.clone());
    }
    out.push(b']');
    if let Some(cursor) = cursor {
        out.extend_from_slice(b",\"cursor\":");
        view::write(&cursor.as_str(), &mut out);
    }
    out.push(b'}');
    keep(promise);
    Ok(Answer::ok(out).into_response())
}

/// The head of a request whose body is read apart.
struct Head {
    method: axum::http::Method,
    uri: axum::http::Uri,
    headers: axum::http::HeaderMap,
}

fn head(request: &Request) -> Head {
    Head {
        method: request.method().clone(),
        uri: request.uri().clone(),
        headers: request.headers().clone(),
    }
}

impl<'a> Done<'a> {
    fn of(key: &'a str) -> Self {
        Done {
            key,
            result: None,
            next: None,
            under_way: None,
        }
    }

    fn answer(&self) -> Answer {
        let mut out = Vec::with_capacity(64);
        view::write(self, &mut out);
        Answer::ok(out)
    }
}
