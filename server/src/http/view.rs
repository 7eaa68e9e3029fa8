//! Tasks as they are shown.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::engine::{DeadLetter, Status};
use crate::task::{HttpTarget, Key, Target};

/// What stands for the value of a header, which may be a secret.
const HIDDEN: &str = "***";

#[derive(Serialize)]
struct ShownTask<'a> {
    key: &'a str,
    next: String,
    target: ShownTarget<'a>,
    payload: &'a RawValue,
    attempts: u32,
    firing: bool,
}

#[derive(Serialize)]
struct ShownLetter<'a> {
    number: u64,
    key: &'a str,
    target: ShownTarget<'a>,
    payload: &'a RawValue,
    attempts: u32,
    reason: &'a str,
    at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum ShownTarget<'a> {
    Topic(&'a str),
    Http {
        url: String,
        method: &'a str,
        headers: ShownHeaders<'a>,
    },
}

struct ShownHeaders<'a>(&'a HttpTarget);

/// Appends a task.
pub(super) fn task(key: &Key, status: &Status, out: &mut Vec<u8>) {
    let shown = ShownTask {
        key,
        next: status.next.to_string(),
        target: target(&status.target),
        payload: &status.payload,
        attempts: status.attempts,
        firing: status.firing,
    };
    write(&shown, out);
}

/// Appends a dead letter.
pub(super) fn letter(letter: &DeadLetter, out: &mut Vec<u8>) {
    let shown = ShownLetter {
        number: letter.number,
        key: &letter.key,
        target: target(&letter.target),
        payload: &letter.payload,
        attempts: letter.attempts,
        reason: &letter.reason,
        at: letter.at.to_string(),
    };
    write(&shown, out);
}

/// Appends anything whose keys are texts. A vector takes everything.
pub(super) fn write(value: &impl Serialize, out: &mut Vec<u8>) {
    let _ = serde_json::to_writer(out, value);
}

fn target(target: &Target) -> ShownTarget<'_> {
    match target {
        Target::Topic(topic) => ShownTarget::Topic(topic),
        Target::Http(http) => ShownTarget::Http {
            url: http.url(),
            method: http.method(),
            headers: ShownHeaders(http),
        },
    }
}

impl Serialize for ShownHeaders<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.headers() {
            let shown = if name == "content-type" {
                value
            } else {
                HIDDEN
            };
            map.serialize_entry(name, shown)?;
        }
        map.end()
    }
}
