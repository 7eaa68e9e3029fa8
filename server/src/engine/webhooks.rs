//! Who asks targets over HTTP: a trait in two steps, so that waiting for a target is no attempt.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

use super::topics::PublishError;
use crate::task::{HttpTarget, Key};

/// A task on its way to a target.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// Where it goes.
    pub target: Arc<HttpTarget>,
    /// The task's key.
    pub key: Key,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What the task carries.
    pub payload: Arc<RawValue>,
}

/// A target is not to be asked now. No attempt is used up; the engine asks again after the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// How long.
    pub wait: Duration,
}

/// A task was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The attempt failed; the task's policy says whether and when there is another.
    #[error("{reason}")]
    #[non_exhaustive]
    Failed {
        /// Why, in a sentence.
        reason: String,
        /// How long the target wants to be left alone. No longer than the policy's longest wait.
        retry_after: Option<Duration>,
    },
    /// The target will never take it: it is given up at once.
    #[error("{0}")]
    Refused(
        /// Why, in a sentence.
        String,
    ),
}

/// What [`Admission::send`] returns.
pub type Sending = Pin<Box<dyn Future<Output = Result<(), SendError>> + Send>>;

/// Delivers to targets over HTTP.
pub trait Webhooks: Send + Sync + 'static {
    /// Asks for leave to call a target, without waiting.
    ///
    /// # Errors
    /// [`Hold`] when the target is not to be called now.
    fn admit(&self, target: &HttpTarget) -> Result<Box<dyn Admission>, Hold>;
}

/// The leave to call a target once. Dropped, it is given back.
pub trait Admission: Send {
    /// Calls the target. The engine drops the future of an attempt that takes too long.
    fn send(self: Box<Self>, delivery: Delivery) -> Sending;
}

impl SendError {
    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        SendError::Failed {
            reason: reason.into(),
            retry_after: None,
        }
    }
}

impl From<PublishError> for SendError {
    fn from(error: PublishError) -> Self {
        SendError::failed(error.0)
    }
}
