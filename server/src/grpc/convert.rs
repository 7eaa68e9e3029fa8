//! From messages to tasks and back.

use std::collections::HashMap;
use std::time::Duration;

use prost_types::{Duration as ProtoDuration, Timestamp as ProtoTimestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use wheelhouse_wheel::cron::Timestamp;

use super::v1::move_request::To;
use super::v1::{self, event, task, watch_response};
use crate::engine::{DeadLetter, Event, EventKind, Status};
use crate::task::{Due, Key, Target, Task, TaskError};

/// A task as users write it in JSON, which is how it is checked.
#[derive(Serialize)]
struct TaskFields<'a> {
    #[serde(flatten)]
    schedule: Option<ScheduleFields<'a>>,
    target: TargetFields<'a>,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<RetryFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ScheduleFields<'a> {
    Delay { delay: String },
    At { at: String },
    Every { every: String },
    Cron { cron: &'a str, tz: &'a str },
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum TargetFields<'a> {
    Topic(&'a str),
    Http {
        url: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        method: &'a str,
        headers: &'a HashMap<String, String>,
    },
}

#[derive(Serialize)]
struct RetryFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<String>,
}

/// Checks a task.
pub(super) fn task(message: Option<&v1::Task>) -> Result<Task, TaskError> {
    let message = message.ok_or_else(|| missing("task", "a task"))?;
    let kind = message.target.as_ref().and_then(|it| it.kind.as_ref());
    let target = match kind.ok_or_else(|| missing("target", "exactly one kind of target"))? {
        v1::target::Kind::Topic(topic) => TargetFields::Topic(topic),
        v1::target::Kind::Http(http) => TargetFields::Http {
            url: &http.url,
            method: &http.method,
            headers: &http.headers,
        },
    };
    let payload = match &*message.payload {
        "" => RawValue::NULL,
        text => serde_json::from_str(text).map_err(|error| TaskError::Field {
            field: "payload",
            value: format!("not JSON ({error})"),
            allowed: "JSON texts".to_owned(),
        })?,
    };
    let retry = message.retry.as_ref().map(|retry| {
        Ok::<_, TaskError>(RetryFields {
            max_attempts: retry.max_attempts,
            base: duration_text("retry.base", retry.base.as_ref())?,
            max: duration_text("retry.max", retry.max.as_ref())?,
        })
    });
    let fields = TaskFields {
        schedule: message.schedule.as_ref().map(schedule).transpose()?,
        target,
        payload,
        retry: retry.transpose()?,
        ttl: duration_text("ttl", message.ttl.as_ref())?,
    };
    let json = serde_json::to_vec(&fields).map_err(|error| TaskError::Json(error.to_string()))?;
    Task::from_json(&json)
}

fn schedule(schedule: &task::Schedule) -> Result<ScheduleFields<'_>, TaskError> {
    Ok(match schedule {
        task::Schedule::Delay(delay) => ScheduleFields::Delay {
            delay: text_of("delay", delay)?,
        },
        task::Schedule::At(at) => ScheduleFields::At {
            at: from_proto(at)?.to_string(),
        },
        task::Schedule::Every(every) => ScheduleFields::Every {
            every: text_of("every", every)?,
        },
        task::Schedule::Cron(cron) => ScheduleFields::Cron {
            cron: &cron.expression,
            tz: match &*cron.tz {
                "" => "UTC",
                zone => zone,
            },
        },
    })
}

/// Checks when a task is to be due instead.
pub(super) fn due(to: Option<&v1::move_request::To>) -> Result<Due, TaskError> {
    let json = match to {
        Some(To::Delay(delay)) => serde_json::json!({ "delay": text_of("delay", delay)? }),
        Some(To::At(at)) => return Ok(Due::At(from_proto(at)?)),
        None => return Err(missing("to", "exactly one of delay and at")),
    };
    Due::from_json(json.to_string().as_bytes())
}

pub(super) fn pending(key: &Key, status: &Status) -> v1::Pending {
    v1::Pending {
        key: key.to_string(),
        next: Some(to_proto(status.next)),
        target: Some(target(&status.target)),
        payload: status.payload.get().to_owned(),
        attempts: status.attempts,
        firing: status.firing,
    }
}

