//! Where due tasks are published: a trait, and topics within the process.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::task::Key;

/// Messages that a subscription holds before its publishers wait.
const QUEUE: usize = 65_536;

/// A task on its way to a topic.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Message {
    /// The topic.
    pub topic: Arc<str>,
    /// The task's key.
    pub key: Key,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// What the task carries.
    pub payload: Arc<RawValue>,
}

/// A message was not published; the engine tries again by the task's policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PublishError(
    /// Why, in a sentence.
    pub String,
);

/// What [`Topics::publish`] returns.
pub type Publishing<'a> = Pin<Box<dyn Future<Output = Result<(), PublishError>> + Send + 'a>>;

/// A broker of messages.
pub trait Topics: Send + Sync + 'static {
    /// Publishes a message; done when the broker has it. The engine drops the future of an attempt
    /// that takes too long.
    fn publish(&self, message: Message) -> Publishing<'_>;
}

/// Topics within this process: publish and subscribe. Clones are the same topics.
///
/// Every subscription of a topic gets each of its messages, published after it was made. A message
/// that nobody subscribes to counts as published. A subscription that does not read makes its
/// publishers wait when it holds 65 536 messages.
#[derive(Clone, Default)]
pub struct InProcess {
    topics: Arc<Mutex<Subscribers>>,
}

/// By topic.
type Subscribers = HashMap<Arc<str>, Vec<mpsc::Sender<Message>>>;

/// The messages of one topic, from [`InProcess::subscribe`].
#[derive(Debug)]
#[must_use]
pub struct Subscription {
    messages: mpsc::Receiver<Message>,
}

impl InProcess {
    /// Topics without a subscription.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens to a topic until the subscription is dropped.
    pub fn subscribe(&self, topic: &str) -> Subscription {
        let (sender, messages) = mpsc::channel(QUEUE);
        let mut topics = self.topics.lock();
        // Topics that nobody listens to any more are let go of here, so the map stays bounded.
        topics.retain(|_, senders| senders.iter().any(|sender| !sender.is_closed()));
        topics.entry(topic.into()).or_default().push(sender);
        Subscription { messages }
    }
}

impl Topics for InProcess {
    fn publish(&self, message: Message) -> Publishing<'_> {
        Box::pin(async move {
            let senders = {
                let mut topics = self.topics.lock();
                let Some(senders) = topics.get_mut(&message.topic) else {
                    return Ok(());
                };
                senders.retain(|sender| !sender.is_closed());
                senders.clone()
            };
            for sender in senders {
                // A subscription that ends meanwhile has no claim to the message.
                let _ = sender.send(message.clone()).await;
            }
            Ok(())
        })
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics = self.topics.lock().len();
        f.debug_struct("InProcess")
            .field("topics", &topics)
            .finish()
    }
}

impl Subscription {
    /// The next message; `None` when the topics themselves are gone and all was read.
    pub async fn receive(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// A message that is there already.
    pub fn try_receive(&mut self) -> Option<Message> {
        self.messages.try_recv().ok()
    }
}
