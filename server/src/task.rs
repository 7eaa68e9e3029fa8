//! A task as users write it: JSON, checked field by field.

mod http_target;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use wheelhouse_wheel::cron::{Cron, Timestamp};

pub use http_target::HttpTarget;

use http_target::HttpFields;

/// A hundred years, the longest delay, period and time to live.
const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);
/// The shortest period.
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);
/// Bytes that a key or a topic may have.
const NAME_BYTES: usize = 256;
/// What the server's own streams begin with. A task for one of them would be its own next command.
const OWN: &str = "wheelhouse:";

/// The name of a task: 1 to 256 bytes of UTF-8. Clones share it.
///
/// ```
/// use wheelhouse_server::task::Key;
///
/// assert_eq!(Key::new("order/7")?.as_str(), "order/7");
/// assert!(Key::new("").is_err());
/// # Ok::<(), wheelhouse_server::task::TaskError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// What is to be delivered, when, where to, and how often it is tried.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Task {
    /// When it is due.
    pub schedule: Schedule,
    /// Where it goes.
    pub target: Target,
    /// What goes there, `null` if the task does not say.
    pub payload: Box<RawValue>,
    /// How often a delivery is tried.
    pub retry: RetryPolicy,
    /// How long after it was due it may still be delivered; without, for ever.
    pub ttl: Option<Duration>,
}

/// When a task is due.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Schedule {
    /// So long after it was taken in.
    Delay(Duration),
    /// At this time of the calendar; at once if that has passed.
    At(Timestamp),
    /// Again and again, so far apart, the first time one period after it was taken in.
    Every(Duration),
    /// Whenever the expression says.
    Cron(Box<Cron>),
}

/// Another time for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Due {
    /// So long from now.
    Delay(Duration),
    /// At this time of the calendar; at once if that has passed.
    At(Timestamp),
}

/// Where a task is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// Published to the topic of this name, of 1 to 256 bytes.
    Topic(Arc<str>),
    /// Sent over HTTP. Tasks may share it.
    Http(Arc<HttpTarget>),
}

/// How often a delivery is tried, and how long it waits in between.
///
/// Before attempt n + 1 it waits min([`max`](Self::max), [`base`](Self::base) · 2ⁿ⁻¹), of which a
/// random part of up to a half is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Attempts in all, 1 to 100.
    pub max_attempts: u32,
    /// The wait before the second attempt.
    pub base: Duration,
    /// The longest wait.
    pub max: Duration,
}

