//! Delayed tasks: each is kept under a key, and delivered to a topic when it is due.
//!
//! Unlike a job queue on a database, everything is in memory and on one timing wheel: a pending task
//! is one record and one timer. This is the engine alone; servers for HTTP, gRPC and message queues
//! are to be put in front of it.
//!
//! ```
//! use wheelhouse_server::engine::{Engine, InProcess};
//! use wheelhouse_server::task::{Key, Task};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let topics = InProcess::new();
//! let mut reminders = topics.subscribe("reminders");
//! let engine = Engine::builder(topics).build()?;
//!
//! let task = Task::from_json(br#"{"delay":"10ms","target":{"topic":"reminders"},"payload":"tea"}"#)?;
//! engine.put(Key::new("kitchen")?, task)?;
//!
//! let message = reminders.receive().await.ok_or("closed")?;
//! assert_eq!((&*message.key, message.payload.get()), ("kitchen", "\"tea\""));
//! engine.stop().await;
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - S1, never early: a task is delivered at its time or after it.
//! - S2, at least once: a task that was taken in is delivered, or cancelled, or replaced, or among the
//!   dead letters, or still pending when the engine stops. The key and the number of the attempt go
//!   with each delivery, so that a receiver can tell a repetition.
//! - S3, who won is in the return value: a cancel that says it cancelled has kept the task from any
//!   attempt that had not begun.
//! - S4, bounded: tasks, dead letters, events and messages on their way each have a limit.
#![warn(missing_docs)]

#[cfg(feature = "serve")]
pub mod config;
#[cfg(feature = "http")]
pub mod delivery;
pub mod engine;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "redis")]
pub mod mq;
pub mod task;
