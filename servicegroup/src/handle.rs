//! Asking a group to stop, and waiting for its end, from anywhere.

use std::fmt;
use std::sync::Arc;

use crate::error::InsideService;
use crate::inside;
use crate::report::{Reason, Report, ServiceReport};
use crate::shared::Shared;

/// A handle on a [`ServiceGroup`](crate::ServiceGroup). Cheap to clone; it keeps nothing running.
///
/// ```
/// use wheelhouse_servicegroup::{Outcome, Preset, ServiceContext, ServiceGroup};
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let mut group = ServiceGroup::builder().preset(Preset::Test).build()?;
/// group.add("api", async |ctx: ServiceContext| {
///     ctx.ready();
///     ctx.stopping().await;
///     Ok(())
/// })?;
/// let handle = group.handle();
/// let running = std::thread::spawn(move || group.run_blocking());
/// handle.stop();
/// # let report =
/// running.join().unwrap();
/// # assert_eq!(report.exit_code(), 0);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct GroupHandle {
    shared: Arc<Shared>,
}

impl GroupHandle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        GroupHandle { shared }
    }

    /// Asks the group to stop and returns at once, from any thread, any number of times, before the
    /// start too: then nothing is started. True for the first who asked; its reason is the report's.
    pub fn stop(&self) -> bool {
        self.shared.ask(Reason::Handle)
    }

    /// Waits for the end. Everybody gets the same report.
    ///
    /// # Errors
    ///
    /// [`InsideService`], at once, in the task of one of the group's services: it would wait for
    /// itself. A task that a service has spawned may wait.
    pub async fn stopped(&self) -> Result<Report, InsideService> {
        if inside::is_inside(self.shared.id) {
            return Err(InsideService);
        }
        Ok((*self.shared.ended.wait().await).clone())
    }

    /// [`stopped`](Self::stopped) for threads: blocks this one.
    ///
    /// # Errors
    ///
    /// [`InsideService`], at once, on a thread that runs one of the group's services.
    pub fn stopped_blocking(&self) -> Result<Report, InsideService> {
        if inside::is_inside(self.shared.id) {
            return Err(InsideService);
        }
        Ok((*self.shared.ended.wait_blocking()).clone())
    }

    /// Whether all levels are up and nobody has asked to stop.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready()
    }

    /// Whether somebody has asked to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.asked.is_set()
    }

    /// Has the reload hooks called, as SIGHUP does. What is asked for while they run is one more
    /// call; nothing happens before the group runs or once it stops.
    pub fn reload(&self) {
        self.shared.reload.notify_one();
    }

    /// All services as they are at this moment. Time in the number of services.
    #[must_use]
    pub fn services(&self) -> Vec<ServiceReport> {
        self.shared.board.services(self.shared.begun())
    }
}

impl fmt::Debug for GroupHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupHandle")
            .field("ready", &self.is_ready())
            .field("stopping", &self.is_stopping())
            .finish_non_exhaustive()
    }
}
