//! Redis Streams: one reader of a consumer group.
//!
//! What is pulled is pending in Redis until it is acknowledged there, so a process that is killed
//! loses nothing: other readers of the group claim what has been pending for too long.
//!
//! - I1: what Redis has been asked is kept in `asking` until its answer is taken, so that a pull that
//!   is dropped loses no entry; the close waits for it.
//! - I2: an entry in hand is handed out once, also when a claim brings it again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::streams::{StreamAutoClaimReply, StreamId, StreamReadReply};
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, RedisResult, cmd};
use tokio::time::{Instant, timeout};

use super::{Consumer, Pulled};
use crate::Error;

/// How long Redis holds an answer back when there is nothing, and how long an answer is waited for at
/// the close.
const POLL: Duration = Duration::from_secs(1);

/// An entry of a stream.
#[derive(Debug, Clone)]
pub struct RedisMessage {
    id: String,
    fields: HashMap<String, Vec<u8>>,
}

impl RedisMessage {
    /// The entry's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The bytes of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.get(name).map(Vec::as_slice)
    }
}

/// A reader of a Redis Stream. See [`RedisStream::new`].
pub struct RedisStream {
    client: Client,
    stream: String,
    group: String,
    consumer: String,
    min_idle: Duration,
    link: Option<Link>,
    in_hand: HashSet<String>,
    /// Taken, and more than the pull had room for.
    spare: VecDeque<RedisMessage>,
    claim_at: Instant,
}

/// Connections: one for commands, and one that waits.
struct Link {
    commands: MultiplexedConnection,
    reader: MultiplexedConnection,
    reader_id: i64,
    asking: Option<Asking>,
}

type Asking = Pin<Box<dyn Future<Output = RedisResult<Vec<StreamId>>> + Send>>;

impl RedisStream {
    /// A reader of `stream` for the consumer `group`, which is made, with the stream, if it is not
    /// there; it begins with the stream's first entry. It connects with its first pull, and again
    /// after errors. The consumer's name is made up; give it a lasting one with
    /// [`consumer`](Self::consumer).
    ///
    /// # Errors
    ///
    /// When `url` is no `redis://` address.
    pub fn new(
        url: &str,
        stream: impl Into<String>,
        group: impl Into<String>,
    ) -> Result<Self, Error> {
        Ok(RedisStream {
            client: Client::open(url)?,
            stream: stream.into(),
            group: group.into(),
            consumer: made_up_name(),
            min_idle: Duration::from_secs(60),
            link: None,
            in_hand: HashSet::new(),
            spare: VecDeque::new(),
            claim_at: Instant::now(),
        })
    }

    /// The consumer's name: no two that run at the same time may have the same.
    #[must_use]
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = name.into();
        self
    }

    /// How long an entry may be pending until it is claimed from its consumer: longer than handlers
    /// take. The default is a minute.
    #[must_use]
    pub fn min_idle(mut self, time: Duration) -> Self {
        self.min_idle = time;
        self
    }

    async fn link(&mut self) -> Result<&mut Link, Error> {
        if self.link.is_none() {
            let commands = self.client.get_multiplexed_async_connection().await?;
            let waits = AsyncConnectionConfig::new().set_response_timeout(None);
            let mut reader = self
                .client
                .get_multiplexed_async_connection_with_config(&waits)
                .await?;
            let reader_id = cmd("CLIENT").arg("ID").query_async(&mut reader).await?;
            let made: RedisResult<()> = cmd("XGROUP")
                .arg("CREATE")
                .arg(&self.stream)
                .arg(&self.group)
                .arg("0")
                .arg("MKSTREAM")
                .query_async(&mut commands.clone())
                .await;
            match made {
                Err(error) if error.code() != Some("BUSYGROUP") => return Err(error.into()),
                _ => {}
            }
            self.claim_at = Instant::now();
            self.link = Some(Link {
                commands,
                reader,
                reader_id,
                asking: None,
            });
        }
        match &mut self.link {
            Some(link) => Ok(link),
            None => unreachable!("it has just been made"),
        }
    }

    /// Sends a command about entries; the connection is given up if that fails.
    async fn tell(&mut self, command: &Cmd) -> Result<(), Error> {
        let link = self.link().await?;
        let told: RedisResult<redis::Value> = command.query_async(&mut link.commands).await;
        match told {
            Ok(_) => Ok(()),
            Err(error) => {
                self.link = None;
                Err(error.into())
            }
        }
    }

    /// Asks for entries: those that others have left, when it is time, else new ones.
    fn ask(&mut self, max: usize) {
        let (stream, group, consumer) = (&self.stream, &self.group, &self.consumer);
        let now = Instant::now();
        let claims = now >= self.claim_at;
        let Some(link) = &mut self.link else {
            return;
        };
        let asking: Asking = if claims {
            self.claim_at = now + self.min_idle / 2;
            let mut connection = link.commands.clone();
            let mut command = cmd("XAUTOCLAIM");
            command.arg(stream).arg(group).arg(consumer);
            command.arg(millis(self.min_idle)).arg("0-0");
            command.arg("COUNT").arg(max);
            Box::pin(async move {
                let reply: StreamAutoClaimReply = command.query_async(&mut connection).await?;
                Ok(reply.claimed)
            })
        } else {
            let mut connection = link.reader.clone();
            let mut command = cmd("XREADGROUP");
            command.arg("GROUP").arg(group).arg(consumer);
            command.arg("COUNT").arg(max);
            command.arg("BLOCK").arg(millis(POLL));
            command.arg("STREAMS").arg(stream).arg(">");
            Box::pin(async move {
                // Nil, when nothing has come.
                let reply: Option<StreamReadReply> = command.query_async(&mut connection).await?;
                let keys = reply.map(|it| it.keys).unwrap_or_default();
                Ok(keys.into_iter().flat_map(|it| it.ids).collect())
            })
        };
        link.asking = Some(asking);
    }

    /// Takes in what Redis has answered.
    fn take(&mut self, entries: Vec<StreamId>, max: usize) -> Result<(), RedisError> {
        if entries.len() >= max {
            // There may be more to claim where these come from.
            self.claim_at = self.claim_at.min(Instant::now() + POLL);
        }
        for entry in entries {
            if !self.in_hand.insert(entry.id.clone()) {
                continue;
            }
            let fields = entry
                .map
                .into_iter()
                .map(|(name, value)| Ok((name, redis::from_redis_value(value)?)))
                .collect::<Result<_, RedisError>>()?;
            self.spare.push_back(RedisMessage {
                id: entry.id,
                fields,
            });
        }
        Ok(())
    }

    /// The start of a command about entries of this group.
    fn about(&self, name: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(&self.stream).arg(&self.group);
        command
    }
}

