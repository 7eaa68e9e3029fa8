//! The missed-tick policies against tokio's interval, whose semantics they have: tasks and loops
//! with the same runs begin them at the same instants.

use std::time::Duration;

use crate::support::runs::{MS, Runs};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::time::{Instant, MissedTickBehavior, advance, interval_at, sleep};
use wheelhouse_wheel::TokioClock;
use wheelhouse_wheel::scheduler::{MissedTick, Scheduler};

const POLICIES: [(MissedTick, MissedTickBehavior); 3] = [
    (MissedTick::Burst, MissedTickBehavior::Burst),
    (MissedTick::Delay, MissedTickBehavior::Delay),
    (MissedTick::Skip, MissedTickBehavior::Skip),
];

/// When runs begin that take these times in turn, and what tokio's interval makes of them.
async fn both(
    (missed, behavior): (MissedTick, MissedTickBehavior),
    period: Duration,
    takes: Vec<u64>,
    stall: Duration,
) -> (String, String) {
    let scheduler = Scheduler::builder().build().unwrap();
    let (task, interval) = (Runs::new(TokioClock), Runs::new(TokioClock));
    let count = takes.len() as u64;
    let work = {
        let (mut note, mut takes) = (task.work("run"), takes.clone().into_iter());
        move || {
            drop(note());
            sleep(Duration::from_millis(takes.next().expect("as many runs")))
        }
    };
    let options = scheduler.task().missed_tick(missed).run_limit(count);
    let handle = options.every(period, work).unwrap();
    let peer = tokio::spawn({
        let interval = interval.clone();
        async move {
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(behavior);
            for takes in takes {
                ticks.tick().await;
                interval.note("run");
                sleep(Duration::from_millis(takes)).await;
            }
        }
    });
    // Both wait for their first tick by now.
    sleep(MS).await;
    advance(stall).await;
    handle.await.unwrap();
    peer.await.unwrap();
    (task.taken(), interval.taken())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn runs_begin_when_those_of_tokios_interval_do(
        policy in 0usize..3,
        period in 1u64..50,
        takes in vec(prop_oneof![Just(0u64), 1u64..10, 10u64..60, 60u64..500], 1..20),
        stall in prop_oneof![Just(0u64), 0u64..60, 60u64..1000],
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let (period, stall) = (Duration::from_millis(period), Duration::from_millis(stall));
        let (task, interval) = runtime.block_on(both(POLICIES[policy], period, takes, stall));
        prop_assert_eq!(task, interval);
    }
}
