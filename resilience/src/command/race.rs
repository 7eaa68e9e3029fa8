//! Work against its caller and the time: [`race`].

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::coop::{Unconstrained, unconstrained};
use tokio::time::{Instant, Sleep, sleep_until};

/// How work ended.
#[derive(Debug)]
pub(super) enum Outcome<T, E> {
    Done(Result<T, E>),
    /// Its caller has cancelled it.
    Cancelled,
    /// It was dropped at the end of its time.
    TimeUp,
}

/// Polls work until it is done, `cancelled` is, or it is `until`, in this order at one instant. `sleep`
/// is the room for the timer, which is made when the work is first not ready. Whoever calls drops the
/// work.
pub(super) async fn race<T, E>(
    mut work: impl FnMut(&mut Context<'_>) -> Poll<Outcome<T, E>>,
    mut cancelled: Pin<&mut impl Future<Output = ()>>,
    mut sleep: Pin<&mut Option<Unconstrained<Sleep>>>,
    until: Option<Instant>,
) -> Outcome<T, E> {
    poll_fn(|context| {
        if let Poll::Ready(outcome) = work(context) {
            return Poll::Ready(outcome);
        }
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Outcome::Cancelled);
        }
        if let (Some(until), true) = (until, sleep.is_none()) {
            // Not held up by tokio's budget: work that always uses it up would never be out of time.
            sleep.set(Some(unconstrained(sleep_until(until))));
        }
        match sleep.as_mut().as_pin_mut() {
            Some(sleep) => sleep.poll(context).map(|()| Outcome::TimeUp),
            None => Poll::Pending,
        }
    })
    .await
}

/// Whether `future` is ready already. One that was is not to be polled again.
pub(super) async fn is_ready(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}
