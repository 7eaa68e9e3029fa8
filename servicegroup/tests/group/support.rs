//! Services that write down what happens to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use wheelhouse_servicegroup::{
    Error, GroupBuilder, GroupHandle, Preset, Report, Service, ServiceContext, ServiceGroup,
};

/// What happened, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Serves until it is told to stop, takes `exit` for that, and writes down its name.
    pub(crate) fn service(&self, name: &str, exit: Duration) -> impl Service + use<> {
        let (log, name) = (self.clone(), name.to_owned());
        async move |ctx: ServiceContext| {
            log.add(format!("{name} up"));
            ctx.ready();
            ctx.stopping().await;
            tokio::time::sleep(exit).await;
            log.add(format!("{name} down"));
            Ok(())
        }
    }

    /// A hook that writes down its name.
    pub(crate) fn hook(
        &self,
        name: &str,
    ) -> impl FnOnce() -> std::future::Ready<Result<(), Error>> + Send + use<> {
        let (log, name) = (self.clone(), name.to_owned());
        move || {
            log.add(name);
            std::future::ready(Ok(()))
        }
    }
}

/// A group for tests that never touches the process.
pub(crate) fn builder() -> GroupBuilder {
    ServiceGroup::builder()
        .preset(Preset::Test)
        .without_signals()
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Serves until it is told to stop.
pub(crate) async fn obedient(ctx: ServiceContext) -> Result<(), Error> {
    ctx.ready();
    ctx.stopping().await;
    Ok(())
}

/// Never stops by itself.
pub(crate) async fn stubborn(ctx: ServiceContext) -> Result<(), Error> {
    ctx.ready();
    std::future::pending().await
}

/// Waits, a virtual millisecond at a time, until the group is ready or ends before.
pub(crate) async fn ready(handle: &GroupHandle) {
    while !handle.is_ready() && !handle.is_stopping() {
        tokio::time::sleep(ms(1)).await;
    }
}

/// Runs the group and stops it as soon as it is ready.
pub(crate) async fn run_and_stop(group: ServiceGroup) -> Report {
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        ready(&handle).await;
        handle.stop();
    });
    report
}
