//! [`ResponseFuture`]: the call behind a guard; and [`LayerError`].
//!
//! [`Guarded`] is what all futures of guarded calls are made of, whatever ends them. Two rules hold in
//! it: what the call holds is dropped before its permit is settled or dropped, and a panic of the
//! inner service settles the permit at once, since a caller may catch it and keep the future.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::{Classify, Settle};
use crate::{CallError, Rejected, Verdict};

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
        guarded: Guarded<F, P, R, C>,
    }
}

impl<F, P, R, C> ResponseFuture<F, P, R, C> {
    pub(super) fn new(guarded: Guarded<F, P, R, C>) -> Self {
        ResponseFuture { guarded }
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
        self.project().guarded.poll_call(context, |duty, result| {
            let verdict = duty.classify.classify(result.as_ref());
            duty.settle(verdict);
            result
        })
    }
}

pin_project! {
    /// A call that was let through, or its rejection.
    #[project = GuardedProjection]
    #[derive(Debug)]
    pub(super) enum Guarded<F, P, R, C> {
        Calling {
            // Before the permit: what the call holds is dropped before it counts as over.
            #[pin]
            call: F,
            duty: Option<Duty<P, C>>,
        },
        Rejected {
            rejection: Option<R>,
        },
    }
}

/// What is to be settled at the end of a call, and who judges it.
#[derive(Debug)]
pub(super) struct Duty<P, C> {
    pub(super) permit: P,
    pub(super) classify: C,
}

impl<F, P: Settle, R, C> Guarded<F, P, R, C> {
    /// Makes the call, and has it failed if that panics.
    pub(super) fn calling(duty: Duty<P, C>, call: impl FnOnce() -> F) -> Self {
        let mut duty = Some(duty);
        let call = failing_on_panic(&mut duty, call);
        Guarded::Calling { call, duty }
    }

    pub(super) fn rejected(rejection: R) -> Self {
        Guarded::Rejected {
            rejection: Some(rejection),
        }
    }

    /// Polls the call, and hands what it returned and its duty to `end`.
    pub(super) fn poll_call<T, U, Error>(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        end: impl FnOnce(Duty<P, C>, Result<T, Error>) -> Result<U, Error>,
    ) -> Poll<Result<U, LayerError<R, Error>>>
    where
        F: Future<Output = Result<T, Error>>,
    {
        match self.project() {
            GuardedProjection::Calling { call, duty } => {
                let result = ready!(failing_on_panic(duty, || call.poll(context)));
                let duty = duty.take().expect(AGAIN);
                Poll::Ready(end(duty, result).map_err(LayerError::Failed))
            }
            GuardedProjection::Rejected { rejection } => {
                let rejection = rejection.take().expect(AGAIN);
                Poll::Ready(Err(LayerError::Rejected(rejection)))
            }
        }
    }
}

impl<P: Settle, C> Settle for Duty<P, C> {
    #[inline]
    fn settle(self, verdict: Verdict) {
        self.permit.settle(verdict);
    }
}

/// Runs code of the inner service. If it panics, the call that `held` belongs to has failed.
///
/// The permit's own drop does not know that: whoever catches the panic drops it later, or never.
pub(super) fn failing_on_panic<P: Settle, T>(held: &mut Option<P>, run: impl FnOnce() -> T) -> T {
    let armed = FailOnDrop(held);
    let value = run();
    mem::forget(armed);
    value
}

struct FailOnDrop<'a, P: Settle>(&'a mut Option<P>);

impl<P: Settle> Drop for FailOnDrop<'_, P> {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            permit.settle(Verdict::Failure);
        }
    }
}

pub(super) const AGAIN: &str = "a future that was ready is not polled again";
