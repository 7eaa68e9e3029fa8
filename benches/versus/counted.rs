//! The child process in which `versus` measures heap bytes and allocations.
//!
//! The counting allocator costs two atomic additions per allocation, so it lives in a binary of its
//! own: what is timed runs on the plain system allocator, and nothing is timed here.

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use wheelhouse_benches::harness::Heap;

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes on the heap now: requested sizes, without what the allocator adds to each.
fn live_bytes() -> u64 {
    let stats = GLOBAL.stats();
    (stats.bytes_allocated - stats.bytes_deallocated) as u64
}

fn allocations() -> u64 {
    let stats = GLOBAL.stats();
    (stats.allocations + stats.reallocations) as u64
}

fn main() -> ExitCode {
    wheelhouse_benches::versus_counted(Heap {
        live_bytes,
        allocations,
    })
}
