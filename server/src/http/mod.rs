//! The HTTP API.
//!
//! | file | idea |
//! |---|---|
//! | guard.rs | what every request has to pass: head, token, shedding; panics |
//! | body.rs | bodies, in time and no longer than allowed |
//! | query.rs | what stands in paths and queries |
//! | tasks.rs | put, move, cancel, get, list |
//! | batch.rs | tasks line by line, answered line by line |
//! | events.rs | what happens, as it happens |
//! | dead.rs | tasks that were given up |
//! | replay.rs | the same answer for the same `Idempotency-Key` |
//! | view.rs | tasks as they are shown |
//! | problem.rs | errors |
//! | openapi.json | all of this, for programs |
//!
//! Every error is problem JSON by RFC 9457, whose `type` is `urn:wheelhouse:problem:` and a word, and
//! whose `field`, where a field is to blame, says which. What has a body needs its `Content-Type`: a
//! web page can then not send one from a browser without being asked.
//!
//! Requests of one connection are served one after the other, and their work takes microseconds; who
//! sends a body slowly is waited for outside of it, and no longer than ten seconds.

mod batch;
mod body;
mod dead;
mod events;
mod guard;
mod problem;
mod query;
mod replay;
mod tasks;
mod view;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use tokio::sync::Semaphore;
use wheelhouse_resilience::Shedder;
use wheelhouse_servicegroup::http::HttpServer;
use wheelhouse_servicegroup::{Error, Service, ServiceContext};

use crate::engine::Engine;

use problem::Problem;
use replay::Replays;

/// Bytes that a body, or a line of a batch, may have.
pub const MAX_BODY: usize = 1 << 20;
/// Bytes that the head of a request may have.
pub const MAX_HEAD: usize = 16 * 1_024;
/// The description of the API, by OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

/// Watchers at once.
const WATCHERS: usize = 1_024;

/// Settings of the HTTP API.
#[derive(Clone)]
#[must_use]
pub struct Settings {
    token: Option<Arc<str>>,
    sheds: bool,
    body_timeout: Duration,
    replay_for: Duration,
    max_replays: u64,
}

/// The API was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The shedder was not made.
    #[error(transparent)]
    Shedder(#[from] wheelhouse_resilience::BuildError),
    /// The cache of answers was not made.
    #[error(transparent)]
    Cache(#[from] wheelhouse_cache::BuildError),
}

/// A service of a group that serves the API on a port of its own.
///
/// ```
/// use wheelhouse_server::engine::{Engine, InProcess};
/// use wheelhouse_server::http;
/// use wheelhouse_servicegroup::ServiceGroup;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::builder(InProcess::new()).build()?;
/// let mut group = ServiceGroup::builder().build()?;
/// let api = http::Server::bind("127.0.0.1:8080", engine.clone(), http::Settings::new());
/// group.add("api", api)?;
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

/// What the handlers share.
struct Api {
    engine: Engine,
    token: Option<Arc<str>>,
    shedder: Option<Shedder>,
    replays: Replays,
    body_timeout: Duration,
    watchers: Arc<Semaphore>,
}

impl Settings {
    /// No token: everybody may call. Sheds, waits ten seconds for a body, and knows 65 536
    /// idempotency keys for ten minutes.
    pub fn new() -> Self {
        Settings {
            token: None,
            sheds: true,
            body_timeout: Duration::from_secs(10),
            replay_for: Duration::from_secs(600),
            max_replays: 65_536,
        }
    }

    /// Serves only requests with the header `authorization: Bearer <token>`.
    pub fn bearer_token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Whether requests are turned away with 503 when the processors are busy and more are in flight than
    /// the last seconds show to be sustainable.
    pub fn shedding(mut self, sheds: bool) -> Self {
        self.sheds = sheds;
        self
    }

    /// How long a client may take for a body, or for the next bytes of a batch.
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }

    /// For how long, and of how many keys, the answer to an `Idempotency-Key` is remembered; both more
    /// than 0.
    pub fn replays(mut self, lifetime: Duration, keys: u64) -> Self {
        (self.replay_for, self.max_replays) = (lifetime, keys);
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
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
        let router = router(self.engine, self.settings)?;
        let mut server = match self.listen {
            Listen::Address(address) => HttpServer::bind(address, router),
            Listen::Socket(listener) => HttpServer::from_listener(listener, router),
        };
        if let Some(hook) = self.on_bound {
            server = server.on_bound(hook);
        }
        server.run(ctx).await
    }
}

/// The API as a router, for a server of your own.
///
/// # Errors
/// [`BuildError`] when a setting is out of range.
pub fn router(engine: Engine, settings: Settings) -> Result<Router, BuildError> {
    let shedder = settings
        .sheds
        .then(|| Shedder::builder().name("http").build());
    let api = Arc::new(Api {
        engine,
        token: settings.token,
        shedder: shedder.transpose()?,
        replays: Replays::new(settings.replay_for, settings.max_replays)?,
        body_timeout: settings.body_timeout,
        watchers: Arc::new(Semaphore::new(WATCHERS)),
    });
    let task = get(tasks::find)
        .put(tasks::put)
        .patch(tasks::change)
        .delete(tasks::cancel);
    let router = Router::new()
        .route("/v1/tasks", get(tasks::list))
        .route("/v1/tasks/{key}", task)
        .route("/v1/tasks:batch", post(batch::batch))
        .route("/v1/events", get(events::events))
        .route("/v1/dead", get(dead::list))
        .route("/v1/dead/{number}", delete(dead::discard))
        .route("/v1/dead/{number}/requeue", post(dead::requeue))
        .route("/openapi.json", get(openapi))
        .fallback(async || Problem::no_such_path())
        .method_not_allowed_fallback(async || Problem::wrong_method())
        .layer(from_fn_with_state(Arc::clone(&api), guard::guard))
        .with_state(api);
    Ok(router)
}

async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], OPENAPI)
}

impl fmt::Debug for Settings {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("has_token", &self.token.is_some())
            .field("sheds", &self.sheds)
            .field("body_timeout", &self.body_timeout)
            .field("replay_for", &self.replay_for)
            .field("max_replays", &self.max_replays)
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