/// A task or a key that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// It is no JSON object of the known fields.
    #[error("not a task: {0}")]
    Json(String),
    /// A field has a value that is not allowed.
    #[error("{field} is {value}; allowed are {allowed}")]
    #[non_exhaustive]
    Field {
        /// The field, as in `retry.base`.
        field: &'static str,
        /// What it is, shortened to 64 characters.
        value: String,
        /// What it may be.
        allowed: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFields {
    key: Option<String>,
    delay: Option<String>,
    at: Option<String>,
    every: Option<String>,
    cron: Option<String>,
    tz: Option<String>,
    target: TargetFields,
    #[serde(default)]
    payload: Option<Box<RawValue>>,
    retry: Option<RetryFields>,
    ttl: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DueFields {
    key: Option<String>,
    delay: Option<String>,
    at: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum TargetFields {
    Topic(String),
    Http(HttpFields),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryFields {
    max_attempts: Option<u32>,
    base: Option<String>,
    max: Option<String>,
}

impl Key {
    /// Checks a key.
    ///
    /// # Errors
    /// When it has not 1 to 256 bytes.
    pub fn new(key: impl Into<Arc<str>>) -> Result<Self, TaskError> {
        let key = key.into();
        if !(1..=NAME_BYTES).contains(&key.len()) {
            return Err(refused("key", &key, "1 to 256 bytes"));
        }
        Ok(Key(key))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for Key {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Task {
    /// Reads a task from a JSON object. Exactly one of `delay`, `at`, `every` and `cron` says when it
    /// is due; `tz`, by default `UTC`, goes with `cron` alone. Durations are texts as `90s` or
    /// `1h 30m`.
    ///
    /// ```
    /// use wheelhouse_server::task::Task;
    ///
    /// let refused = Task::from_json(br#"{"delay":"soon","target":{"topic":"t"}}"#).unwrap_err();
    /// assert_eq!(refused.to_string(), r#"delay is "soon"; allowed are durations up to 36525days"#);
    /// ```
    ///
    /// # Errors
    /// [`TaskError::Json`] when it is no object of these fields, [`TaskError::Field`] with the field
    /// whose value is not allowed.
    pub fn from_json(json: &[u8]) -> Result<Self, TaskError> {
        let fields: TaskFields = fields(json)?;
        no_key(fields.key.as_deref())?;
        Task::from_fields(fields)
    }

    /// Reads a task from the same object with its `key`, as a line of a batch or a command has it.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json), and for the key those of [`Key::new`].
    pub fn keyed_from_json(json: &[u8]) -> Result<(Key, Self), TaskError> {
        let mut fields: TaskFields = fields(json)?;
        let key = key(fields.key.take())?;
        Ok((key, Task::from_fields(fields)?))
    }

    fn from_fields(fields: TaskFields) -> Result<Self, TaskError> {
        let schedule = schedule(&fields)?;
        let ttl = fields.ttl.as_deref();
        Ok(Task {
            schedule,
            target: target(fields.target)?,
            payload: fields.payload.unwrap_or_else(|| RawValue::NULL.to_owned()),
            retry: fields.retry.map_or(Ok(RetryPolicy::default()), retry)?,
            ttl: ttl
                .map(|text| duration("ttl", text, Duration::ZERO))
                .transpose()?,
        })
    }
}

impl Due {
    /// Reads a time from a JSON object with exactly one of `delay` and `at`.
    ///
    /// # Errors
    /// As those of [`Task::from_json`].
    pub fn from_json(json: &[u8]) -> Result<Self, TaskError> {
        let fields: DueFields = fields(json)?;
        no_key(fields.key.as_deref())?;
        Due::from_fields(&fields)
    }

    /// Reads a time from the same object with the `key` of its task.
    ///
    /// # Errors
    /// As those of [`Task::keyed_from_json`].
    pub fn keyed_from_json(json: &[u8]) -> Result<(Key, Self), TaskError> {
        let mut fields: DueFields = fields(json)?;
        let key = key(fields.key.take())?;
        Ok((key, Due::from_fields(&fields)?))
    }

    fn from_fields(fields: &DueFields) -> Result<Self, TaskError> {
        match (&fields.delay, &fields.at) {
            (Some(text), None) => Ok(Due::Delay(duration("delay", text, Duration::ZERO)?)),
            (None, Some(text)) => Ok(Due::At(time(text)?)),
            _ => Err(TaskError::Field {
                field: "due",
                value: "not said once".to_owned(),
                allowed: "exactly one of delay and at".to_owned(),
            }),
        }
    }
}

impl Default for RetryPolicy {
    /// 5 attempts, 1 s, at most 60 s.
    fn default() -> Self {
        RetryPolicy {
            max_attempts: 5,
            base: Duration::from_secs(1),
            max: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// The wait after `attempt` (from 1) has failed, without what chance takes off.
    pub(crate) fn wait_after(&self, attempt: u32) -> Duration {
        let doubled = 1u32.checked_shl(attempt.saturating_sub(1));
        let wait = doubled.map_or(self.max, |times| self.base.saturating_mul(times));
        wait.min(self.max)
    }
}

fn fields<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, TaskError> {
    // An array of the values in their order would do otherwise.
    if json.trim_ascii_start().first() != Some(&b'{') {
        return Err(TaskError::Json("expected an object".to_owned()));
    }
    serde_json::from_slice(json).map_err(|error| TaskError::Json(error.to_string()))
}

fn key(said: Option<String>) -> Result<Key, TaskError> {
    match said {
        Some(key) => Key::new(key),
        None => Err(TaskError::Json("missing field `key`".to_owned())),
    }
}

fn no_key(said: Option<&str>) -> Result<(), TaskError> {
    match said {
        None => Ok(()),
        Some(key) => Err(refused(
            "key",
            key,
            "keys that are said outside of the object",
        )),
    }
}

fn time(text: &str) -> Result<Timestamp, TaskError> {
    let at = text.parse::<Timestamp>();
    at.map_err(|_| refused("at", text, "times by RFC 3339"))
}

fn schedule(fields: &TaskFields) -> Result<Schedule, TaskError> {
    if let (Some(zone), None) = (&fields.tz, &fields.cron) {
        return Err(refused("tz", zone, "zones beside cron alone"));
    }
    match (&fields.delay, &fields.at, &fields.every, &fields.cron) {
        (Some(text), None, None, None) => {
            Ok(Schedule::Delay(duration("delay", text, Duration::ZERO)?))
        }
        (None, Some(text), None, None) => Ok(Schedule::At(time(text)?)),
        (None, None, Some(text), None) => {
            Ok(Schedule::Every(duration("every", text, SHORTEST_PERIOD)?))
        }
        (None, None, None, Some(text)) => {
            let zone = fields.tz.as_deref().unwrap_or("UTC");
            let cron = Cron::new(text, zone);
            let cron =
                cron.map_err(|error| refused("cron", text, &format!("expressions ({error})")))?;
            Ok(Schedule::Cron(Box::new(cron)))
        }
        _ => Err(TaskError::Field {
            field: "schedule",
            value: "not said once".to_owned(),
            allowed: "exactly one of delay, at, every and cron".to_owned(),
        }),
    }
}

fn target(fields: TargetFields) -> Result<Target, TaskError> {
    let topic = match fields {
        TargetFields::Topic(topic) => topic,
        TargetFields::Http(fields) => return HttpTarget::from_fields(fields).map(Target::Http),
    };
    if !(1..=NAME_BYTES).contains(&topic.len()) {
        return Err(refused("target.topic", &topic, "1 to 256 bytes"));
    }
    if topic.starts_with(OWN) {
        let allowed = "names that do not begin with wheelhouse:";
        return Err(refused("target.topic", &topic, allowed));
    }
    Ok(Target::Topic(topic.into()))
}

fn retry(fields: RetryFields) -> Result<RetryPolicy, TaskError> {
    let mut policy = RetryPolicy::default();
    let shortest = Duration::from_millis(1);
    if let Some(attempts) = fields.max_attempts {
        if !(1..=100).contains(&attempts) {
            return Err(TaskError::Field {
                field: "retry.max_attempts",
                value: attempts.to_string(),
                allowed: "1 to 100".to_owned(),
            });
        }
        policy.max_attempts = attempts;
    }
    if let Some(base) = &fields.base {
        policy.base = duration("retry.base", base, shortest)?;
        policy.max = policy.max.max(policy.base);
    }
    if let Some(max) = &fields.max {
        policy.max = duration("retry.max", max, shortest)?;
        if policy.max < policy.base {
            let base = humantime::format_duration(policy.base);
            return Err(refused(
                "retry.max",
                max,
                &format!("durations from retry.base ({base})"),
            ));
        }
    }
    Ok(policy)
}

fn duration(field: &'static str, text: &str, shortest: Duration) -> Result<Duration, TaskError> {
    let parsed = humantime::parse_duration(text).ok();
    parsed
        .filter(|duration| (shortest..=LONGEST).contains(duration))
        .ok_or_else(|| match shortest {
            Duration::ZERO => refused(field, text, "durations up to 36525days"),
            _ => {
                let shortest = humantime::format_duration(shortest);
                refused(
                    field,
                    text,
                    &format!("durations of {shortest} to 36525days"),
                )
            }
        })
}

fn refused(field: &'static str, value: &str, allowed: &str) -> TaskError {
    let mut shown: String = value.chars().take(64).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    TaskError::Field {
        field,
        value: format!("{shown:?}"),
        allowed: allowed.to_owned(),
    }
}
