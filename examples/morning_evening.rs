//! Two HTTP services in one process, that come up in order and go in reverse.
//!
//! ```console
//! cargo run --release --example morning_evening
//! ```
//!
//! `curl 127.0.0.1:8080` is greeted in the morning, `curl 127.0.0.1:8081` in the evening. On Ctrl-C or
//! SIGTERM the evening ends before the morning; each takes up to 200 ms to tidy up. With
//! `--stuck evening` one never does, and the process is gone all the same when the total is used up:
//! with exit code 75, and the name of who was left behind.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use wheelhouse::servicegroup::http::HttpServer;
use wheelhouse::servicegroup::{Preset, Service, ServiceContext, ServiceGroup};

const USAGE: &str = "usage: morning_evening [--morning-addr ADDRESS] [--evening-addr ADDRESS] \
                     [--total DURATION] [--stuck NAME]";

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(code) => std::process::exit(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Runs until both have ended; the exit code of the group.
fn run() -> Result<i32, Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    let mut group = ServiceGroup::builder()
        .preset(Preset::Systemd)
        .total(options.total)
        .build()?;
    let stuck = |name| options.stuck.as_deref() == Some(name);
    let morning = greeter("good morning\n", options.morning, stuck("morning"));
    let evening = greeter("good evening\n", options.evening, stuck("evening"));
    group.add("morning", morning)?.add("evening", evening)?;
    Ok(group.run_blocking().exit_code())
}

/// A service that greets, and takes a while to end.
fn greeter(greeting: &'static str, address: String, stuck: bool) -> impl Service {
    async move |ctx: ServiceContext| {
        let router = Router::new().route("/", get(async move || greeting));
        HttpServer::bind(address, router).run(ctx).await?;
        if stuck {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..=200))).await;
        Ok(())
    }
}

struct Options {
    morning: String,
    evening: String,
    total: Duration,
    stuck: Option<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Options {
            morning: "127.0.0.1:8080".into(),
            evening: "127.0.0.1:8081".into(),
            total: Duration::from_millis(5500),
            stuck: None,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match name.as_str() {
                "--morning-addr" => options.morning = value,
                "--evening-addr" => options.evening = value,
                "--total" => {
                    options.total = humantime::parse_duration(&value)
                        .map_err(|error| format!("--total {value}: {error}"))?;
                }
                "--stuck" if ["morning", "evening"].contains(&&*value) => {
                    options.stuck = Some(value);
                }
                "--stuck" => return Err(format!("--stuck {value}: morning or evening").into()),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}
