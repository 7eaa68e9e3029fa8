//! Heap bytes of this process, by a counting allocator.

use std::alloc::System;

use parking_lot::{Mutex, MutexGuard};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Keeps other tests from allocating while one counts.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

/// Heap bytes in use.
pub(crate) fn heap() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Heap bytes that have come to stay since `before`.
pub(crate) fn since(before: usize) -> usize {
    heap().saturating_sub(before)
}
