//! Expired pairs as a stream.

use std::fmt;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::shared::Shared;

/// The pairs of a wheel as they come due, from [`Builder::stream`](super::Builder::stream).
///
/// A pair counts as fired when it is yielded. While as many pairs wait as the stream holds, the
/// others stay in the wheel, where they can still be moved and removed. The stream ends when the
/// wheel is stopped; pairs not yielded by then are returned by
/// [`stop`](super::TimingWheel::stop). Dropping the stream stops the wheel without waiting, as nobody
/// would take the pairs any more; a later `stop` returns them.
#[must_use = "a stream does nothing unless it is polled"]
pub struct ExpiredStream<K, V> {
    shared: Arc<Shared<K, V>>,
    capacity: NonZeroUsize,
    /// [`Shared::close`], which knows more of the key than this type asks of it.
    close: fn(&Shared<K, V>),
}

impl<K, V> ExpiredStream<K, V> {
    pub(crate) fn new(
        shared: Arc<Shared<K, V>>,
        capacity: NonZeroUsize,
        close: fn(&Shared<K, V>),
    ) -> Self {
        ExpiredStream {
            shared,
            capacity,
            close,
        }
    }
}

impl<K, V> Stream for ExpiredStream<K, V> {
    type Item = (K, V);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<(K, V)>> {
        let now = self.shared.clock.now();
        let Some((pair, left)) = ready!(self.shared.lanes[0].poll_next(cx)) else {
            return Poll::Ready(None);
        };
        self.shared.begun(&pair, now);
        if left == self.capacity.get() / 2 {
            self.shared.alarm.wake();
        }
        Poll::Ready(Some((pair.key, pair.value)))
    }
}

impl<K, V> Drop for ExpiredStream<K, V> {
    fn drop(&mut self) {
        (self.close)(&self.shared);
    }
}

impl<K, V> fmt::Debug for ExpiredStream<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiredStream").finish_non_exhaustive()
    }
}
