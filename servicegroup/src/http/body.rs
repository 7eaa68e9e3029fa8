//! The body of an answer: its request is in flight until it is sent, and an endless one can be told
//! to end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body as AxumBody, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::connection::InFlight;

pub(super) struct Answer {
    body: AxumBody,
    /// For streams of events, which end between two events when this does.
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    _in_flight: InFlight,
}

impl Answer {
    pub(super) fn new(
        body: AxumBody,
        stopping: Option<WaitForCancellationFutureOwned>,
        in_flight: InFlight,
    ) -> Self {
        Answer {
            body,
            stopping: stopping.map(Box::pin),
            _in_flight: in_flight,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(stopping) = &mut self.stopping
            && stopping.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
