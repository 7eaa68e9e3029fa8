//! The part `scheduler`: work that runs at given times on a runtime.

mod oneshot;

use crate::harness::{Entry, Pace, Part, Size, Workload};
use crate::peers::{OneShotsDelayQueue, OneShotsTokioSleep, OneShotsWheelhouse};

/// `versus -- scheduler`.
pub const PART: Part = Part {
    name: "scheduler",
    workloads: &[
        Workload {
            name: "oneshot1m",
            threads: 1,
            size: Size::Fixed(1_000_000),
            pace: Pace::Long,
            timed: &[
                Entry {
                    subject: "wheelhouse",
                    run: oneshot::spread::<OneShotsWheelhouse>,
                },
                Entry {
                    subject: "tokio_sleep",
                    run: oneshot::spread::<OneShotsTokioSleep>,
                },
                Entry {
                    subject: "delayqueue_task",
                    run: oneshot::spread::<OneShotsDelayQueue>,
                },
            ],
            counted: &[
                Entry {
                    subject: "wheelhouse",
                    run: oneshot::bytes::<OneShotsWheelhouse>,
                },
                Entry {
                    subject: "tokio_sleep",
                    run: oneshot::bytes::<OneShotsTokioSleep>,
                },
                Entry {
                    subject: "delayqueue_task",
                    run: oneshot::bytes::<OneShotsDelayQueue>,
                },
            ],
        },
        Workload {
            name: "burst10k",
            threads: 1,
            size: Size::Fixed(10_000),
            pace: Pace::Short,
            timed: &[
                Entry {
                    subject: "wheelhouse",
                    run: oneshot::burst::<OneShotsWheelhouse>,
                },
                Entry {
                    subject: "tokio_sleep",
                    run: oneshot::burst::<OneShotsTokioSleep>,
                },
                Entry {
                    subject: "delayqueue_task",
                    run: oneshot::burst::<OneShotsDelayQueue>,
                },
            ],
            counted: &[],
        },
    ],
};
