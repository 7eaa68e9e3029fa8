//! The part `cache`: what operations on a cache cost, what an entry weighs, and what reclaiming does
//! to others.

mod keys;
mod memory;
mod rates;
mod reclaim;

use crate::harness::{Entry, Load, Outcome, Pace, Part, Size, Workload};
use crate::peers::{MiniMoka, Moka, OurCache, QuickCache, RustZeroCache};

/// Entries that a cache has room for.
const CAPACITY: usize = 100_000;

/// Keys that get-or-insert asks for.
const DISTINCT: usize = 1_000_000;

/// The workload for every subject.
macro_rules! everyone {
    ($run:ident) => {
        &[
            entry("wheelhouse", $run!(OurCache<false, true>)),
            entry("wheelhouse_lru", $run!(OurCache<true, true>)),
            entry("quick_cache", $run!(QuickCache)),
            entry("moka_ttl", $run!(Moka<false, true>)),
            entry("moka_lru_ttl", $run!(Moka<true, true>)),
            entry("mini_moka", $run!(MiniMoka<true>)),
            entry("rust_zero", $run!(RustZeroCache)),
        ]
    };
}

macro_rules! getorinsert1t {
    ($subject:ty) => {
        rates::get_or_insert::<$subject, 1>
    };
}

macro_rules! getorinsert2t {
    ($subject:ty) => {
        rates::get_or_insert::<$subject, 2>
    };
}

macro_rules! reads1t {
    ($subject:ty) => {
        rates::reads::<$subject, 1>
    };
}

macro_rules! reads2t {
    ($subject:ty) => {
        rates::reads::<$subject, 2>
    };
}

macro_rules! inserts2t {
    ($subject:ty) => {
        rates::inserts::<$subject, 2>
    };
}

macro_rules! bytes {
    ($subject:ty) => {
        memory::bytes::<$subject>
    };
}

/// `versus -- cache`.
pub const PART: Part = Part {
    name: "cache",
    workloads: &[
        timed("getorinsert1t", 1, everyone!(getorinsert1t)),
        timed("getorinsert2t", 2, everyone!(getorinsert2t)),
        timed("reads1t", 1, everyone!(reads1t)),
        timed("reads2t", 2, everyone!(reads2t)),
        timed("inserts2t", 2, everyone!(inserts2t)),
        Workload {
            counted: everyone!(bytes),
            ..timed("bytes", 1, &[])
        },
        Workload {
            counted: &[
                entry("wheelhouse", memory::bytes::<OurCache<false, false>>),
                entry("wheelhouse_lru", memory::bytes::<OurCache<true, false>>),
                entry("quick_cache", memory::bytes::<QuickCache>),
                entry("mini_moka", memory::bytes::<MiniMoka<false>>),
            ],
            ..timed("bytes_no_ttl", 1, &[])
        },
        Workload {
            size: Size::Fixed(1_000_000),
            pace: Pace::Long,
            ..timed(
                "reclaim1m",
                1,
                &[
                    entry("wheelhouse", reclaim::reclaim::<false>),
                    entry("wheelhouse_lru", reclaim::reclaim::<true>),
                ],
            )
        },
    ],
};

fn capacity(load: &Load) -> usize {
    if load.smoke { 200 } else { CAPACITY }
}

const fn entry(subject: &'static str, run: fn(&Load) -> Outcome) -> Entry {
    Entry { subject, run }
}

const fn timed(name: &'static str, threads: usize, timed: &'static [Entry]) -> Workload {
    Workload {
        name,
        threads,
        size: Size::Given,
        pace: Pace::Short,
        timed,
        counted: &[],
    }
}
