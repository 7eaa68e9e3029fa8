//! Services in the shape of two calls, start and stop.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use crate::inside;
use crate::{Error, Service, ServiceContext};

/// A service of two async functions: `start` gives what `stop` gets when it is the service's turn.
///
/// It is ready when `start` has returned. When `start` fails, `stop` is not called; else it is called
/// once. When the group stops while `start` runs, it is dropped at its next `.await`, as what has not
/// started; what must not end there belongs in a task.
///
/// ```
/// use wheelhouse_servicegroup::{ServiceGroup, start_stop};
/// # struct Pool;
/// # impl Pool {
/// #     async fn connect() -> Result<Pool, wheelhouse_servicegroup::Error> { Ok(Pool) }
/// #     async fn close(self) -> Result<(), wheelhouse_servicegroup::Error> { Ok(()) }
/// # }
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let mut group = ServiceGroup::builder().build()?;
/// group.add("db", start_stop(|| Pool::connect(), |pool: Pool| pool.close()))?;
/// # Ok(()) }
/// ```
pub fn start_stop<T, A, B>(
    start: impl FnOnce() -> A + Send + 'static,
    stop: impl FnOnce(T) -> B + Send + 'static,
) -> impl Service
where
    T: Send + 'static,
    A: Future<Output = Result<T, Error>> + Send + 'static,
    B: Future<Output = Result<(), Error>> + Send + 'static,
{
    async move |ctx: ServiceContext| {
        let started = tokio::select! {
            biased;
            started = start() => started?,
            () = ctx.stopping() => return Ok(()),
        };
        ctx.ready();
        ctx.stopping().await;
        stop(started).await
    }
}

/// The first half of a [`Blocking`] service.
pub trait Starter: Send + Sync + 'static {
    /// Starts, and may block as long as the service runs.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from running. Then it is not stopped.
    fn start(&self) -> Result<(), Error>;
}

/// The second half of a [`Blocking`] service.
pub trait Stopper: Send + Sync + 'static {
    /// Makes [`start`](Starter::start) return, or ends what that has begun. May block.
    ///
    /// # Errors
    ///
    /// Whatever went wrong.
    fn stop(&self) -> Result<(), Error>;
}

/// A service whose start and stop may block: each call has a thread of its own.
///
/// It is ready when its thread runs. `start` may return early, or only once it is stopped; `stop` is
/// called once, when it is the service's turn, unless `start` has failed. The service has ended when
/// both have returned. What does not return in time is left behind with its thread.
///
/// ```
/// use std::sync::{Condvar, Mutex};
/// use wheelhouse_servicegroup::{Blocking, Error, ServiceGroup, Starter, Stopper};
///
/// #[derive(Default)]
/// struct Poller {
///     stop: Mutex<bool>,
///     stopped: Condvar,
/// }
///
/// impl Starter for Poller {
///     fn start(&self) -> Result<(), Error> {
///         let stop = self.stop.lock().unwrap();
///         drop(self.stopped.wait_while(stop, |stop| !*stop));
///         Ok(())
///     }
/// }
///
/// impl Stopper for Poller {
///     fn stop(&self) -> Result<(), Error> {
///         *self.stop.lock().unwrap() = true;
///         self.stopped.notify_all();
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let mut group = ServiceGroup::builder().build()?;
/// group.add("poller", Blocking::new(Poller::default()))?;
/// # let handle = group.handle();
/// # std::thread::spawn(move || { while !handle.is_ready() {} handle.stop() });
/// # assert_eq!(group.run_blocking().exit_code(), 0);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Blocking<T> {
    service: Arc<T>,
}

impl<T: Starter + Stopper> Blocking<T> {
    /// Wraps both halves.
    pub fn new(service: T) -> Self {
        Blocking {
            service: Arc::new(service),
        }
    }
}

impl<T: Starter + Stopper> Service for Blocking<T> {
    async fn run(self, ctx: ServiceContext) -> Result<(), Error> {
        let (start, stop) = (self.service.clone(), self.service);
        let started = on_thread(format!("{}-start", ctx.name()), move || start.start())?;
        ctx.ready();
        tokio::pin!(started);
        let returned = tokio::select! {
            biased;
            result = &mut started => {
                settle(result)?;
                ctx.stopping().await;
                true
            }
            () = ctx.stopping() => false,
        };
        let stopped = on_thread(format!("{}-stop", ctx.name()), move || stop.stop())?;
        let stopped = settle(stopped.await);
        if !returned {
            settle(started.await)?;
        }
        stopped
    }
}

type Caught = Result<Result<(), Error>, Box<dyn Any + Send>>;

/// Runs `body` on a new thread, for which nobody has to wait.
fn on_thread(
    name: String,
    body: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Result<oneshot::Receiver<Caught>, Error> {
    let (sender, receiver) = oneshot::channel();
    let body = inside::carry(body);
    thread::Builder::new().name(name).spawn(move || {
        // The service may be gone: then nobody wants the result.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(body)));
    })?;
    Ok(receiver)
}

/// Panics where the thread did, so that the group names it.
fn settle(result: Result<Caught, oneshot::error::RecvError>) -> Result<(), Error> {
    match result? {
        Ok(result) => result,
        Err(payload) => resume_unwind(payload),
    }
}
