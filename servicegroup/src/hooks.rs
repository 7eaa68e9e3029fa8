//! Functions that a group calls at a point of its stop, or at a reload.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::report::{Exit, HookReport};

type Running = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A function that is called once.
pub(crate) struct Hook {
    name: String,
    /// The lock is only there to share hooks between threads.
    call: Mutex<Box<dyn FnOnce() -> Running + Send>>,
}

impl Hook {
    pub(crate) fn new<R>(name: String, call: impl FnOnce() -> R + Send + 'static) -> Self
    where
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        Hook {
            name,
            call: Mutex::new(Box::new(|| Box::pin(call()))),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// A function that is called each time.
pub(crate) struct ReloadHook {
    name: String,
    call: Arc<dyn Fn() -> Running + Send + Sync>,
}

impl ReloadHook {
    pub(crate) fn new<R>(name: String, call: impl Fn() -> R + Send + Sync + 'static) -> Self
    where
        R: Future<Output = Result<(), Error>> + Send + 'static,
    {
        ReloadHook {
            name,
            call: Arc::new(move || Box::pin(call())),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Calls it as a task of its own, so that one that blocks holds up nobody. Dropped, it is dropped at
    /// its next await.
    pub(crate) async fn call(&self) -> Exit {
        let call = self.call.clone();
        let mut task = JoinSet::new();
        // Called inside, so that a panic before the first await is caught as well.
        task.spawn(exit_of(async move { call().await }));
        match task.join_next().await {
            Some(Ok(exit)) => exit,
            _ => Exit::Cancelled,
        }
    }
}

/// Runs hooks side by side, each as a task of its own so that a blocking one holds up nobody, until
/// all are done or their time is up. What is not done is dropped at its next await.
pub(crate) async fn run(hooks: Vec<Hook>, deadline: Instant) -> Vec<HookReport> {
    let running: Vec<_> = hooks
        .into_iter()
        .map(|hook| {
            let call = hook.call.into_inner();
            (hook.name, tokio::spawn(exit_of(async { call().await })))
        })
        .collect();
    let mut reports = Vec::with_capacity(running.len());
    for (name, mut task) in running {
        let exit = match timeout_at(deadline, &mut task).await {
            Ok(Ok(exit)) => Some(exit),
            Ok(Err(_)) => Some(Exit::Cancelled),
            Err(_) => {
                task.abort();
                None
            }
        };
        reports.push(HookReport { name, exit });
    }
    reports
}

/// How user code ended, its panics caught.
pub(crate) async fn exit_of(run: impl Future<Output = Result<(), Error>>) -> Exit {
    match AssertUnwindSafe(run).catch_unwind().await {
        Ok(Ok(())) => Exit::Ended,
        Ok(Err(error)) => Exit::Error(Arc::from(error)),
        Err(payload) => {
            let exit = Exit::Panic(message(&*payload));
            discard(payload);
            exit
        }
    }
}

/// Drops what users have handed in and nobody needs any more. If that panics, it is let be.
pub(crate) fn let_go(value: impl Sized) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        discard(payload);
    }
}

/// Drops what a panic was called with. It is code of others too: if it panics in turn, it is let be.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no string").to_owned()
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hook").field(&self.name).finish()
    }
}

impl fmt::Debug for ReloadHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReloadHook").field(&self.name).finish()
    }
}
