//! `ServiceGroup`: all services on one level, or each on a level of its own.
//!
//! Settings: no signals, no lines on standard error, no process exit, a total that is never used up.
//! Nothing else is off: each service has a name, a supervisor that contains its panics, a deadline, and its
//! row in the report.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use wheelhouse_servicegroup::{Level, Member, Preset, Report, ServiceContext, ServiceGroup};

use super::lifecycles::{Lifecycle, Tally};

/// A group that runs. `LEVELS`: whether each service has a level of its own.
#[derive(Debug)]
pub struct LifecyclesWheelhouse<const LEVELS: bool> {
    handle: wheelhouse_servicegroup::GroupHandle,
    run: JoinHandle<Report>,
}

impl<const LEVELS: bool> Lifecycle for LifecyclesWheelhouse<LEVELS> {
    const REVERSED: bool = LEVELS;

    async fn start(tally: Arc<Tally>) -> Self {
        let mut group = ServiceGroup::builder()
            .preset(Preset::Test)
            .total(Duration::from_secs(600))
            .without_signals()
            .build()
            .expect("it fits");
        let member = |number| {
            let tally = tally.clone();
            let service = async move |ctx: ServiceContext| {
                tally.begin();
                ctx.ready();
                ctx.stopping().await;
                tally.end(number);
                Ok(())
            };
            Member::new(format!("s{number}"), service)
        };
        let members = (0..tally.services()).map(member);
        if LEVELS {
            for member in members {
                group.add_level(member).expect("a name of its own");
            }
        } else {
            let level: Level = members.collect();
            group.add_level(level).expect("names of their own");
        }
        let handle = group.handle();
        let run = tokio::spawn(group.run());
        tally.all_begun().await;
        while !handle.is_ready() {
            tokio::task::yield_now().await;
        }
        Self { handle, run }
    }

    async fn stop(self) {
        self.handle.stop();
        let report = self.run.await.expect("a run does not panic");
        assert_eq!(report.exit_code(), 0, "{report}");
    }
}
