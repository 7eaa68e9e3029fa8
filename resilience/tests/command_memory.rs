//! What commands take and leave behind. One test alone in its file, since it counts all that is
//! allocated.
#![cfg(feature = "tokio")]

use std::alloc::System;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use wheelhouse_resilience::Command;
use wheelhouse_resilience::command::Dashboard;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Makes commands, each used in every way, and drops them.
async fn come_and_go(dashboard: &Dashboard, count: usize) {
    for index in 0..count {
        let command = Command::builder(format!("command {index}"))
            .timeout(Duration::from_millis(1))
            .build()
            .unwrap();
        dashboard.add(&command);
        let _ = command.run(async { Ok::<_, ()>(()) }).await;
        let _ = command
            .run_or(async { Err::<(), _>(()) }, |_| async { Ok::<_, ()>(()) })
            .await;
        if index % 100 == 0 {
            let _ = command.run(std::future::pending::<Result<(), ()>>()).await;
            let _ = command.snapshot_json();
        }
    }
}

/// Bytes that are still allocated, of what was since `region` began.
fn left(region: &Region<'_, System>) -> isize {
    let change = region.change();
    change.bytes_allocated as isize - change.bytes_deallocated as isize
}

fn calls_allocate_nothing(runtime: &tokio::runtime::Runtime) {
    let command = Command::builder("test").build().unwrap();
    let calls = async |count| {
        for _ in 0..count {
            let _ = command.run(async { Ok::<_, ()>(()) }).await;
            let waits = async {
                tokio::task::yield_now().await;
                Ok::<_, ()>(())
            };
            let _ = command.run(waits).await;
        }
    };
    runtime.block_on(async {
        calls(10).await;
        let region = Region::new(ALLOCATOR);
        calls(1000).await;
        let change = region.change();
        assert_eq!((change.allocations, change.reallocations), (0, 0));
    });
}

#[test]
fn r13_ten_thousand_commands_leave_nothing_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let dashboard = Dashboard::new();
    // What is made once, and lists that have grown to their size.
    runtime.block_on(come_and_go(&dashboard, 200));
    let region = Region::new(ALLOCATOR);
    runtime.block_on(come_and_go(&dashboard, 10_000));
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    let left = left(&region);
    assert!(left.abs() < 4096, "{left} bytes are left");

    calls_allocate_nothing(&runtime);
}
