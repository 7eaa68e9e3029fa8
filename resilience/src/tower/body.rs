//! [`BodyLayer`]: calls that last until the body of their response has ended.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::future::AGAIN;
use super::{Admit, ClassifyResponse, Guard, GuardLayer, GuardService, LayerError, Settle};
use crate::Verdict;

/// A [`GuardLayer`] whose permits are held until the body of the response has ended; from
/// [`until_body_ends`](GuardLayer::until_body_ends).
#[derive(Debug, Clone)]
pub struct BodyLayer<G, C> {
    guard: GuardLayer<G, C>,
}

/// A service behind a [`Guard`], with [`GuardedBody`] as body of its responses.
pub struct BodyService<S, G: Guard, C> {
    guarded: GuardService<S, G, C>,
}

pin_project! {
    /// The future of a [`BodyService`].
    #[derive(Debug)]
    pub struct BodyFuture<F, P, R, C> {
        #[pin]
        state: State<F, P, R, C>,
    }
}

pin_project! {
    #[project = StateProjection]
    #[derive(Debug)]
    enum State<F, P, R, C> {
        Calling {
            #[pin]
            call: F,
            duty: Option<Duty<P, C>>,
        },
        Rejected {
            rejection: Option<R>,
        },
    }
}

pin_project! {
    /// The body of a response that judges the call when it ends.
    ///
    /// The end is the frame of the trailers, the end of the stream, or that the inner body says that
    /// nothing more comes. Dropped before, the call is cancelled; an error is a failure.
    #[derive(Debug)]
    pub struct GuardedBody<B, P, C> {
        #[pin]
        body: B,
        duty: Option<Duty<P, C>>,
    }
}

/// What is to be settled.
#[derive(Debug)]
struct Duty<P, C> {
    permit: P,
    classify: C,
}

impl<P: Settle, C: ClassifyResponse> Duty<P, C> {
    fn end(self, trailers: Option<&http::HeaderMap>) {
        let verdict = self.classify.end(trailers);
        self.permit.settle(verdict);
    }

    fn fail(self) {
        self.permit.settle(Verdict::Failure);
    }
}

impl<G, C> BodyLayer<G, C> {
    pub(super) fn new(guard: GuardLayer<G, C>) -> Self {
        BodyLayer { guard }
    }
}

impl<S, G: Guard, C: Clone> Layer<S> for BodyLayer<G, C> {
    type Service = BodyService<S, G, C>;

    fn layer(&self, inner: S) -> Self::Service {
        BodyService {
            guarded: self.guard.layer(inner),
        }
    }
}

impl<S, G, C, Request, B> Service<Request> for BodyService<S, G, C>
where
    S: Service<Request, Response = Response<B>>,
    G: Admit<Request>,
    C: ClassifyResponse + Clone,
    B: Body,
{
    type Response = Response<GuardedBody<B, G::Permit, C>>;
    type Error = LayerError<G::Rejection, S::Error>;
    type Future = BodyFuture<S::Future, G::Permit, G::Rejection, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.guarded
            .poll_readiness(context)
            .map_err(LayerError::Failed)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let state = match self.guarded.decide(&request) {
            Ok(permit) => {
                let classify = self.guarded.classifier().clone();
                State::Calling {
                    call: self.guarded.inner_mut().call(request),
                    duty: Some(Duty { permit, classify }),
                }
            }
            Err(rejection) => State::Rejected {
                rejection: Some(rejection),
            },
        };
        BodyFuture { state }
    }
}

impl<F, P, R, C, B, Error> Future for BodyFuture<F, P, R, C>
where
    F: Future<Output = Result<Response<B>, Error>>,
    P: Settle,
    C: ClassifyResponse,
    B: Body,
{
    type Output = Result<Response<GuardedBody<B, P, C>>, LayerError<R, Error>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Calling { call, duty } => {
                let result = ready!(call.poll(context));
                let duty = duty.take().expect(AGAIN);
                Poll::Ready(match result {
                    Ok(response) => Ok(guarded(response, duty)),
                    Err(error) => {
                        duty.fail();
                        Err(LayerError::Failed(error))
                    }
                })
            }
            StateProjection::Rejected { rejection } => {
                let rejection = rejection.take().expect(AGAIN);
                Poll::Ready(Err(LayerError::Rejected(rejection)))
            }
        }
    }
}

/// The response with its body guarded, unless its head has decided already.
fn guarded<B: Body, P: Settle, C: ClassifyResponse>(
    response: Response<B>,
    duty: Duty<P, C>,
) -> Response<GuardedBody<B, P, C>> {
    let head = duty.classify.head(response.status(), response.headers());
    let duty = match head {
        Some(verdict) => {
            duty.permit.settle(verdict);
            None
        }
        // Nobody will ask for the frames of a body that has none.
        None if response.body().is_end_stream() => {
            duty.end(None);
            None
        }
        None => Some(duty),
    };
    response.map(|body| GuardedBody { body, duty })
}

impl<B: Body, P: Settle, C: ClassifyResponse> Body for GuardedBody<B, P, C> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        match &frame {
            None => {
                if let Some(duty) = this.duty.take() {
                    duty.end(None);
                }
            }
            Some(Err(_)) => {
                if let Some(duty) = this.duty.take() {
                    duty.fail();
                }
            }
            Some(Ok(frame)) => {
                let trailers = frame.trailers_ref();
                if (trailers.is_some() || this.body.is_end_stream())
                    && let Some(duty) = this.duty.take()
                {
                    duty.end(trailers);
                }
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<S: Clone, G: Guard, C: Clone> Clone for BodyService<S, G, C> {
    fn clone(&self) -> Self {
        BodyService {
            guarded: self.guarded.clone(),
        }
    }
}

impl<S: fmt::Debug, G: Guard + fmt::Debug, C> fmt::Debug for BodyService<S, G, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyService")
            .field("guarded", &self.guarded)
            .finish()
    }
}
