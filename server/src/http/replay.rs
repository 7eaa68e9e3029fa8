//! The same answer for the same `Idempotency-Key`: a client that has lost an answer may ask again.
//!
//! A key belongs to the first request that had it: method, path and body. The same request gets the
//! same answer again, with the header `idempotency-replayed: true`; another is refused. Of requests at
//! once one is carried out, and all get its answer. Answers that say nothing was done because the
//! server could not (503) are not remembered, so that a repetition may succeed.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use wheelhouse_cache::{BuildError, Cache, Loaded};

use super::problem::Problem;

const HEADER: &str = "idempotency-key";
const KEY_BYTES: usize = 256;

/// What is answered when all went well.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// JSON.
    pub(super) body: Bytes,
    /// Where what was made is found.
    pub(super) location: Option<HeaderValue>,
}

pub(super) struct Replays {
    answers: Cache<String, Arc<Remembered>>,
    /// Two, so that one request is not taken for another.
    hashers: [foldhash::quality::RandomState; 2],
}

struct Remembered {
    request: [u64; 2],
    outcome: Result<Answer, Problem>,
}

impl Replays {
    pub(super) fn new(lifetime: Duration, keys: u64) -> Result<Self, BuildError> {
        let answers = Cache::builder()
            .name("idempotency")
            .capacity(keys)
            .time_to_live(lifetime)
            .build()?;
        Ok(Replays {
            answers,
            hashers: Default::default(),
        })
    }

    /// Carries out a request, or answers it as it was answered before.
    pub(super) async fn answer(
        &self,
        (method, uri, headers): (&Method, &Uri, &HeaderMap),
        body: &[u8],
        carry_out: impl FnOnce() -> Result<Answer, Problem>,
    ) -> Result<Response, Problem> {
        let Some(key) = key(headers)? else {
            return carry_out().map(Answer::into_response);
        };
        let request = self
            .hashers
            .each_ref()
            .map(|it| it.hash_one((method.as_str(), uri.path(), body)));
        let mut ran = false;
        let taken = self.answers.take_async(key, async {
            ran = true;
            let outcome = carry_out();
            let forgets = matches!(&outcome, Err(problem) if problem.passes());
            let remembered = Arc::new(Remembered { request, outcome });
            match forgets {
                true => Loaded::with_ttl(remembered, Duration::ZERO),
                false => Loaded::new(remembered),
            }
        });
        // The cache is closed with the API, and no load asks for itself.
        let remembered = taken.await.map_err(|_| Problem::internal())?;
        if remembered.request != request {
            return Err(Problem::key_reused());
        }
        let mut response = match &remembered.outcome {
            Ok(answer) => answer.clone().into_response(),
            Err(problem) => problem.clone().into_response(),
        };
        if !ran {
            let name = HeaderName::from_static("idempotency-replayed");
            let headers = response.headers_mut();
            headers.insert(name, HeaderValue::from_static("true"));
        }
        Ok(response)
    }
}

impl Answer {
    pub(super) fn ok(body: Vec<u8>) -> Self {
        Answer {
            status: StatusCode::OK,
            body: body.into(),
            location: None,
        }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(location) = self.location {
            headers.insert(LOCATION, location);
        }
        response
    }
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut said = headers.get_all(HEADER).iter();
    let Some(header) = said.next() else {
        return Ok(None);
    };
    let key = header.to_str().unwrap_or_default();
    let allowed = (1..=KEY_BYTES).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    match allowed && said.next().is_none() {
        true => Ok(Some(key.to_owned())),
        false => Err(Problem::bad_idempotency_key()),
    }
}
