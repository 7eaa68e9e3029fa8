//! The gRPC service `wheelhouse.v1.Tasks`, with health and reflection.
//!
//! | file | idea |
//! |---|---|
//! | tasks.rs | the operations |
//! | convert.rs | from messages to tasks and back |
//! | refusal.rs | errors with their codes and details |
//! | health.rs | `grpc.health.v1.Health` |
//!
//! A task in a message is checked by the rules of the same task in JSON, field by field, so that both
//! refuse the same with the same words. Streams hear of the stop of the server that they are on:
//! watches end with `OK`, batches with `UNAVAILABLE` after the request that is being answered.

mod convert;
mod health;
mod refusal;
mod tasks;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tonic::service::interceptor::InterceptedService;
use tonic::service::{Interceptor, Routes};
use tonic::{Request, Status};
use tonic_health::pb::health_server::HealthServer;
use wheelhouse_servicegroup::http::HttpServer;
use wheelhouse_servicegroup::{Error, Service, ServiceContext};

use crate::engine::Engine;

use health::Health;
use tasks::Operations;
use v1::tasks_server::TasksServer;

/// Bytes that a message may have.
pub const MAX_MESSAGE: usize = 1 << 20;

/// The messages, the client and the server of `wheelhouse.v1`, made from its protocol.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all of a batch's operations are the largest, a put"
)]
pub mod v1 {
    tonic::include_proto!("wheelhouse.v1");
}

/// The protocol and what it uses, as reflection tells it: an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Settings of the gRPC service.
#[derive(Clone, Default)]
#[must_use]
pub struct Settings {
    token: Option<Arc<str>>,
}

/// A service of a group that serves gRPC on a port of its own. Health says `NOT_SERVING` from the first
/// sign of the group's stop on.
///
/// ```
/// use wheelhouse_server::engine::{Engine, InProcess};
/// use wheelhouse_server::grpc;
/// use wheelhouse_servicegroup::ServiceGroup;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::builder(InProcess::new()).build()?;
/// let mut group = ServiceGroup::builder().build()?;
/// group.add("rpc", grpc::Server::bind("127.0.0.1:8081", engine.clone(), grpc::Settings::new()))?;
/// # engine.stop().await;
/// # Ok(()) }
/// ```
#[must_use = "a server does nothing until it runs in a group"]
pub struct Server {
    listen: Listen,
    engine: Engine,
    settings: Settings,
    on_bound: Option<Box<dyn FnOnce(SocketAddr) + Send>>,
}

enum Listen {
    Address(String),
    Socket(TcpListener),
}

/// Lets those in who have the token, if there is one.
#[derive(Clone)]
struct Bearer(Option<Arc<str>>);

impl Settings {
    /// No token: everybody may call.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves only calls with the header `authorization: Bearer <token>`; health is open to all.
    pub fn bearer_token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.token = Some(token.into());
        self
    }
}

impl Server {
    /// A server that binds `address`, `host:port`, when it is started.
    pub fn bind(address: impl Into<String>, engine: Engine, settings: Settings) -> Self {
        Server::with(Listen::Address(address.into()), engine, settings)
    }

    /// A server on a socket that listens already.
    pub fn from_listener(listener: TcpListener, engine: Engine, settings: Settings) -> Self {
        Server::with(Listen::Socket(listener), engine, settings)
    }

    fn with(listen: Listen, engine: Engine, settings: Settings) -> Self {
        Server {
            listen,
            engine,
            settings,
            on_bound: None,
        }
    }

    /// Calls `hook` with the address once the socket listens: for port 0.
    pub fn on_bound(mut self, hook: impl FnOnce(SocketAddr) + Send + 'static) -> Self {
        self.on_bound = Some(Box::new(hook));
        self
    }
}

impl Service for Server {
    async fn run(self, ctx: ServiceContext) -> Result<(), Error> {
        let routes = routes(self.engine, self.settings, ctx.draining_token().clone());
        let mut server = match self.listen {
            Listen::Address(address) => HttpServer::bind_grpc(address, routes),
            Listen::Socket(listener) => HttpServer::grpc_from_listener(listener, routes),
        };
        if let Some(hook) = self.on_bound {
            server = server.on_bound(hook);
        }
        server.run(ctx).await
    }
}

/// The services for an [`HttpServer`], or for another server of tonic's routes. Health says
/// `NOT_SERVING` when the engine is stopping; a [`Server`] says so earlier.
#[must_use]
pub fn service(engine: Engine, settings: Settings) -> Routes {
    let stopping = engine.stopping().clone();
    routes(engine, settings, stopping)
}

fn routes(engine: Engine, settings: Settings, ending: CancellationToken) -> Routes {
    let bearer = Bearer(settings.token);
    let tasks = TasksServer::new(Operations::new(engine)).max_decoding_message_size(MAX_MESSAGE);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
    };
    let known = "the descriptors are those of the build";
    let mut routes = Routes::builder();
    routes
        .add_service(InterceptedService::new(tasks, bearer.clone()))
        // Open to all: those who probe have no token, and learn no more than that it runs.
        .add_service(HealthServer::new(Health::new(ending)))
        // Two versions of the same, for tools old and new.
        .add_service(InterceptedService::new(
            reflection().build_v1().expect(known),
            bearer.clone(),
        ))
        .add_service(InterceptedService::new(
            reflection().build_v1alpha().expect(known),
            bearer,
        ));
    routes.routes()
}

impl Interceptor for Bearer {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(token) = &self.0 else {
            return Ok(request);
        };
        let header = request.metadata().get("authorization");
        let said = header.and_then(|it| it.as_bytes().split_at_checked("Bearer ".len()));
        match said {
            Some((scheme, said))
                if scheme.eq_ignore_ascii_case(b"Bearer ") && same(said, token.as_bytes()) =>
            {
                Ok(request)
            }
            _ => Err(Status::unauthenticated(
                "a bearer token is needed, in the header `authorization`",
            )),
        }
    }
}

/// Takes as long wherever they differ, so that a token is not to be guessed byte by byte.
fn same(said: &[u8], token: &[u8]) -> bool {
    let differences = said.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    said.len() == token.len() && std::hint::black_box(differences) == 0
}

impl fmt::Debug for Settings {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("has_token", &self.token.is_some())
            .finish()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
