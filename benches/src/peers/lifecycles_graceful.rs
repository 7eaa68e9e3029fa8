//! tokio-graceful-shutdown: every service a subsystem of the top level.
//!
//! Settings: no signals are caught, and the shutdown has more time than it takes. Its `tracing` events have
//! no subscriber. It knows names, failures and panics of subsystems, and nesting; it stops all at once, so
//! it has no order of its own, and one time-out for all.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_graceful_shutdown::{SubsystemBuilder, SubsystemHandle, Toplevel};
use tokio_util::sync::CancellationToken;

use super::lifecycles::{Lifecycle, Tally};

/// Subsystems that run.
#[derive(Debug)]
pub struct LifecyclesGraceful {
    shutdown: CancellationToken,
    run: JoinHandle<bool>,
}

impl Lifecycle for LifecyclesGraceful {
    async fn start(tally: Arc<Tally>) -> Self {
        let shutdown = CancellationToken::new();
        let all = tally.clone();
        let top = async move |top: &mut SubsystemHandle| {
            for number in 0..all.services() {
                let tally = all.clone();
                let service = async move |own: &mut SubsystemHandle| {
                    tally.begin();
                    own.on_shutdown_requested().await;
                    tally.end(number);
                    Ok::<(), std::io::Error>(())
                };
                top.start(SubsystemBuilder::new(format!("s{number}"), service));
            }
        };
        let top = Toplevel::<Box<dyn std::error::Error + Send + Sync>>::new_with_shutdown_token(
            top,
            shutdown.clone(),
        );
        let run = tokio::spawn(async {
            let ended = top.handle_shutdown_requests(Duration::from_secs(600)).await;
            ended.is_ok()
        });
        tally.all_begun().await;
        Self { shutdown, run }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        assert!(self.run.await.expect("it does not panic"), "it failed");
    }
}
