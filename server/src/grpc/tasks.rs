//! The operations of `wheelhouse.v1.Tasks`.

use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{self, Stream, StreamExt as _};
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use wheelhouse_servicegroup::http::Stopping;

use super::v1::operation::Kind;
use super::v1::outcome::Result as Done;
use super::v1::tasks_server::Tasks;
use super::v1::{self, watch_response};
use super::{MAX_MESSAGE, convert, refusal};
use crate::engine::{Cancelled, Engine, Put, Refused, Watch};
use crate::task::{Key, TaskError};

/// Tasks on a page when the caller does not say.
const PAGE: usize = 100;

/// Operations that a request of a batch may have: the response is then not much longer than it.
const MAX_OPERATIONS: usize = 10_000;

pub(super) struct Operations {
    engine: Engine,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Operations {
    pub(super) fn new(engine: Engine) -> Self {
        Operations { engine }
    }
}

/// Resolves when the server that the request came in by is told to stop; without an end on servers that
/// do not say.
pub(super) fn until_stopping<T>(request: &Request<T>) -> impl Future<Output = ()> + Send + use<T> {
    let stopping = request.extensions().get::<Stopping>();
    let token = stopping.map_or_else(CancellationToken::new, |it| it.token().clone());
    token.cancelled_owned()
}

#[tonic::async_trait]
impl Tasks for Operations {
    async fn put(
        &self,
        request: Request<v1::PutRequest>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        answer(put(&self.engine, request.into_inner()))
    }

    async fn r#move(
        &self,
        request: Request<v1::MoveRequest>,
    ) -> Result<Response<v1::MoveResponse>, Status> {
        answer(move_to(&self.engine, request.into_inner()))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        answer(cancel(&self.engine, request.into_inner()))
    }

    async fn get(
        &self,
        request: Request<v1::GetRequest>,
    ) -> Result<Response<v1::GetResponse>, Status> {
        let find = || {
            let key = Key::new(request.into_inner().key)?;
            let found = self.engine.find(&key);
            let status = found.ok_or_else(|| Refused::NotFound(key.clone()))?;
            Ok(v1::GetResponse {
                task: Some(convert::pending(&key, &status)),
            })
        };
        answer(find())
    }

    async fn list(
        &self,
        request: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        answer(list(&self.engine, &request.into_inner()))
    }

    type ListDeadLettersStream = Answers<v1::DeadLetter>;

    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<Self::ListDeadLettersStream>, Status> {
        let stopping = until_stopping(&request);
        let letters = stream::iter(self.engine.dead_letters());
        let letters = letters.map(|letter| Ok(convert::dead_letter(&letter)));
        Ok(Response::new(Box::pin(until_stopped(letters, stopping))))
    }

    type BatchStream = Answers<v1::BatchResponse>;

    /// A request is read when its response is asked for, so a caller that does not read is not read
    /// from either.
    async fn batch(
        &self,
        request: Request<Streaming<v1::BatchRequest>>,
    ) -> Result<Response<Self::BatchStream>, Status> {
        let stopping = until_stopping(&request);
        let engine = self.engine.clone();
        let requests = request.into_inner();
        let responses = requests.map(move |request| {
            let operations = request?.operations;
            if operations.len() > MAX_OPERATIONS {
                return Err(refusal::status(&too_many(operations.len())));
            }
            let operations = operations.into_iter();
            let outcomes = operations.map(|it| perform(&engine, it)).collect();
            Ok(v1::BatchResponse { outcomes })
        });
        Ok(Response::new(Box::pin(until_stopped(responses, stopping))))
    }

    type WatchStream = Answers<v1::WatchResponse>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let stopping = until_stopping(&request);
        let prefix = request.into_inner().prefix;
        let events = stream::unfold(
            (self.engine.watch(), prefix),
            |(mut watch, prefix)| async move {
                let response = next_of(&mut watch, &prefix).await?;
                Some((Ok(response), (watch, prefix)))
            },
        );
        Ok(Response::new(Box::pin(events.take_until(stopping))))
    }
}

