//! `grpc.health.v1.Health` for the whole server and for its one service.

use std::pin::Pin;

use futures_util::stream::{self, Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService as _;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::tasks::{Operations, until_stopping};
use super::v1::tasks_server::TasksServer;

/// Serves until its token is cancelled.
pub(super) struct Health {
    ending: CancellationToken,
}

impl Health {
    pub(super) fn new(ending: CancellationToken) -> Self {
        Health { ending }
    }

    fn answer(&self) -> HealthCheckResponse {
        let status = match self.ending.is_cancelled() {
            false => ServingStatus::Serving,
            true => ServingStatus::NotServing,
        };
        HealthCheckResponse {
            status: status.into(),
        }
    }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match is_known(&request.get_ref().service) {
            true => Ok(Response::new(self.answer())),
            false => Err(Status::not_found("there is no such service")),
        }
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// What is served now, and that it is no longer, until the server closes its connections.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let stopping = until_stopping(&request);
        if !is_known(&request.get_ref().service) {
            let unknown = HealthCheckResponse {
                status: ServingStatus::ServiceUnknown.into(),
            };
            let answers = stream::iter([Ok(unknown)]).chain(stream::pending());
            return Ok(Response::new(Box::pin(answers.take_until(stopping))));
        }
        let health = Health::new(self.ending.clone());
        let now = stream::iter([Ok(self.answer())]);
        let was_serving = !self.ending.is_cancelled();
        let later = stream::once(async move {
            health.ending.cancelled().await;
            Ok(health.answer())
        });
        let later = later.filter(move |_| std::future::ready(was_serving));
        let answers = now.chain(later).chain(stream::pending());
        Ok(Response::new(Box::pin(answers.take_until(stopping))))
    }
}

fn is_known(service: &str) -> bool {
    service.is_empty() || service == TasksServer::<Operations>::NAME
}
