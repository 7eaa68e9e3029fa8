//! Delivery over HTTP: one breaker and one bulkhead for each origin, and no way inside.
//!
//! | file | idea |
//! |---|---|
//! | host.rs | who may be called now, and when the others are to come again |
//! | call.rs | one call, and what its answer means |
//! | resolve.rs | names, looked up once in a while and checked |
//! | special.rs | which addresses are public |
//!
//! # What an answer means
//!
//! | answer | the task | the breaker |
//! |---|---|---|
//! | 2xx | delivered | success |
//! | 408, 425, 429 | tried again, not before its `Retry-After` | ignored |
//! | 5xx, none, none in time | tried again, likewise | failure |
//! | any other 4xx | given up at once: the same request would be answered the same | success |
//! | 3xx | given up at once: redirects are not followed | success |
//! | an address that is refused | given up at once | ignored |
//!
//! An answer counts from its head on; of its body up to 64 KiB are read, for a second at most, so that
//! the connection can be used again. No proxy is used, whatever the environment says.

mod call;
mod host;
mod resolve;
mod special;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore, crypto};
use wheelhouse_resilience::BreakerStats;

use crate::engine::{Admission, Hold, Webhooks};
use crate::task::HttpTarget;

use call::Call;
use host::Hosts;
use resolve::Resolver;

/// Origins that are known at once.
const ORIGINS: usize = 1_024;
/// How long one that is not used is known.
const IDLE: Duration = Duration::from_secs(600);
/// Idle connections to one origin.
const IDLE_CONNECTIONS: usize = 16;

/// Settings of [`HttpTargets`].
#[derive(Debug, Clone)]
#[must_use]
pub struct Settings {
    refuse_private: bool,
    per_origin: usize,
    connect_timeout: Duration,
}

/// Delivers tasks to their targets over HTTP/1.1, for
/// [`Builder::webhooks`](crate::engine::Builder::webhooks). Clones share all.
///
/// Each request carries the payload as JSON, and the headers `wheelhouse-key` (percent-encoded) and
/// `wheelhouse-attempt`, by which a receiver can tell a repetition. An origin (scheme, host and port)
/// that fails again and again is left alone for a while by its breaker, and a call to one whose calls
/// all hang waits for one of them to end: tasks for it are put off meanwhile, without using up attempts,
/// and those for others go on. 1 024 origins are known at once, those of the last ten minutes.
///
/// ```
/// use wheelhouse_server::delivery::{HttpTargets, Settings};
/// use wheelhouse_server::engine::{Engine, InProcess};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let targets = HttpTargets::new(Settings::new().refuse_private(true))?;
/// let engine = Engine::builder(InProcess::new()).webhooks(targets.clone()).build()?;
/// assert!(targets.breakers().is_empty());
/// # engine.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct HttpTargets {
    shared: Arc<Shared>,
}

/// Targets were not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A setting is out of its range.
    #[error("{argument} is {value}; allowed are {allowed}")]
    #[non_exhaustive]
    Limit {
        /// Its name.
        argument: &'static str,
        /// Its value.
        value: String,
        /// Its range.
        allowed: &'static str,
    },
    /// The breakers were not made.
    #[error(transparent)]
    Breakers(#[from] wheelhouse_resilience::BuildError),
    /// A cache was not made.
    #[error(transparent)]
    Cache(#[from] wheelhouse_cache::BuildError),
    /// TLS was not set up.
    #[error("TLS is not to be had: {0}")]
    Tls(#[from] rustls::Error),
}

type HttpClient = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

struct Shared {
    client: HttpClient,
    hosts: Hosts,
    refuse_private: bool,
}

impl Settings {
    /// Any address, 64 calls to one origin at once, 5 s to connect.
    pub fn new() -> Self {
        Settings {
            refuse_private: false,
            per_origin: 64,
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// Refuses targets whose addresses are not public: loopback, link-local, private, shared, multicast
    /// and others that are set aside, also where they are within an IPv6 address. Every address that a
    /// name resolves to is looked at, and only public ones are connected to.
    pub fn refuse_private(mut self, refuse: bool) -> Self {
        self.refuse_private = refuse;
        self
    }

    /// Calls to one origin that may be under way at once, 1 to 65 536.
    pub fn calls_per_origin(mut self, calls: usize) -> Self {
        self.per_origin = calls;
        self
    }

    /// How long a connection may take to be made, 1 ms to 1 h.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings::new()
    }
}

impl HttpTargets {
    /// Makes the client. Reads the certificates of the system's authorities; where there are none, every
    /// `https` target fails.
    ///
    /// # Errors
    /// [`BuildError`] when a setting is out of range, or TLS is not to be had.
    pub fn new(settings: Settings) -> Result<Self, BuildError> {
        let limit = |argument, value, allowed| BuildError::Limit {
            argument,
            value,
            allowed,
        };
        if !(1..=65_536).contains(&settings.per_origin) {
            let value = settings.per_origin.to_string();
            return Err(limit("calls_per_origin", value, "1 to 65536"));
        }
        let range = Duration::from_millis(1)..=Duration::from_secs(3_600);
        if !range.contains(&settings.connect_timeout) {
            let value = format!("{:?}", settings.connect_timeout);
            return Err(limit("connect_timeout", value, "1ms to 1h"));
        }
        let mut connector =
            HttpConnector::new_with_resolver(Resolver::new(settings.refuse_private)?);
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(settings.connect_timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        Ok(HttpTargets {
            shared: Arc::new(Shared {
                client,
                hosts: Hosts::new(settings.per_origin)?,
                refuse_private: settings.refuse_private,
            }),
        })
    }

    /// The breakers by origin, in no order.
    #[must_use]
    pub fn breakers(&self) -> Vec<(Arc<str>, BreakerStats)> {
        self.shared.hosts.breakers()
    }
}

impl Webhooks for HttpTargets {
    fn admit(&self, target: &HttpTarget) -> Result<Box<dyn Admission>, Hold> {
        let leave = self.shared.hosts.admit(target.origin())?;
        Ok(Box::new(Call::new(Arc::clone(&self.shared), leave)))
    }
}

impl fmt::Debug for HttpTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTargets")
            .field("refuse_private", &self.shared.refuse_private)
            .finish_non_exhaustive()
    }
}

fn tls() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // Single certificates that are no good are left out, as other programs do.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
