//! A socket that can be cut, and that counts as open until it is dropped, upgraded or not.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::task_tracker::TaskTrackerToken;

pub(super) struct Connection {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    heard: Arc<AtomicBool>,
    _open: TaskTrackerToken,
}

impl Connection {
    /// `heard` is set by the first byte that is read.
    pub(super) fn new(
        stream: TcpStream,
        cut: CancellationToken,
        heard: Arc<AtomicBool>,
        open: TaskTrackerToken,
    ) -> Self {
        Connection {
            stream,
            cut: Box::pin(cut.cancelled_owned()),
            heard,
            _open: open,
        }
    }

    /// What `attempt` gives, or an error once the connection is cut.
    fn unless_cut<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl FnOnce(Pin<&mut TcpStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.cut.as_mut().poll(context).is_ready() {
            let error = io::Error::new(io::ErrorKind::ConnectionAborted, "cut at the deadline");
            return Poll::Ready(Err(error));
        }
        attempt(Pin::new(&mut self.stream), context)
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.unless_cut(context, |stream, context| stream.poll_read(context, buffer)))?;
        if buffer.filled().len() > before {
            // Relaxed: it is looked at by the task that reads.
            self.heard.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.unless_cut(context, |stream, context| stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.unless_cut(context, |stream, context| {
            stream.poll_write_vectored(context, bytes)
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unless_cut(context, |stream, context| stream.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.unless_cut(context, |stream, context| stream.poll_shutdown(context))
    }
}
