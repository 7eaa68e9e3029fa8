//! The part `resilience`: what a call through a breaker costs.

mod calls;
mod layer;
mod memory;

use recloser::AsyncRecloser;

use self::layer::Layered;
use crate::harness::{Entry, Load, Outcome, Pace, Part, Size, Workload};
use crate::peers::breakers_wheelhouse::{
    Count, Evidence, InARow, Ours, Rate, RateCoarse, Standard, Throttle,
};
use crate::peers::{FailsafeConsecutive, FailsafeRate, Recloser, RustZero};

/// The workload for every subject.
macro_rules! everyone {
    ($run:ident) => {
        &[
            entry("wheelhouse_rate", $run!(Ours<Rate>)),
            entry("wheelhouse_rate_coarse", $run!(Ours<RateCoarse>)),
            entry("wheelhouse_consecutive", $run!(Ours<InARow>)),
            entry("wheelhouse_count", $run!(Ours<Count>)),
            entry("wheelhouse_cusum", $run!(Ours<Evidence>)),
            entry("wheelhouse_throttle", $run!(Ours<Throttle>)),
            entry("wheelhouse_default", $run!(Ours<Standard>)),
            entry("recloser", $run!(Recloser)),
            entry("failsafe_rate", $run!(FailsafeRate)),
            entry("failsafe_consecutive", $run!(FailsafeConsecutive)),
            entry("rust_zero", $run!(RustZero)),
        ]
    };
}

macro_rules! closed1t {
    ($subject:ty) => {
        calls::closed::<$subject, 1>
    };
}

macro_rules! closed2t {
    ($subject:ty) => {
        calls::closed::<$subject, 2>
    };
}

macro_rules! closed1t_err10 {
    ($subject:ty) => {
        calls::err10::<$subject, 1>
    };
}

macro_rules! closed2t_err10 {
    ($subject:ty) => {
        calls::err10::<$subject, 2>
    };
}

macro_rules! allocations {
    ($subject:ty) => {
        memory::allocations::<$subject>
    };
}

/// `versus -- resilience`.
pub const PART: Part = Part {
    name: "resilience",
    workloads: &[
        Workload {
            counted: everyone!(allocations),
            ..calls_workload("closed1t", 1, everyone!(closed1t))
        },
        calls_workload("closed2t", 2, everyone!(closed2t)),
        calls_workload("closed1t_err10", 1, everyone!(closed1t_err10)),
        calls_workload("closed2t_err10", 2, everyone!(closed2t_err10)),
        calls_workload(
            "reject",
            1,
            &[
                entry("wheelhouse_rate", calls::reject::<Ours<Rate>>),
                entry("wheelhouse_rate_coarse", calls::reject::<Ours<RateCoarse>>),
                entry("wheelhouse_consecutive", calls::reject::<Ours<InARow>>),
                entry("wheelhouse_count", calls::reject::<Ours<Count>>),
                entry("wheelhouse_cusum", calls::reject::<Ours<Evidence>>),
                entry("wheelhouse_throttle", calls::reject::<Ours<Throttle>>),
                entry("wheelhouse_default", calls::reject::<Ours<Standard>>),
                entry("recloser", calls::reject::<Recloser>),
                entry("failsafe_consecutive", calls::reject::<FailsafeConsecutive>),
            ],
        ),
        Workload {
            counted: &[
                entry("wheelhouse_rate", layer::allocations::<Layered<Rate>>),
                entry("wheelhouse_count", layer::allocations::<Layered<Count>>),
                entry(
                    "wheelhouse_throttle",
                    layer::allocations::<Layered<Throttle>>,
                ),
                entry(
                    "wheelhouse_default",
                    layer::allocations::<Layered<Standard>>,
                ),
                entry("recloser", layer::allocations::<AsyncRecloser>),
            ],
            ..calls_workload(
                "layer",
                1,
                &[
                    entry("wheelhouse_rate", layer::closed::<Layered<Rate>>),
                    entry("wheelhouse_count", layer::closed::<Layered<Count>>),
                    entry("wheelhouse_throttle", layer::closed::<Layered<Throttle>>),
                    entry("wheelhouse_default", layer::closed::<Layered<Standard>>),
                    entry("recloser", layer::closed::<AsyncRecloser>),
                ],
            )
        },
        Workload {
            name: "bytes",
            threads: 1,
            size: Size::Given,
            pace: Pace::Short,
            timed: &[],
            counted: &[
                entry("wheelhouse_rate", memory::bytes::<Ours<Rate>>),
                entry("wheelhouse_consecutive", memory::bytes::<Ours<InARow>>),
                entry("wheelhouse_count", memory::bytes::<Ours<Count>>),
                entry("wheelhouse_cusum", memory::bytes::<Ours<Evidence>>),
                entry("wheelhouse_throttle", memory::bytes::<Ours<Throttle>>),
                entry("wheelhouse_default", memory::bytes::<Ours<Standard>>),
                entry("recloser", memory::bytes::<Recloser>),
                entry("failsafe_rate", memory::bytes::<FailsafeRate>),
                entry("failsafe_consecutive", memory::bytes::<FailsafeConsecutive>),
                entry("rust_zero", memory::bytes::<RustZero>),
            ],
        },
    ],
};

const fn entry(subject: &'static str, run: fn(&Load) -> Outcome) -> Entry {
    Entry { subject, run }
}

const fn calls_workload(name: &'static str, threads: usize, timed: &'static [Entry]) -> Workload {
    Workload {
        name,
        threads,
        size: Size::Given,
        pace: Pace::Short,
        timed,
        counted: &[],
    }
}
