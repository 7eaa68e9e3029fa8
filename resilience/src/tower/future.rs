//! [`ResponseFuture`]: the call behind a guard; and [`LayerError`].

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{Classify, Settle};
use crate::{CallError, Rejected};

/// Why a guarded service has no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError<R, E> {
    /// The guard has turned the request away; the inner service has not seen it.
    #[error(transparent)]
    Rejected(R),
    /// The error of the inner service.
    #[error(transparent)]
    Failed(E),
}

impl<E> From<LayerError<Rejected, E>> for CallError<E> {
    fn from(error: LayerError<Rejected, E>) -> Self {
        match error {
            LayerError::Rejected(rejected) => CallError::Rejected(rejected),
            LayerError::Failed(error) => CallError::Failed(error),
        }
    }
}

pin_project! {
    /// The future of a [`GuardService`](super::GuardService): of the inner service, with the permit
    /// and the judge of the call, or a rejection.
    #[derive(Debug)]
    pub struct ResponseFuture<F, P, R, C> {
        #[pin]
        state: State<F, P, R, C>,
    }
}

pin_project! {
    #[project = StateProjection]
    #[derive(Debug)]
    enum State<F, P, R, C> {
        Calling {
            // Before the permit: what the call holds is dropped before it counts as over.
            #[pin]
            call: F,
            permit: Option<P>,
            classify: C,
        },
        Rejected {
            rejection: Option<R>,
        },
    }
}

impl<F, P, R, C> ResponseFuture<F, P, R, C> {
    pub(super) fn calling(call: F, permit: P, classify: C) -> Self {
        ResponseFuture {
            state: State::Calling {
                call,
                permit: Some(permit),
                classify,
            },
        }
    }

    pub(super) fn rejected(rejection: R) -> Self {
        ResponseFuture {
            state: State::Rejected {
                rejection: Some(rejection),
            },
        }
    }
}

impl<F, P, R, C, Response, Error> Future for ResponseFuture<F, P, R, C>
where
    F: Future<Output = Result<Response, Error>>,
    P: Settle,
    C: Classify<Response, Error>,
{
    type Output = Result<Response, LayerError<R, Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Calling {
                call,
                permit,
                classify,
            } => {
                let result = ready!(call.poll(context));
                let permit = permit.take().expect(AGAIN);
                permit.settle(classify.classify(result.as_ref()));
                Poll::Ready(result.map_err(LayerError::Failed))
            }
            StateProjection::Rejected { rejection } => {
                let rejection = rejection.take().expect(AGAIN);
                Poll::Ready(Err(LayerError::Rejected(rejection)))
            }
        }
    }
}

pub(super) const AGAIN: &str = "a future that was ready is not polled again";
