//! Waiting for a permit, as a future.

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::gate::{Seat, Turn};
use super::permit::{Held, OwnedPermit, Permit};
use super::{Shared, WaitError};

/// The future of [`Bulkhead::acquire`](super::Bulkhead::acquire).
///
/// It queues when it is first polled. Dropped while it waits it leaves the queue; dropped after a
/// permit was granted to it and before it noticed, it gives the permit to the next.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct Acquire<'a> {
    ticket: Ticket<&'a Shared>,
}

/// The future of [`Bulkhead::acquire_owned`](super::Bulkhead::acquire_owned), which borrows nothing.
/// It can be dropped at any point, as [`Acquire`] can.
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct AcquireOwned {
    ticket: Ticket<Arc<Shared>>,
}

impl<'a> Acquire<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Acquire {
            ticket: Ticket::new(shared),
        }
    }
}

impl AcquireOwned {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        AcquireOwned {
            ticket: Ticket::new(shared),
        }
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<Permit<'a>, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.ticket.poll(context).map_ok(Permit::from)
    }
}

impl Future for AcquireOwned {
    type Output = Result<OwnedPermit, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.ticket.poll(context).map_ok(OwnedPermit::from)
    }
}

/// Somebody on the way to a permit.
struct Ticket<H: Deref<Target = Shared>> {
    /// Until there is a result.
    shared: Option<H>,
    /// While it is in the queue, or has been granted a permit and has not noticed.
    seat: Option<Seat>,
    #[cfg(feature = "tokio")]
    limit: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<H: Deref<Target = Shared>> Ticket<H> {
    fn new(shared: H) -> Self {
        Ticket {
            shared: Some(shared),
            seat: None,
            #[cfg(feature = "tokio")]
            limit: None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Held<H>, WaitError>> {
        let result = ready!(self.poll_result(context));
        self.seat = None;
        let shared = self.shared.take().expect("a result comes once");
        Poll::Ready(result.map(|()| Held::new(shared)))
    }

    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WaitError>> {
        let shared = self
            .shared
            .as_deref()
            .expect("a future that was ready is not polled again");
        match self.seat {
            Some(seat) => {
                if shared.gate.poll(seat, context.waker()).is_ready() {
                    shared.waited();
                    return Poll::Ready(Ok(()));
                }
            }
            None => match shared.gate.take_or_queue(context.waker()) {
                Turn::Taken => return Poll::Ready(Ok(())),
                Turn::Full => return Poll::Ready(Err(shared.full(shared.queue).into())),
                // The seat first: the timer may panic for want of a runtime.
                Turn::Queued(seat) => {
                    self.seat = Some(seat);
                    #[cfg(feature = "tokio")]
                    {
                        let sleep = |limit| Box::pin(tokio::time::sleep(limit));
                        self.limit = shared.max_wait.map(sleep);
                    }
                }
            },
        }
        self.poll_limit(context)
    }

    #[cfg(not(feature = "tokio"))]
    fn poll_limit(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), WaitError>> {
        Poll::Pending
    }

    /// The limit has passed, and which came first: it, or the permit.
    #[cfg(feature = "tokio")]
    fn poll_limit(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WaitError>> {
        let (Some(limit), Some(shared)) = (&mut self.limit, self.shared.as_deref()) else {
            return Poll::Pending;
        };
        ready!(limit.as_mut().poll(context));
        let granted = self.seat.take().is_some_and(|seat| shared.gate.leave(seat));
        Poll::Ready(if granted {
            shared.waited();
            Ok(())
        } else {
            Err(shared.timed_out(shared.max_wait.unwrap_or_default()))
        })
    }
}

impl<H: Deref<Target = Shared>> Drop for Ticket<H> {
    fn drop(&mut self) {
        if let (Some(shared), Some(seat)) = (self.shared.take(), self.seat) {
            shared.cancelled();
            if shared.gate.leave(seat) {
                shared.gate.put_back();
            }
        }
    }
}

impl<H: Deref<Target = Shared>> fmt::Debug for Ticket<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("over", &self.shared.is_none())
            .field("seat", &self.seat)
            .finish_non_exhaustive()
    }
}
