//! Topics that are Redis Streams.

use std::fmt;

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, RedisResult, cmd};
use tokio::sync::Mutex;

use crate::engine::{Message, PublishError, Publishing, Topics};

/// Publishes to Redis: a topic is the stream of that name, a message an entry with the fields `key`,
/// `attempt` and `payload`.
///
/// It connects with its first message, and again after the connection was lost; all publishers share
/// the one connection. A message whose answer was lost is published again by the engine, so a reader
/// may find the same key and payload twice.
///
/// ```
/// use wheelhouse_server::mq::RedisTopics;
///
/// let topics = RedisTopics::new("redis://127.0.0.1:6379")?.max_len(1_000_000);
/// assert!(RedisTopics::new("https://127.0.0.1").is_err());
/// # Ok::<(), wheelhouse_server::mq::AddressError>(())
/// ```
#[must_use]
pub struct RedisTopics {
    client: Client,
    max_len: Option<usize>,
    link: Mutex<Link>,
}

/// An address that is none of a Redis server. It may hold a password, so it is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an address of a Redis server: {0}; give one as redis://host:port")]
pub struct AddressError(String);

/// The connection, and how many there were before it.
struct Link {
    connection: Option<MultiplexedConnection>,
    generation: u64,
}

impl RedisTopics {
    /// Topics on the server at `url`: `redis://[user:password@]host:port[/database]`, or
    /// `redis+unix:///path` for a socket. Does not connect yet.
    ///
    /// # Errors
    /// When `url` is no such address.
    pub fn new(url: &str) -> Result<Self, AddressError> {
        let client = Client::open(url).map_err(|error| AddressError(error.to_string()))?;
        Ok(RedisTopics {
            client,
            max_len: None,
            link: Mutex::new(Link {
                connection: None,
                generation: 0,
            }),
        })
    }

    /// Keeps each stream at about `entries`, never fewer: Redis drops the oldest beyond, also those
    /// that nobody has read. Without it nothing is dropped, and the readers trim their streams.
    pub fn max_len(mut self, entries: usize) -> Self {
        self.max_len = Some(entries);
        self
    }

    /// Appends an entry to the stream `topic`, done when Redis has it.
    ///
    /// # Errors
    /// When Redis is not reached, does not answer in time, or refuses. Redis may have the entry
    /// nevertheless when the answer alone was lost.
    pub async fn append(
        &self,
        topic: &str,
        key: &str,
        attempt: u32,
        payload: &str,
    ) -> Result<(), PublishError> {
        let mut command = cmd("XADD");
        command.arg(topic);
        if let Some(entries) = self.max_len {
            command.arg("MAXLEN").arg("~").arg(entries);
        }
        command.arg("*").arg("key").arg(key);
        command.arg("attempt").arg(attempt);
        command.arg("payload").arg(payload);

        let (mut connection, generation) = self.connection().await.map_err(failed)?;
        let added: RedisResult<String> = command.query_async(&mut connection).await;
        match added {
            Ok(_id) => Ok(()),
            Err(error) => {
                if error.is_unrecoverable_error() {
                    self.give_up(generation).await;
                }
                Err(failed(error))
            }
        }
    }

    /// The connection that all share; made if there is none, by one for all who wait.
    async fn connection(&self) -> RedisResult<(MultiplexedConnection, u64)> {
        let mut link = self.link.lock().await;
        let connection = match &link.connection {
            Some(connection) => connection.clone(),
            None => {
                let made = self.client.get_multiplexed_async_connection().await?;
                link.connection = Some(made.clone());
                made
            }
        };
        Ok((connection, link.generation))
    }

    /// Lets go of a broken connection, once: others that failed on it leave the one that came after.
    async fn give_up(&self, generation: u64) {
        let mut link = self.link.lock().await;
        if link.generation == generation {
            link.connection = None;
            link.generation += 1;
        }
    }
}

impl Topics for RedisTopics {
    fn publish(&self, message: Message) -> Publishing<'_> {
        Box::pin(async move {
            let payload = message.payload.get();
            self.append(&message.topic, &message.key, message.attempt, payload)
                .await
        })
    }
}

impl fmt::Debug for RedisTopics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's address may hold a password.
        f.debug_struct("RedisTopics")
            .field("max_len", &self.max_len)
            .finish_non_exhaustive()
    }
}

fn failed(error: RedisError) -> PublishError {
    PublishError(format!("redis did not take the message: {error}"))
}
