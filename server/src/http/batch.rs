//! Tasks line by line, answered line by line.
//!
//! The answer is made as it is read: a chunk of the request is read when the answers to those before it
//! have been taken, so neither is ever held whole, and a client that does not read is not read either.
//! Lines without anything on them have no answer. A line that is too long has one, and is passed over.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures_util::stream;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use wheelhouse_servicegroup::http::Stopping;

use super::problem::Problem;
use super::{Api, MAX_BODY, body, view};
use crate::engine::{Engine, Put};
use crate::task::Task;

/// Lines that are worked on before others have their turn.
const TURN: usize = 64 * 1_024;

struct Batch {
    engine: Engine,
    body: Body,
    timeout: Duration,
    stopping: CancellationToken,
    lines: Lines,
    ended: bool,
}

/// What has been read and is not answered.
struct Lines {
    /// The line that has no end yet.
    rest: Vec<u8>,
    /// Its number, from 1.
    number: u64,
    /// Whether it is too long, answered, and passed over.
    passing: bool,
}

pub(super) async fn batch(
    State(api): State<Arc<Api>>,
    request: Request,
) -> Result<Response, Problem> {
    let kinds = [
        "application/x-ndjson",
        "application/jsonl",
        "application/json",
    ];
    if !body::kind(request.headers()).is_some_and(|it| kinds.contains(&&*it)) {
        return Err(Problem::wrong_type("application/x-ndjson"));
    }
    api.admit().map(super::guard::keep)?;
    // Servers that do not say when they stop have none.
    let stopping = request.extensions().get::<Stopping>();
    let batch = Batch {
        engine: api.engine.clone(),
        stopping: stopping.map_or_else(CancellationToken::new, |it| it.token().clone()),
        body: request.into_body(),
        timeout: api.body_timeout,
        lines: Lines {
            rest: Vec::new(),
            number: 1,
            passing: false,
        },
        ended: false,
    };
    let answers = stream::unfold(batch, async |mut batch| {
        let answers = batch.next().await?;
        Some((Ok::<_, Infallible>(answers), batch))
    });
    let mut response = Response::new(Body::from_stream(answers));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

impl Batch {
    /// Answers to some more lines; `None` at the end.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.is_empty() && !self.ended {
            let frame = tokio::select! {
                biased;
                () = self.stopping.cancelled() => {
                    self.end(&Problem::stopping(), &mut out);
                    break;
                }
                frame = tokio::time::timeout(self.timeout, self.body.frame()) => frame,
            };
            match frame {
                Err(_) => self.end(&Problem::slow_body(), &mut out),
                Ok(Some(Err(_))) => self.end(&Problem::broken_body(), &mut out),
                Ok(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap_or_default();
                    for part in data.chunks(TURN) {
                        self.lines.take(part, &self.engine, &mut out);
                        tokio::task::consume_budget().await;
                    }
                }
                Ok(None) => {
                    self.lines.take(b"\n", &self.engine, &mut out);
                    self.ended = true;
                }
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// Says why nothing more is answered.
    fn end(&mut self, problem: &Problem, out: &mut Vec<u8>) {
        problem.write(Some(self.lines.number), out);
        out.push(b'\n');
        self.ended = true;
    }
}

impl Lines {
    fn take(&mut self, mut data: &[u8], engine: &Engine, out: &mut Vec<u8>) {
        while let Some(end) = data.iter().position(|b| *b == b'\n') {
            let (line, after) = (&data[..end], &data[end + 1..]);
            if self.passing {
                self.passing = false;
            } else if self.rest.is_empty() {
                self.answer(line, engine, out);
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend_from_slice(line);
                self.answer(&whole, engine, out);
                whole.clear();
                self.rest = whole;
            }
            self.number += 1;
            data = after;
        }
        if self.passing {
            return;
        }
        self.rest.extend_from_slice(data);
        if self.rest.len() > MAX_BODY {
            self.refuse(&Problem::too_large("a line"), out);
            self.rest = Vec::new();
            self.passing = true;
        }
    }

    fn answer(&self, line: &[u8], engine: &Engine, out: &mut Vec<u8>) {
        let line = line.trim_ascii();
        if line.is_empty() {
            return;
        }
        if line.len() > MAX_BODY {
            return self.refuse(&Problem::too_large("a line"), out);
        }
        let put = Task::keyed_from_json(line).map_err(Problem::from);
        let put = put.and_then(|(key, task)| Ok((key.clone(), engine.put(key, task)?)));
        match put {
            Ok((key, put)) => {
                out.extend_from_slice(b"{\"line\":");
                view::write(&self.number, out);
                out.extend_from_slice(b",\"key\":");
                view::write(&key.as_str(), out);
                out.extend_from_slice(match put {
                    Put::Created => b",\"status\":201}\n",
                    Put::Replaced => b",\"status\":200}\n",
                });
            }
            Err(problem) => self.refuse(&problem, out),
        }
    }

    fn refuse(&self, problem: &Problem, out: &mut Vec<u8>) {
        problem.write(Some(self.number), out);
        out.push(b'\n');
    }
}
