//! Work against its caller and the time: [`race`].

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::time::{Instant, sleep_until};

/// How work ended.
#[derive(Debug)]
pub(super) enum Outcome<T, E> {
    Done(Result<T, E>),
    /// Its caller has cancelled it.
    Cancelled,
    /// It was dropped at the end of its time.
    TimeUp,
}

/// Polls `work` until it is done, `cancelled` is, or it is `until`, in this order at one instant. The
/// work has been dropped when this returns.
pub(super) async fn race<T, E>(
    work: impl Future<Output = Outcome<T, E>>,
    mut cancelled: Pin<&mut impl Future<Output = ()>>,
    until: Option<Instant>,
) -> Outcome<T, E> {
    let mut work = pin!(work);
    // Not held up by tokio's budget: work that always uses it up would never be out of time.
    let sleep = until.map(|until| tokio::task::unconstrained(sleep_until(until)));
    let mut sleep = pin!(sleep);
    poll_fn(|context| {
        if let Poll::Ready(outcome) = work.as_mut().poll(context) {
            return Poll::Ready(outcome);
        }
        if cancelled.as_mut().poll(context).is_ready() {
            return Poll::Ready(Outcome::Cancelled);
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
