//! The part `wheel`: timer structures driven by hand, and keyed timers in running processes.

mod busy;
mod runtime;
mod structure;

use crate::harness::{Entry, Load, Outcome, Pace, Part, Size, Workload};
use crate::peers::{
    BTree, DelayQueue, DelayQueueTask, Heap, Hhwt, TokioSleep, Wheelhouse, WheelhouseKeyed,
};

/// `versus -- wheel`.
pub const PART: Part = Part {
    name: "wheel",
    workloads: &[
        structure_workload(
            "insert",
            &[
                entry("wheelhouse", structure::insert::<Wheelhouse>),
                entry("delayqueue", structure::insert::<DelayQueue>),
                entry("hhwt", structure::insert::<Hhwt>),
                entry("heap", structure::insert::<Heap>),
                entry("btree", structure::insert::<BTree>),
            ],
        ),
        structure_workload(
            "later",
            &[
                entry("wheelhouse", structure::later::<Wheelhouse>),
                entry("delayqueue", structure::later::<DelayQueue>),
            ],
        ),
        structure_workload(
            "remove",
            &[
                entry("wheelhouse", structure::remove::<Wheelhouse>),
                entry("delayqueue", structure::remove::<DelayQueue>),
                entry("hhwt", structure::remove::<Hhwt>),
                entry("btree", structure::remove::<BTree>),
            ],
        ),
        structure_workload(
            "fire",
            &[
                entry("wheelhouse", structure::fire::<Wheelhouse>),
                entry("delayqueue", structure::fire::<DelayQueue>),
                entry("hhwt", structure::fire::<Hhwt>),
                entry("heap", structure::fire::<Heap>),
                entry("btree", structure::fire::<BTree>),
            ],
        ),
        structure_workload(
            "churn",
            &[
                entry("wheelhouse", structure::churn::<Wheelhouse>),
                entry("delayqueue", structure::churn::<DelayQueue>),
                entry("hhwt", structure::churn::<Hhwt>),
                entry("btree", structure::churn::<BTree>),
            ],
        ),
        structure_workload(
            "startstop",
            &[
                entry("wheelhouse", structure::start_stop::<Wheelhouse>),
                entry("delayqueue", structure::start_stop::<DelayQueue>),
                entry("hhwt", structure::start_stop::<Hhwt>),
                entry("btree", structure::start_stop::<BTree>),
            ],
        ),
        Workload {
            name: "bytes",
            threads: 1,
            size: Size::Given,
            pace: Pace::Short,
            timed: &[],
            counted: &[
                entry("wheelhouse", structure::bytes::<Wheelhouse>),
                entry("delayqueue", structure::bytes::<DelayQueue>),
                entry("hhwt", structure::bytes::<Hhwt>),
                entry("heap", structure::bytes::<Heap>),
                entry("btree", structure::bytes::<BTree>),
            ],
        },
        Workload {
            name: "set2",
            threads: runtime::CALLERS,
            size: Size::Given,
            pace: Pace::Short,
            timed: &[
                entry("wheelhouse_keyed", runtime::set2::<WheelhouseKeyed>),
                entry("tokio_sleep", runtime::set2::<TokioSleep<false>>),
                entry("delayqueue_task", runtime::set2::<DelayQueueTask<false>>),
            ],
            counted: &[],
        },
        Workload {
            name: "goshape",
            threads: 1,
            size: Size::Given,
            pace: Pace::Short,
            timed: &[
                entry("wheelhouse_keyed", runtime::goshape::<WheelhouseKeyed>),
                entry("tokio_sleep", runtime::goshape::<TokioSleep<true>>),
                entry("delayqueue_task", runtime::goshape::<DelayQueueTask<true>>),
            ],
            counted: &[],
        },
        Workload {
            name: "late1m",
            threads: 1,
            size: Size::Fixed(1_000_000),
            pace: Pace::Long,
            timed: &[
                entry("wheelhouse_keyed", runtime::late::<WheelhouseKeyed>),
                entry("tokio_sleep", runtime::late::<TokioSleep<false>>),
                entry("delayqueue_task", runtime::late::<DelayQueueTask<false>>),
            ],
            counted: &[
                entry("wheelhouse_keyed", runtime::late_bytes::<WheelhouseKeyed>),
                entry("tokio_sleep", runtime::late_bytes::<TokioSleep<false>>),
                entry(
                    "delayqueue_task",
                    runtime::late_bytes::<DelayQueueTask<false>>,
                ),
            ],
        },
        Workload {
            name: "refresh",
            threads: runtime::CALLERS,
            size: Size::Given,
            pace: Pace::Short,
            timed: &[
                entry("wheelhouse_keyed", runtime::refresh::<WheelhouseKeyed>),
                entry("tokio_sleep", runtime::refresh::<TokioSleep<true>>),
                entry("delayqueue_task", runtime::refresh::<DelayQueueTask<true>>),
            ],
            counted: &[],
        },
        Workload {
            name: "underload",
            threads: 1,
            size: Size::Fixed(1_500_000),
            pace: Pace::Long,
            timed: &[
                entry("wheelhouse_keyed", busy::underload::<WheelhouseKeyed>),
                entry("delayqueue_task", busy::underload::<DelayQueueTask<true>>),
            ],
            counted: &[],
        },
        Workload {
            name: "stall3s",
            threads: 1,
            size: Size::Fixed(1_500_000),
            pace: Pace::Long,
            timed: &[
                entry("wheelhouse_keyed", busy::stall::<WheelhouseKeyed>),
                entry("delayqueue_task", busy::stall::<DelayQueueTask<true>>),
            ],
            counted: &[],
        },
        Workload {
            name: "idle10s",
            threads: 1,
            size: Size::Fixed(1_000_000),
            pace: Pace::Long,
            timed: &[
                entry("wheelhouse_keyed", runtime::idle::<WheelhouseKeyed>),
                entry("tokio_sleep", runtime::idle::<TokioSleep<false>>),
                entry("delayqueue_task", runtime::idle::<DelayQueueTask<false>>),
            ],
            counted: &[],
        },
    ],
};

const fn entry(subject: &'static str, run: fn(&Load) -> Outcome) -> Entry {
    Entry { subject, run }
}

const fn structure_workload(name: &'static str, timed: &'static [Entry]) -> Workload {
    Workload {
        name,
        threads: 1,
        size: Size::Given,
        pace: Pace::Short,
        timed,
        counted: &[],
    }
}
