//! The table of all settings: the one place that knows a name, a default and a range.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::value::{address, broker, duration, token, truth, whole};
use super::{Config, PREFIX, Secret};

/// A day, the longest of the durations here.
const DAY: Duration = Duration::from_secs(86_400);

/// Something that can be set.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Setting {
    /// Its name in a file and for `--set`: `http.address`.
    pub key: &'static str,
    /// What it is without being set, as it would be written; empty for nothing.
    pub default: &'static str,
    /// What it does, with its range.
    pub help: &'static str,
    pub(super) set: fn(&mut Config, &str) -> Result<(), String>,
}

/// Every setting, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "log",
        default: "",
        help: "what is written to standard error: off, error, warn, info, debug, trace, or filters as target=level,…; without it RUST_LOG, then info",
        set: |config, text| {
            config.log = Some(filters(text)?);
            Ok(())
        },
    },
    Setting {
        key: "token",
        default: "",
        help: "what clients have to send as `authorization: Bearer …` on every port, 16 to 512 visible ASCII characters; in the environment alone",
        set: |config, text| {
            config.token = Some(Secret::from(token(text)?));
            Ok(())
        },
    },
    Setting {
        key: "token_file",
        default: "",
        help: "a file whose only line is the token",
        set: |config, text| {
            config.token = Some(Secret::from(token_in(Path::new(text))?));
            Ok(())
        },
    },
    Setting {
        key: "state",
        default: "",
        help: "a file that pending tasks are written to at the stop and read from at the start",
        set: |config, text| {
            let path = (!text.is_empty()).then(|| PathBuf::from(text));
            config.state = Some(path.ok_or("a path")?);
            Ok(())
        },
    },
    Setting {
        key: "http.address",
        default: "127.0.0.1:8080",
        help: "where the HTTP API listens; port 0 is any that is free",
        set: |config, text| {
            config.http.address = address(text)?;
            Ok(())
        },
    },
    Setting {
        key: "grpc.address",
        default: "127.0.0.1:8081",
        help: "where the gRPC service listens",
        set: |config, text| {
            config.grpc.address = address(text)?;
            Ok(())
        },
    },
    Setting {
        key: "admin.address",
        default: "127.0.0.1:8082",
        help: "where health, metrics and states are served",
        set: |config, text| {
            config.admin.address = address(text)?;
            Ok(())
        },
    },
    Setting {
        key: "mq.url",
        default: "memory",
        help: "topics and commands: memory, or redis://[user:password@]host:port[/database]",
        set: |config, text| {
            config.mq.url = broker(text)?.map(Secret::from);
            Ok(())
        },
    },
    Setting {
        key: "mq.max_len",
        default: "",
        help: "about how many entries the stream of a topic keeps in Redis, 1..=1000000000; without it all",
        set: |config, text| {
            config.mq.max_len = Some(whole(text, 1, 1_000_000_000)?);
            Ok(())
        },
    },
    Setting {
        key: "tasks.max",
        default: "16777216",
        help: "tasks that may be pending, 1..=16777216",
        set: |config, text| {
            config.tasks.max = whole(text, 1, 16_777_216)?;
            Ok(())
        },
    },
    Setting {
        key: "tasks.max_dead",
        default: "10000",
        help: "dead letters that are held, 0..=1000000; the oldest make room",
        set: |config, text| {
            config.tasks.max_dead = whole(text, 0, 1_000_000)?;
            Ok(())
        },
    },
    Setting {
        key: "delivery.max_under_way",
        default: "1024",
        help: "attempts that may be under way at once, 1..=1048576",
        set: |config, text| {
            config.delivery.max_under_way = whole(text, 1, 1 << 20)?;
            Ok(())
        },
    },
    Setting {
        key: "delivery.timeout",
        default: "10s",
        help: "how long an attempt may take, 1ms..=1h",
        set: |config, text| {
            let longest = Duration::from_secs(3_600);
            config.delivery.timeout = duration(text, Duration::from_millis(1), longest)?;
            Ok(())
        },
    },
    Setting {
        key: "delivery.refuse_private",
        default: "false",
        help: "whether HTTP targets on loopback, private and other special addresses are refused, after their names are resolved",
        set: |config, text| {
            config.delivery.refuse_private = truth(text)?;
            Ok(())
        },
    },
    Setting {
        key: "stop.drain",
        default: "0s",
        help: "how long everything goes on serving after SIGTERM while /readyz says 503, 0s..=1day, less than stop.total",
        set: |config, text| {
            config.stop.drain = duration(text, Duration::ZERO, DAY)?;
            Ok(())
        },
    },
    Setting {
        key: "stop.total",
        default: "25s",
        help: "from SIGTERM to the end of the process, 100ms..=1day",
        set: |config, text| {
            config.stop.total = duration(text, Duration::from_millis(100), DAY)?;
            Ok(())
        },
    },
];

impl Setting {
    /// Its name in the environment: `WHEELHOUSE_HTTP_ADDRESS`.
    #[must_use]
    pub fn variable(&self) -> String {
        let mut name = PREFIX.to_owned();
        name.extend(self.key.chars().map(|c| match c {
            '.' => '_',
            c => c.to_ascii_uppercase(),
        }));
        name
    }

    /// Whether its value is never shown: it is, or may hold, a password.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.key, "token" | "token_file" | "mq.url")
    }

    /// Whether files, which go into repositories, and flags, which everybody sees, may not have it.
    pub(super) fn is_for_environment_alone(&self) -> bool {
        self.key == "token"
    }
}

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

fn filters(text: &str) -> Result<String, String> {
    match text.parse::<tracing_subscriber::filter::Targets>() {
        Ok(_) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err("off, error, warn, info, debug, trace, or target=level,…".to_owned()),
    }
}

fn token_in(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("a file that can be read: {} ({error})", path.display()))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    token(line).map_err(|allowed| format!("a file with one line of {allowed}: {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_the_table_says() {
        for setting in SETTINGS
            .iter()
            .filter(|setting| !setting.default.is_empty())
        {
            let mut config = Config::default();
            (setting.set)(&mut config, setting.default).unwrap();
            assert_eq!(config, Config::default(), "{}", setting.key);
        }
    }

    #[test]
    fn names_are_unique_in_the_environment_and_none_looks_like_kubernetes() {
        let mut names: Vec<_> = SETTINGS.iter().map(Setting::variable).collect();
        for name in &names {
            let rest = name.strip_prefix(PREFIX).unwrap();
            assert!(!super::super::is_foreign(name, rest), "{name}");
            assert_ne!(name, "WHEELHOUSE_CONFIG");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), SETTINGS.len());
    }
}
