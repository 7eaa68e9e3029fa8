//! What every request has to pass, cheapest first; and what becomes of a panic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use wheelhouse_resilience::{Priority, Promise};

use super::problem::Problem;
use super::{Api, MAX_HEAD};

/// Bytes of a line of the head beside a header's name and value.
const LINE: usize = 4;

pub(super) async fn guard(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    if head(request.uri(), request.headers()) > MAX_HEAD {
        return Problem::head_too_large().into_response();
    }
    if !api.lets_in(request.headers()) {
        return Problem::unauthorized().into_response();
    }
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    // What the handlers change is the engine's, which is whole whenever its locks are free.
    answered.unwrap_or_else(|_| Problem::internal().into_response())
}

impl Api {
    /// The leave to serve a request that is answered at once. Streams, which take as long as their
    /// clients like, do without.
    pub(super) fn admit(&self) -> Result<Option<Promise>, Problem> {
        let admitted = self
            .shedder
            .as_ref()
            .map(|it| it.try_acquire(Priority::Normal));
        admitted.transpose().map_err(|_| Problem::overloaded())
    }

    fn lets_in(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let mut said = headers.get_all(AUTHORIZATION).iter();
        let (Some(header), None) = (said.next(), said.next()) else {
            return false;
        };
        let said = header.as_bytes().split_at_checked("Bearer ".len());
        said.is_some_and(|(scheme, said)| {
            scheme.eq_ignore_ascii_case(b"Bearer ") && same(said, token.as_bytes())
        })
    }
}

/// Keeps a promise, if there is one.
pub(super) fn keep(promise: Option<Promise>) {
    if let Some(promise) = promise {
        promise.success();
    }
}

fn head(uri: &Uri, headers: &HeaderMap) -> usize {
    let query = uri.query().map_or(0, str::len);
    let lines = headers.iter();
    let lines = lines.map(|(name, value)| name.as_str().len() + value.len() + LINE);
    uri.path().len() + query + lines.sum::<usize>()
}

/// Takes as long wherever they differ, so that a token is not to be guessed byte by byte.
fn same(said: &[u8], token: &[u8]) -> bool {
    let differences = said.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    said.len() == token.len() && std::hint::black_box(differences) == 0
}
