//! [`QueueLayer`]: waiting for a place in a bulkhead.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::LayerError;
use super::future::{AGAIN, failing_on_panic};
use crate::Bulkhead;
use crate::bulkhead::{AcquireOwned, OwnedPermit, WaitError};

/// A bulkhead before a service: requests wait in its queue, as long as it allows, for a place.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use wheelhouse_resilience::Bulkhead;
/// use wheelhouse_resilience::tower::QueueLayer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let client = ServiceBuilder::new()
///     .layer(QueueLayer::new(Bulkhead::new(1)))
///     .service(service_fn(|request: u8| async move { Ok::<_, ()>(request) }));
/// assert_eq!(client.oneshot(7).await, Ok(7));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct QueueLayer {
    bulkhead: Bulkhead,
}

/// A service behind the queue of a bulkhead.
///
/// The request waits in the future of its call. That takes the service that has said that it is ready
/// along, and leaves a clone in its place.
#[derive(Debug, Clone)]
pub struct QueueService<S> {
    inner: S,
    bulkhead: Bulkhead,
}

pin_project! {
    /// The future of a [`QueueService`]: first in the queue, then the inner service's.
    #[derive(Debug)]
    pub struct QueueFuture<S, Request>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request, S::Future>,
    }
}

pin_project! {
    #[project = StateProjection]
    #[derive(Debug)]
    enum State<S, Request, F> {
        Waiting {
            #[pin]
            acquire: AcquireOwned,
            inner: S,
            request: Option<Request>,
        },
        Calling {
            // Before the permit: what the call holds is dropped before its place is free.
            #[pin]
            call: F,
            permit: Option<OwnedPermit>,
        },
    }
}

impl QueueLayer {
    /// `bulkhead` before a service.
    pub fn new(bulkhead: Bulkhead) -> Self {
        QueueLayer { bulkhead }
    }
}

impl<S> Layer<S> for QueueLayer {
    type Service = QueueService<S>;

    fn layer(&self, inner: S) -> QueueService<S> {
        QueueService {
            inner,
            bulkhead: self.bulkhead.clone(),
        }
    }
}

impl<S, Request> Service<Request> for QueueService<S>
where
    S: Service<Request> + Clone,
{
    type Response = S::Response;
    type Error = LayerError<WaitError, S::Error>;
    type Future = QueueFuture<S, Request>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(LayerError::Failed)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let clone = self.inner.clone();
        QueueFuture {
            state: State::Waiting {
                acquire: self.bulkhead.acquire_owned(),
                inner: mem::replace(&mut self.inner, clone),
                request: Some(request),
            },
        }
    }
}

impl<S, Request> Future for QueueFuture<S, Request>
where
    S: Service<Request>,
{
    type Output = Result<S::Response, LayerError<WaitError, S::Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Waiting {
                    acquire,
                    inner,
                    request,
                } => {
                    let permit = ready!(acquire.poll(context)).map_err(LayerError::Rejected)?;
                    let call = inner.call(request.take().expect(AGAIN));
                    state.set(State::Calling {
                        call,
                        permit: Some(permit),
                    });
                }
                StateProjection::Calling { call, permit } => {
                    let result = ready!(failing_on_panic(permit, || call.poll(context)));
                    // A future that is kept after it was ready holds no place.
                    drop(permit.take());
                    return Poll::Ready(result.map_err(LayerError::Failed));
                }
            }
        }
    }
}
