//! A socket that can be cut, that counts as open until it is dropped, upgraded or not, and that says
//! what goes through it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// What has gone through a socket. Relaxed everywhere: it is written and read by the connection's task,
/// and by no other until the connection is upgraded, when nobody reads it any more.
#[derive(Default)]
pub(super) struct Traffic {
    written: AtomicU64,
    blocked: AtomicBool,
}

impl Traffic {
    /// How many writes have been made.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether something waits for the client to read.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    fn wrote<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.blocked.store(result.is_pending(), Ordering::Relaxed);
        if result.is_ready() {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

pub(super) struct Connection {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    traffic: Arc<Traffic>,
    _open: TaskTrackerToken,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        cut: CancellationToken,
        traffic: Arc<Traffic>,
        open: TaskTrackerToken,
    ) -> Self {
        Connection {
            stream,
            cut: Box::pin(cut.cancelled_owned()),
            traffic,
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
        self.unless_cut(context, |stream, context| stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = self.unless_cut(context, |stream, context| stream.poll_write(context, bytes));
        self.traffic.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = self.unless_cut(context, |stream, context| {
            stream.poll_write_vectored(context, bytes)
        });
        self.traffic.wrote(result)
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
