//! The configuration of a server: a file, the environment, then the command line.
//!
//! | source | how a setting is written |
//! |---|---|
//! | defaults | [`SETTINGS`] |
//! | a file in YAML | `http:` and below it `address: 127.0.0.1:8080` |
//! | the environment | `WHEELHOUSE_HTTP_ADDRESS=127.0.0.1:8080`; the file itself as `WHEELHOUSE_CONFIG` |
//! | the command line | `--set http.address=127.0.0.1:8080`, and for some a flag |
//!
//! What comes later counts more. What none of them knows is refused, so that a mistyped name is no
//! silent default. Two kinds of variables that begin with `WHEELHOUSE_` are left alone: those that
//! Kubernetes sets in each pod for a Service whose name begins so (`…SERVICE_HOST`, `…PORT` and the
//! like), and the three of this project's tests ([`OF_TESTS`]).

mod error;
mod file;
mod settings;
mod value;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::ConfigError;
pub use settings::{SETTINGS, Setting};

/// What names in the environment begin with.
const PREFIX: &str = "WHEELHOUSE_";

/// Variables that begin as ours do and are of this project's tests.
pub const OF_TESTS: [&str; 3] = [
    "WHEELHOUSE_LONG",
    "WHEELHOUSE_REQUIRE",
    "WHEELHOUSE_STRESS_SECONDS",
];

/// How a server is to run. [`SETTINGS`] tells the ranges and defaults.
///
/// ```
/// use wheelhouse_server::config::{Config, Flag};
///
/// let environment = [("WHEELHOUSE_TASKS_MAX".into(), "1000".into())];
/// let config = Config::load(None, environment, [Flag::new("--http", "http.address", "[::1]:80")])?;
/// assert_eq!(config.tasks.max, 1000);
/// assert_eq!(config.http.address.to_string(), "[::1]:80");
///
/// let refused = Config::load(None, [("WHEELHOUSE_TASKS_MAX".into(), "many".into())], []);
/// assert_eq!(
///     refused.unwrap_err().to_string(),
///     r#"WHEELHOUSE_TASKS_MAX: "many" is not a whole number in 1..=16777216"#,
/// );
/// # Ok::<(), wheelhouse_server::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// What is written to standard error, as filters of `tracing`; `None`: `info`.
    pub log: Option<String>,
    /// What clients have to show on each port; `None`: nothing.
    pub token: Option<Secret>,
    /// Where pending tasks are written at the stop and read at the start.
    pub state: Option<PathBuf>,
    /// The HTTP API.
    pub http: Http,
    /// The gRPC service.
    pub grpc: Grpc,
    /// Health, figures, states.
    pub admin: Admin,
    /// Topics and commands.
    pub mq: Mq,
    /// What is kept.
    pub tasks: Tasks,
    /// How it is delivered.
    pub delivery: Delivery,
    /// How long the end may take.
    pub stop: Stop,
}

/// The HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Http {
    /// Where it listens.
    pub address: SocketAddr,
}

/// The gRPC service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grpc {
    /// Where it listens.
    pub address: SocketAddr,
}

/// Health, figures, states.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admin {
    /// Where it listens.
    pub address: SocketAddr,
}

/// Topics and commands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mq {
    /// The Redis server; `None`: topics are in the process.
    pub url: Option<Secret>,
    /// About how many entries the stream of a topic keeps; `None`: all.
    pub max_len: Option<usize>,
}

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tasks {
    /// Tasks that may be pending.
    pub max: usize,
    /// Dead letters that are held.
    pub max_dead: usize,
}

/// How tasks are delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// Attempts that may be under way at once.
    pub max_under_way: usize,
    /// How long an attempt may take.
    pub timeout: Duration,
    /// Whether HTTP targets within private networks are refused.
    pub refuse_private: bool,
}

/// How long the end may take.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stop {
    /// How long everything goes on after the signal, not ready any more.
    pub drain: Duration,
    /// From the signal to the end of the process.
    pub total: Duration,
}

/// A value that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// A setting from the command line.
#[derive(Clone)]
pub struct Flag {
    place: String,
    key: String,
    value: String,
}