pub(super) fn dead_letter(letter: &DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        key: letter.key.to_string(),
        target: Some(target(&letter.target)),
        payload: letter.payload.get().to_owned(),
        attempts: letter.attempts,
        reason: letter.reason.to_string(),
        at: Some(to_proto(letter.at)),
    }
}

pub(super) fn event(event: Event) -> v1::WatchResponse {
    let kind = match event.kind {
        EventKind::Created => event::Kind::Created(v1::Created {}),
        EventKind::Replaced => event::Kind::Replaced(v1::Replaced {}),
        EventKind::Moved(due) => event::Kind::Moved(v1::Moved {
            due: Some(to_proto(due)),
        }),
        EventKind::Cancelled => event::Kind::Cancelled(v1::Cancelled {}),
        EventKind::Firing(attempt) => event::Kind::Firing(v1::Firing { attempt }),
        EventKind::Delivered(attempt) => event::Kind::Delivered(v1::Delivered { attempt }),
        EventKind::Retrying(attempt, next, reason) => event::Kind::Retrying(v1::Retrying {
            attempt,
            next: Some(to_proto(next)),
            reason: reason.to_string(),
        }),
        EventKind::Dead(reason) => event::Kind::Dead(v1::Dead {
            reason: reason.to_string(),
        }),
    };
    v1::WatchResponse {
        kind: Some(watch_response::Kind::Event(v1::Event {
            key: event.key.to_string(),
            kind: Some(kind),
        })),
    }
}

pub(super) fn to_proto(time: Timestamp) -> ProtoTimestamp {
    // Nanoseconds of the second: what is before 1970 has them counted forward from the second below.
    let nanos = time.as_nanosecond();
    let second = 1_000_000_000;
    let seconds = i64::try_from(nanos.div_euclid(second)).unwrap_or(i64::MAX);
    let nanos = i32::try_from(nanos.rem_euclid(second)).unwrap_or_default();
    ProtoTimestamp { seconds, nanos }
}

fn from_proto(time: &ProtoTimestamp) -> Result<Timestamp, TaskError> {
    let valid = Some(time).filter(|it| (0..1_000_000_000).contains(&it.nanos));
    let found = valid.and_then(|it| {
        let nanos = i128::from(it.seconds) * 1_000_000_000 + i128::from(it.nanos);
        Timestamp::from_nanosecond(nanos).ok()
    });
    found.ok_or_else(|| TaskError::Field {
        field: "at",
        value: format!("{} s and {} ns", time.seconds, time.nanos),
        allowed: "times from the year -9999 to the year 9999, with 0 to 999999999 ns".to_owned(),
    })
}

fn target(target: &Target) -> v1::Target {
    let kind = match target {
        Target::Topic(topic) => v1::target::Kind::Topic(topic.to_string()),
        Target::Http(http) => v1::target::Kind::Http(v1::HttpTarget {
            url: http.url(),
            method: http.method().to_owned(),
            headers: http
                .headers()
                .map(|(name, _)| (name.to_owned(), String::new()))
                .collect(),
        }),
    };
    v1::Target { kind: Some(kind) }
}

fn duration_text(
    field: &'static str,
    duration: Option<&ProtoDuration>,
) -> Result<Option<String>, TaskError> {
    duration.map(|it| text_of(field, it)).transpose()
}

/// A duration as text. Its range is checked with the task.
fn text_of(field: &'static str, duration: &ProtoDuration) -> Result<String, TaskError> {
    let ProtoDuration { seconds, nanos } = *duration;
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) if nanos < 1_000_000_000 => {
            let duration = Duration::new(seconds, nanos);
            Ok(humantime::format_duration(duration).to_string())
        }
        _ => Err(TaskError::Field {
            field,
            value: format!("{seconds} s and {nanos} ns"),
            allowed: "durations of no less than 0 s, with 0 to 999999999 ns".to_owned(),
        }),
    }
}

fn missing(field: &'static str, allowed: &str) -> TaskError {
    TaskError::Field {
        field,
        value: "not said".to_owned(),
        allowed: allowed.to_owned(),
    }
}
