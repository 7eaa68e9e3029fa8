//! The services of one process: started in order, stopped in reverse, within one budget of time.
//!
//! A process hosts an HTTP API, an RPC service, message consumers and a database pool. The group
//! starts them level by level, hears SIGTERM, lets load balancers look elsewhere, stops the levels in
//! reverse and says how it went. Unlike a `JoinSet` and a `CancellationToken`, it knows an order, when
//! each part must be done, and what to do with one that is not.
//!
//! ```
//! use wheelhouse_servicegroup::{Member, Preset, ServiceContext, ServiceGroup};
//!
//! # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
//! let db = async |ctx: ServiceContext| { ctx.ready(); ctx.stopping().await; Ok(()) };
//! let rpc = async |ctx: ServiceContext| { ctx.ready(); ctx.stopping().await; Ok(()) };
//! let mq = async |ctx: ServiceContext| { ctx.ready(); ctx.stopping().await; Ok(()) };
//! let api = async |ctx: ServiceContext| { ctx.ready(); ctx.stopping().await; Ok(()) };
//!
//! let mut group = ServiceGroup::builder().preset(Preset::Kubernetes).build()?;
//! group.add("db", db)?; // each add is a level of its own
//! group.add_level([Member::new("rpc", rpc), Member::new("mq", mq)])?; // side by side
//! group.add("api", api)?;
//! # let handle = group.handle();
//! # handle.stop();
//! let report = group.run_blocking();
//! # if false {
//! std::process::exit(report.exit_code());
//! # }
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - G1, order: a level starts when each service of the level before has said that it is ready, or has
//!   ended. It is told to stop when each service of the level after has really ended (its future is
//!   gone) or has used up its time.
//! - G2, phases: on a stop readiness is false at once; then come drain, wrap-up hooks, levels, after-stop
//!   hooks, in that order. Each ends as soon as nothing is left to wait for; the drain takes its full
//!   length unless every service has ended.
//! - G3, one budget: everything is done, or left behind and named, by the total after the stop request.
//!   Level k has until `total - after-stop - Σ reserves of the levels below`: a service that overruns
//!   takes nobody else's time. A plan that does not fit is refused when it is put together.
//! - G4, the process: with `exit_at_deadline` it ends at the total, by a thread that neither a blocked
//!   runtime nor a stuck destructor nor a full pipe at standard error holds up. A second SIGTERM or
//!   SIGINT ends it in the signal's handler. After the end of the group signals act by default.
//! - G5, one stop: any number of handles, signals and failing services ask; the first is the reason.
//!   Each service is told once. Everybody who waits for the end gets the same report.
//! - G6, roll-back: when a start fails, only what was started is stopped, in reverse.
//! - G7, truth: each service that fails, panics, does not start in time or is left behind is in the
//!   report with its cause, and no exit code is 0 unless all have exited in time without failure, or
//!   with failures that their policy ignores.
//! - G8, containment: panics of services and hooks are caught. Dropping the run, or its runtime, drops
//!   the services and panics nowhere.
//!
//! | exit code | when |
//! |---|---|
//! | 0 | asked to stop, or all ended, and all exited in time; or stopped before the start |
//! | 1 | a service or a hook failed, panicked or could not start |
//! | 75 | something was left behind, or the deadline was missed |
//! | 128 + n | a second signal n |
//!
//! On standard error there is a line `service=<name> state=<state>` for each change, and
//! `report exit_code= outcome= reason= failed= abandoned= total_ms=` at the end, where `total_ms` is
//! the time from the stop request on.
//!
//! | feature | what it adds |
//! |---|---|
//! | `axum` | `http::HttpServer`: HTTP/1, HTTP/2, WebSockets, server-sent events |
//! | `tonic` | gRPC on the same connections |
//! | `admin` | `Admin`: `/healthz`, `/readyz`, `/metrics`, `/services` |
//! | `systemd` | messages to systemd, `inherited_listener` for its sockets |
//! | `redis` | `consume::RedisStream`; the queue of [`consume`] is always there |
//! | `tracing` | spans `phase` and `service` around all that runs in them, `connection` around each connection; an event for each change of state, at level warn where it is a failure, and for the end |
//! | `metrics` | figures through the `metrics` facade |
//!
//! | metric | kind | labels | what |
//! |---|---|---|---|
//! | `wheelhouse_service_transitions_total` | counter | `service`, `state` | changes to a state; those to `restarting` are the restarts |
//! | `wheelhouse_service_ready_seconds` | histogram | `service` | from its first start until it was ready |
//! | `wheelhouse_service_stop_seconds` | histogram | `service` | from being told to end until its end |
//! | `wheelhouse_service_cut_total` | counter | `service` | connections and messages cut at the deadline |
//! | `wheelhouse_consumer_messages_total` | counter | `service`, `outcome` | messages `acknowledged` and `given_back` |
//! | `wheelhouse_group_stops_total` | counter | `outcome` | ends of groups that are not nested |
//! | `wheelhouse_group_stop_seconds` | histogram | | from the stop request to the end |
//!
//! # Trade-offs
//!
//! With `n` levels that share alike, the first level to stop has a share for itself and whatever the
//! phases before did not use: thousands of levels have milliseconds each. Put what does not depend on
//! each other on one level. A future can be dropped only at an `.await`; what blocks its thread is
//! left behind with the thread. A service that is left behind is not waited for by those it uses.
//!
//! # How it works
//!
//! One future, the driver, starts and stops; each service is a task under a supervisor that contains
//! its panics and restarts it. Each end is a cell of its own that is set once, so there is no count
//! that could be wrong. Signals come from a thread, and another keeps the deadline.
//!
//! ```text
//!  signal thread ─┐
//!  handles ───────┼─► asked ──► driver ──► token of a level ──► supervisors ──► services
//!  failures ──────┘     │          ▲                               │
//!                       └► watchdog└──────── done, one each ◄──────┘
//! ```
#![warn(missing_docs)]

#[cfg(feature = "admin")]
mod admin;
mod board;
mod builder;
mod completion;
pub mod consume;
mod context;
mod error;
mod group;
mod handle;
mod hooks;
#[cfg(feature = "axum")]
pub mod http;
mod inside;
mod meters;
mod pairs;
mod plan;
mod policy;
mod report;
mod run;
mod service;
mod shared;
mod signals;
mod sync;
#[cfg(all(feature = "systemd", target_os = "linux"))]
mod systemd;
mod trace;
mod watchdog;

#[cfg(feature = "admin")]
pub use admin::Admin;
pub use board::State;
pub use builder::{GroupBuilder, Preset};
pub use context::{BusyGuard, ServiceContext};
pub use error::{BuildError, Error, GroupFailed, InsideService};
pub use group::ServiceGroup;
pub use handle::GroupHandle;
pub use pairs::{Blocking, Starter, Stopper, start_stop};
pub use policy::{Policy, Restart};
pub use report::{Exit, HookReport, Outcome, Reason, Report, ServiceReport};
pub use service::{Level, Member, Service};
#[cfg(unix)]
pub use signals::OsSignals;
pub use signals::{CtrlC, Listening, SignalSink, SignalSource};
#[cfg(all(feature = "systemd", target_os = "linux"))]
pub use systemd::inherited_listener;
