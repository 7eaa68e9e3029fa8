//! [`BodyLayer`]: calls that last until the body of their response has ended.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::future::{Duty, Guarded, failing_on_panic};
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
        guarded: Guarded<F, P, R, C>,
    }
}

pin_project! {
    /// The body of a response that judges the call when it ends.
    ///
    /// The end is the frame of the trailers, the end of the stream, or that the inner body says that
    /// nothing more comes. Dropped before, the call is cancelled, unless as many bytes have come as
    /// the body's exact size or the `content-length` said: then nobody waits for the end. An error or
    /// a panic is a failure.
    #[derive(Debug)]
    pub struct GuardedBody<B, P, C>
    where
        P: Settle,
        C: ClassifyResponse,
    {
        #[pin]
        body: B,
        duty: Option<Duty<P, C>>,
        // Bytes to come, if it is known.
        left: Option<u64>,
    }

    impl<B, P, C> PinnedDrop for GuardedBody<B, P, C>
    where
        P: Settle,
        C: ClassifyResponse,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if *this.left == Some(0)
                && !std::thread::panicking()
                && let Some(duty) = this.duty.take_if(|duty| !duty.classify.needs_trailers())
            {
                duty.end(None);
            }
        }
    }
}

impl<P: Settle, C: ClassifyResponse> Duty<P, C> {
    fn end(self, trailers: Option<&HeaderMap>) {
        let verdict = self.classify.end(trailers);
        self.settle(verdict);
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
        BodyFuture {
            guarded: self.guarded.begin(request),
        }
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
        self.project()
            .guarded
            .poll_call(context, |duty, result| match result {
                Ok(response) => Ok(guarded(response, duty)),
                Err(error) => {
                    duty.settle(Verdict::Failure);
                    Err(error)
                }
            })
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
    let left = response.body().size_hint().exact();
    let left = left.or_else(|| content_length(response.headers()));
    response.map(|body| GuardedBody { body, duty, left })
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl<B: Body, P: Settle, C: ClassifyResponse> Body for GuardedBody<B, P, C> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let body = this.body.as_mut();
        let frame = ready!(failing_on_panic(this.duty, || body.poll_frame(context)));
        if let (Some(Ok(frame)), Some(left)) = (&frame, this.left) {
            let bytes = frame.data_ref().map_or(0, Buf::remaining);
            *left = left.saturating_sub(bytes as u64);
        }
        match &frame {
            None => {
                if let Some(duty) = this.duty.take() {
                    duty.end(None);
                }
            }
            Some(Err(_)) => {
                if let Some(duty) = this.duty.take() {
                    duty.settle(Verdict::Failure);
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
