//! tokio-util's `TaskTracker` and `CancellationToken`, as many programs do it by hand: the floor.
//!
//! Settings: one token for all, no child tokens. It has no names, order, deadlines, policies or report, and a
//! service that panics goes unnoticed.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::lifecycles::{Lifecycle, Tally};

/// Tasks that run.
#[derive(Debug)]
pub struct LifecyclesTracker {
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Lifecycle for LifecyclesTracker {
    async fn start(tally: Arc<Tally>) -> Self {
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        for number in 0..tally.services() {
            let (tally, stopping) = (tally.clone(), stopping.clone());
            tasks.spawn(async move {
                tally.begin();
                stopping.cancelled().await;
                tally.end(number);
            });
        }
        tasks.close();
        tally.all_begun().await;
        Self { stopping, tasks }
    }

    async fn stop(self) {
        self.stopping.cancel();
        self.tasks.wait().await;
    }
}