impl Consumer for RedisStream {
    type Id = String;
    type Message = RedisMessage;

    async fn pull(&mut self, max: usize) -> Pulled<String, RedisMessage> {
        while self.spare.is_empty() {
            if self.link().await?.asking.is_none() {
                self.ask(max);
            }
            let Some(asking) = self.link.as_mut().and_then(|link| link.asking.as_mut()) else {
                continue;
            };
            let answer = asking.as_mut().await;
            match answer {
                Ok(entries) => {
                    if let Some(link) = &mut self.link {
                        link.asking = None;
                    }
                    self.take(entries, max)?;
                }
                Err(error) => {
                    self.link = None;
                    return Err(error.into());
                }
            }
        }
        let count = self.spare.len().min(max);
        let pulled = self.spare.drain(..count);
        Ok(pulled.map(|it| (it.id.clone(), it)).collect())
    }

    async fn acknowledge(&mut self, ids: &[String]) -> Result<(), Error> {
        let mut command = self.about("XACK");
        command.arg(ids);
        self.tell(&command).await?;
        for id in ids {
            self.in_hand.remove(id);
        }
        Ok(())
    }

    async fn give_back(&mut self, ids: &[String]) -> Result<(), Error> {
        // Redis takes nothing back: the entries stay this consumer's, old enough to be claimed.
        let mut command = self.about("XCLAIM");
        command.arg(&self.consumer).arg(0).arg(ids);
        command
            .arg("IDLE")
            .arg(millis(self.min_idle).saturating_add(1));
        command.arg("JUSTID");
        self.tell(&command).await?;
        for id in ids {
            self.in_hand.remove(id);
        }
        self.claim_at = self.claim_at.min(Instant::now() + POLL);
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Error> {
        if let Some(link) = &mut self.link
            && let Some(asking) = &mut link.asking
        {
            // The answer that is held back comes at once, with nothing or with what came just now.
            let unblocked: RedisResult<i64> = cmd("CLIENT")
                .arg("UNBLOCK")
                .arg(link.reader_id)
                .query_async(&mut link.commands)
                .await;
            unblocked?;
            let answer = timeout(POLL, asking).await;
            link.asking = None;
            if let Ok(Ok(entries)) = answer {
                self.take(entries, usize::MAX)?;
            }
        }
        let left: Vec<_> = self.spare.drain(..).map(|it| it.id).collect();
        if !left.is_empty() {
            self.give_back(&left).await?;
        }
        self.link = None;
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A name that no other consumer has.
fn made_up_name() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let random = RandomState::new().hash_one(std::process::id());
    format!("wheelhouse-{}-{random:016x}", std::process::id())
}

impl fmt::Debug for RedisStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStream")
            .field("stream", &self.stream)
            .field("group", &self.group)
            .field("consumer", &self.consumer)
            .field("in_hand", &self.in_hand.len())
            .finish_non_exhaustive()
    }
}
