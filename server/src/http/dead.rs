//! Tasks that were given up: listed, thrown away, taken up again.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::replay::Answer;
use super::{Api, query, view};
use crate::engine::{MAX_PAGE, Requeue};

/// Letters on a page when the client does not say.
const PAGE: usize = 100;
/// About how many bytes a page has at most, unless it is of one letter.
const PAGE_BYTES: usize = 4 << 20;

pub(super) async fn list(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let [limit, cursor] = query::parameters(request.uri(), ["limit", "cursor"])?;
    let limit = query::limit(limit.as_deref(), PAGE, MAX_PAGE)?;
    let after = cursor.map(|text| {
        let refused = || Problem::bad_query("cursor is none that was given".to_owned());
        query::whole(&text).ok_or_else(refused)
    });
    let letters = api.engine.dead_letters_after(after.transpose()?, limit);

    let mut out = b"{\"letters\":[".to_vec();
    let mut last = None;
    let mut cut = letters.len() == limit;
    for letter in &letters {
        if last.is_some() {
            if out.len() > PAGE_BYTES {
                cut = true;
                break;
            }
            out.push(b',');
        }
        view::letter(letter, &mut out);
        last = Some(letter.number);
    }
    out.push(b']');
    if let Some(last) = last.filter(|_| cut) {
        out.extend_from_slice(format!(",\"cursor\":\"{last}\"").as_bytes());
    }
    out.push(b'}');
    Ok(Answer::ok(out).into_response())
}

pub(super) async fn discard(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let number = query::number(request.uri())?;
    match api.engine.discard_dead_letter(number) {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::no_such_letter(number)),
    }
}

pub(super) async fn requeue(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let number = query::number(request.uri())?;
    let asked = (request.method(), request.uri(), request.headers());
    api.replays
        .answer(asked, b"", || {
            match api.engine.requeue_dead_letter(number)? {
                Requeue::Queued(key) => {
                    let mut out = b"{\"key\":".to_vec();
                    view::write(&key.as_str(), &mut out);
                    out.push(b'}');
                    Ok(Answer::ok(out))
                }
                Requeue::NotFound => Err(Problem::no_such_letter(number)),
                Requeue::Taken(key) => Err(Problem::key_taken(&key)),
            }
        })
        .await
}
