//! A scheduler on a clock that starts at a given time of the calendar, and a log in civil time.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use wheelhouse_wheel::cron::{TimeZone, Timestamp};
use wheelhouse_wheel::scheduler::Scheduler;
use wheelhouse_wheel::{Clock, ManualClock};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) struct Civil {
    pub(crate) clock: ManualClock,
    pub(crate) scheduler: Scheduler,
    zone: TimeZone,
    runs: Arc<Mutex<Vec<String>>>,
}

impl Civil {
    /// Starts at an RFC 3339 time, and logs in this zone.
    pub(crate) fn new(start: &str, zone: &str) -> Self {
        let start: Timestamp = start.parse().expect("a time");
        let clock = ManualClock::starting_at(SystemTime::from(start));
        let scheduler = Scheduler::builder().clock(clock.clone()).build().unwrap();
        Civil {
            clock,
            scheduler,
            zone: TimeZone::get(zone).expect("a zone"),
            runs: Arc::default(),
        }
    }

    /// Work that notes the time when it begins.
    pub(crate) fn work(&self) -> impl FnMut() -> Ready<()> + Send + 'static {
        let (clock, zone, runs) = (self.clock.clone(), self.zone.clone(), self.runs.clone());
        move || {
            let now = Timestamp::try_from(clock.system_now()).expect("a time of this age");
            let now = now.to_zoned(zone.clone());
            runs.lock().push(now.strftime("%d %H:%M:%S%:z").to_string());
            ready(())
        }
    }

    /// Lets time pass, every deadline in it being the present once.
    pub(crate) async fn run_for(&self, time: Duration) {
        self.scheduler.run_for(&self.clock, time).await;
    }

    /// What has been noted since the last call: day, time and offset.
    pub(crate) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.runs.lock())
    }
}
