//! The admin service: health, readiness, figures and states over HTTP.

use std::fmt;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::http::{HttpServer, Source};
use crate::{Error, GroupHandle, Service, ServiceContext};

/// A service with `/healthz`, `/readyz`, `/metrics` and `/services`. Added first, it is started first
/// and stopped last.
///
/// | path | answer |
/// |---|---|
/// | `/healthz` | 200 as long as the process can answer |
/// | `/readyz` | 200 while the group is ready, 503 from the first wish to stop on |
/// | `/metrics` | Prometheus text: the group's own figures, then what [`metrics`](Admin::metrics) adds |
/// | `/services` | the services and their states, as JSON |
///
/// ```
/// use wheelhouse_servicegroup::{Admin, ServiceGroup};
///
/// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
/// let mut group = ServiceGroup::builder().build()?;
/// group.add("admin", Admin::bind("127.0.0.1:9090"))?;
/// # Ok(()) }
/// ```
#[must_use = "a service does nothing until it runs in a group"]
pub struct Admin {
    source: Source,
    render: Option<Render>,
    on_bound: Option<Box<dyn FnOnce(SocketAddr) + Send>>,
}

type Render = Arc<dyn Fn() -> String + Send + Sync>;

impl Default for Admin {
    /// At `127.0.0.1:9090`.
    fn default() -> Self {
        Admin::bind("127.0.0.1:9090")
    }
}

impl Admin {
    /// Binds `address`, `host:port`, when it is started; that it cannot is a failed start. There is
    /// no password: keep it on loopback, or behind something that has one.
    pub fn bind(address: impl Into<String>) -> Self {
        Admin::with(Source::Address(address.into()))
    }

    /// The same on a socket that listens already: an inherited one, say.
    pub fn from_listener(listener: TcpListener) -> Self {
        Admin::with(Source::Listener(listener))
    }

    fn with(source: Source) -> Self {
        Admin {
            source,
            render: None,
            on_bound: None,
        }
    }

    /// Adds what `render` returns to `/metrics`: the text of a Prometheus exporter.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.render = Some(Arc::new(render));
        self
    }

    /// Calls `hook` with the address once the socket listens: for port 0.
    pub fn on_bound(mut self, hook: impl FnOnce(SocketAddr) + Send + 'static) -> Self {
        self.on_bound = Some(Box::new(hook));
        self
    }
}

impl Service for Admin {
    async fn run(self, ctx: ServiceContext) -> Result<(), Error> {
        let view = View {
            group: ctx.group(),
            render: self.render,
        };
        let router = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route("/services", get(services))
            .with_state(view);
        let mut server = HttpServer::with(self.source, router);
        if let Some(hook) = self.on_bound {
            server = server.on_bound(hook);
        }
        server.run(ctx).await
    }
}

#[derive(Clone)]
struct View {
    group: GroupHandle,
    render: Option<Render>,
}

async fn ready(Shared(view): Shared<View>) -> impl IntoResponse {
    match view.group.is_ready() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn metrics(Shared(view): Shared<View>) -> impl IntoResponse {
    let mut text = format!(
        "# TYPE wheelhouse_group_ready gauge\nwheelhouse_group_ready {}\n\
         # TYPE wheelhouse_service_state gauge\n",
        u8::from(view.group.is_ready())
    );
    let services = view.group.services();
    for service in &services {
        if let Some(state) = service.state {
            let name = label(&service.name);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "wheelhouse_service_state{{service=\"{name}\",state=\"{state}\"}} 1"
            );
        }
    }
    text.push_str("# TYPE wheelhouse_service_restarts_total counter\n");
    for service in &services {
        let name = label(&service.name);
        let _ = writeln!(
            text,
            "wheelhouse_service_restarts_total{{service=\"{name}\"}} {}",
            service.restarts
        );
    }
    if let Some(render) = &view.render {
        text.push_str(&render());
    }
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// As the text format wants label values. Names have no line breaks.
fn label(name: &str) -> String {
    name.replace('\\', "\\\\").replace('"', "\\\"")
}

async fn services(Shared(view): Shared<View>) -> Json<Value> {
    let services: Vec<_> = view
        .group
        .services()
        .iter()
        .map(|service| {
            json!({
                "name": service.name,
                "level": service.level,
                "state": service.state.map(|it| it.to_string()),
                "ready_after_ms": service.ready_after.map(|it| it.as_millis() as u64),
                "stopped_after_ms": service.stopped_after.map(|it| it.as_millis() as u64),
                "restarts": service.restarts,
                "cut": service.cut,
                "exit": service.exit.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    Json(json!({ "ready": view.group.is_ready(), "services": services }))
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