impl Config {
    /// Puts together the defaults, the file, the environment and the flags, in this order. The
    /// environment may name the file as `WHEELHOUSE_CONFIG`.
    ///
    /// # Errors
    /// [`ConfigError`] with the place, the value and what is allowed.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: impl IntoIterator<Item = Flag>,
    ) -> Result<Self, ConfigError> {
        let mut config = Config::default();
        let (mut ours, mut named) = (Vec::new(), None);
        for (name, value) in environment {
            let Some(rest) = name.strip_prefix(PREFIX) else {
                continue;
            };
            if rest == "CONFIG" {
                named = Some(PathBuf::from(value));
            } else if !is_foreign(&name, rest) {
                ours.push((name, value));
            }
        }
        if let Some(path) = file.or(named.as_deref()) {
            for (key, value) in file::read(path)? {
                let place = format!("{}: {key}", path.display());
                let setting = settings::find(&key).ok_or_else(|| ConfigError::unknown(&place))?;
                if setting.is_for_environment_alone() {
                    return Err(ConfigError::misplaced(&place, setting));
                }
                config.set(setting, &place, &value)?;
            }
        }
        for (name, value) in ours {
            let setting = SETTINGS.iter().find(|it| it.variable() == name);
            let setting = setting.ok_or_else(|| ConfigError::unknown(&name))?;
            config.set(setting, &name, &value)?;
        }
        for Flag { place, key, value } in flags {
            let setting = settings::find(&key).ok_or_else(|| ConfigError::unknown(&place))?;
            // Everybody on the machine can read a command line.
            if setting.is_for_environment_alone() {
                return Err(ConfigError::misplaced(&place, setting));
            }
            config.set(setting, &place, &value)?;
        }
        if config.stop.drain >= config.stop.total {
            let drain = humantime::format_duration(config.stop.drain);
            let total = humantime::format_duration(config.stop.total);
            return Err(ConfigError::Value {
                place: "stop.drain".to_owned(),
                value: format!("\"{drain}\""),
                allowed: format!("less than stop.total, which is {total}"),
            });
        }
        Ok(config)
    }

    fn set(&mut self, setting: &Setting, place: &str, value: &str) -> Result<(), ConfigError> {
        (setting.set)(self, value).map_err(|allowed| ConfigError::Value {
            place: place.to_owned(),
            value: match setting.is_secret() {
                true => "the value".to_owned(),
                false => error::shown(value),
            },
            allowed,
        })
    }
}

impl Default for Config {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Config {
            log: None,
            token: None,
            state: None,
            http: Http {
                address: loopback(8080),
            },
            grpc: Grpc {
                address: loopback(8081),
            },
            admin: Admin {
                address: loopback(8082),
            },
            mq: Mq {
                url: None,
                max_len: None,
            },
            tasks: Tasks {
                max: 16_777_216,
                max_dead: 10_000,
            },
            delivery: Delivery {
                max_under_way: 1_024,
                timeout: Duration::from_secs(10),
                refuse_private: false,
            },
            stop: Stop {
                drain: Duration::ZERO,
                total: Duration::from_secs(25),
            },
        }
    }
}

impl Secret {
    /// What is not to be seen.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Secret(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Flag {
    /// The setting `key`, written as `place`: `--http`, say.
    #[must_use]
    pub fn new(place: &str, key: &str, value: &str) -> Self {
        Flag {
            place: place.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }
}

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be an address with a password.
        f.debug_struct("Flag")
            .field("place", &self.place)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Whether a variable is nobody's setting: one of the tests, or one of those that Kubernetes sets for
/// a Service of the name `wheelhouse` or `wheelhouse-…`.
fn is_foreign(name: &str, rest: &str) -> bool {
    let of_service = |part: &str| {
        part == "SERVICE_HOST"
            || part == "PORT"
            || part.starts_with("SERVICE_PORT")
            || part.starts_with("PORT_")
    };
    // Every place where a name may end and Kubernetes' own part begins.
    let starts = std::iter::once(0).chain(rest.match_indices('_').map(|(at, _)| at + 1));
    OF_TESTS.contains(&name) || starts.into_iter().any(|at| of_service(&rest[at..]))
}