/// The items, and an error instead of the next one when it is time to stop: what is cut short is not to
/// be taken for all.
fn until_stopped<T: Send>(
    items: impl Stream<Item = Result<T, Status>> + Send,
    stopping: impl Future<Output = ()> + Send,
) -> impl Stream<Item = Result<T, Status>> + Send {
    let start = Some((Box::pin(items), Box::pin(stopping)));
    stream::unfold(start, |state| async move {
        let (mut items, mut stopping) = state?;
        tokio::select! {
            biased;
            () = &mut stopping => Some((Err(refusal::stopping()), None)),
            item = items.next() => Some((item?, Some((items, stopping)))),
        }
    })
}

fn answer<T>(done: Result<T, Refused>) -> Result<Response<T>, Status> {
    done.map(Response::new)
        .map_err(|refused| refusal::status(&refused))
}

fn put(engine: &Engine, request: v1::PutRequest) -> Result<v1::PutResponse, Refused> {
    let key = Key::new(request.key)?;
    let task = convert::task(request.task.as_ref())?;
    let replaced = engine.put(key, task)? == Put::Replaced;
    Ok(v1::PutResponse { replaced })
}

fn move_to(engine: &Engine, request: v1::MoveRequest) -> Result<v1::MoveResponse, Refused> {
    let key = Key::new(request.key)?;
    let due = convert::due(request.to.as_ref())?;
    let due = engine.move_due(&key, due)?;
    Ok(v1::MoveResponse {
        due: Some(convert::to_proto(due)),
    })
}

fn cancel(engine: &Engine, request: v1::CancelRequest) -> Result<v1::CancelResponse, Refused> {
    let key = Key::new(request.key)?;
    let under_way = engine.cancel(&key)? == Cancelled::UnderWay;
    Ok(v1::CancelResponse { under_way })
}

/// A page that ends early rather than to be longer than a message.
fn list(engine: &Engine, request: &v1::ListRequest) -> Result<v1::ListResponse, Refused> {
    let limit = match request.limit {
        0 => PAGE,
        limit => usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let cursor = Some(&*request.cursor).filter(|it| !it.is_empty());
    let page = engine.list(&request.prefix, cursor, limit)?;
    let mut response = v1::ListResponse::default();
    let mut bytes = 0;
    for (key, status) in &page.tasks {
        let task = convert::pending(key, status);
        bytes += task.encoded_len();
        if bytes > MAX_MESSAGE && !response.tasks.is_empty() {
            response.cursor = response
                .tasks
                .last()
                .map(|it| it.key.clone())
                .unwrap_or_default();
            return Ok(response);
        }
        response.tasks.push(task);
    }
    response.cursor = page.cursor.map(|it| it.to_string()).unwrap_or_default();
    Ok(response)
}

fn perform(engine: &Engine, operation: v1::Operation) -> v1::Outcome {
    let done = match operation.kind {
        Some(Kind::Put(request)) => put(engine, request).map(Done::Put),
        Some(Kind::Move(request)) => move_to(engine, request).map(Done::Move),
        Some(Kind::Cancel(request)) => cancel(engine, request).map(Done::Cancel),
        None => Err(Refused::Task(TaskError::Field {
            field: "kind",
            value: "not said".to_owned(),
            allowed: "exactly one of put, move and cancel".to_owned(),
        })),
    };
    let result = done.unwrap_or_else(|refused| Done::Failure(refusal::failure(&refused)));
    v1::Outcome {
        result: Some(result),
    }
}

fn too_many(operations: usize) -> Refused {
    Refused::Task(TaskError::Field {
        field: "operations",
        value: operations.to_string(),
        allowed: format!("up to {MAX_OPERATIONS}"),
    })
}

/// The next event about a key that begins with `prefix`, or how many were missed.
async fn next_of(watch: &mut Watch, prefix: &str) -> Option<v1::WatchResponse> {
    loop {
        match watch.next().await {
            Ok(event) => {
                let event = event?;
                if event.key.starts_with(prefix) {
                    return Some(convert::event(event));
                }
            }
            Err(lagged) => {
                return Some(v1::WatchResponse {
                    kind: Some(watch_response::Kind::Missed(lagged.0)),
                });
            }
        }
    }
}
