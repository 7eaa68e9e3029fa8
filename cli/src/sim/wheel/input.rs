//! One line of input: a strict JSON object, borrowed from the line where it can be.
//!
//! Ground rules: what is accepted is exactly what is documented. A field that is
//! unknown, missing, doubled, of another type or that belongs to another operation
//! makes the line bad, so that a misspelt program never half runs. Nothing is
//! allocated but strings that contain escapes.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

/// An operation and its time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Milliseconds since the start.
    pub(super) at_ms: u64,
    pub(super) op: Op<'a>,
}

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Op<'a> {
    Set {
        key: Cow<'a, str>,
        delay_ms: u64,
        value: Option<Cow<'a, str>>,
    },
    Move {
        key: Cow<'a, str>,
        delay_ms: u64,
    },
    Remove {
        key: Cow<'a, str>,
    },
    Drain,
}

/// Characters of the input that a message repeats at most, about.
const LONGEST_QUOTE: usize = 60;

/// Parses one line, without its line feed.
///
/// # Errors
///
/// What is wrong with it, in half a sentence.
pub(super) fn parse(line: &[u8]) -> Result<Line<'_>, String> {
    let text = std::str::from_utf8(line)
        .map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to() + 1))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let line = json.deserialize_map(LineVisitor).map_err(explain)?;
    json.end().map_err(explain)?;
    Ok(line)
}

/// The message of a JSON error without the line number, which is always 1 here.
fn explain(error: serde_json::Error) -> String {
    let message = error.to_string();
    let message = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(message, _)| message);
    if !error.is_data() {
        return format!("malformed JSON: {message} at column {}", error.column());
    }
    // A value of the wrong type is quoted, however long it is.
    match message.rsplit_once(", expected ") {
        Some((found, expected)) if found.len() > LONGEST_QUOTE => {
            let found: String = found.chars().take(LONGEST_QUOTE).collect();
            format!("{found}…, expected {expected}")
        }
        _ => message.to_owned(),
    }
}

/// The names of fields.
#[derive(Clone, Copy)]
enum Field {
    AtMs,
    Op,
    Key,
    DelayMs,
    Value,
}

impl Field {
    fn name(self) -> &'static str {
        match self {
            Self::AtMs => "at_ms",
            Self::Op => "op",
            Self::Key => "key",
            Self::DelayMs => "delay_ms",
            Self::Value => "value",
        }
    }
}

/// The names of operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Set,
    Move,
    Remove,
    Drain,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Move => "move",
            Self::Remove => "remove",
            Self::Drain => "drain",
        }
    }
}

struct LineVisitor;

impl<'de> Visitor<'de> for LineVisitor {
    type Value = Line<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut at_ms, mut verb, mut key, mut delay_ms, mut value) =
            (None, None, None, None, None);
        while let Some(field) = map.next_key_seed(Names(FIELDS))? {
            match field {
                Field::AtMs => once(&mut at_ms, field, map.next_value_seed(Integer(field))?)?,
                Field::Op => once(&mut verb, field, map.next_value_seed(Names(VERBS))?)?,
                Field::Key => once(&mut key, field, map.next_value_seed(Text(field))?)?,
                Field::DelayMs => {
                    once(&mut delay_ms, field, map.next_value_seed(Integer(field))?)?;
                }
                Field::Value => once(&mut value, field, map.next_value_seed(Text(field))?)?,
            }
        }
        let at_ms = given(at_ms, Field::AtMs)?;
        let verb = given(verb, Field::Op)?;
        if verb != Verb::Set {
            foreign(value.is_some(), Field::Value, verb)?;
        }
        let op = match verb {
            Verb::Set => Op::Set {
                key: given(key, Field::Key)?,
                delay_ms: given(delay_ms, Field::DelayMs)?,
                value,
            },
            Verb::Move => Op::Move {
                key: given(key, Field::Key)?,
                delay_ms: given(delay_ms, Field::DelayMs)?,
            },
            Verb::Remove => {
                foreign(delay_ms.is_some(), Field::DelayMs, verb)?;
                Op::Remove {
                    key: given(key, Field::Key)?,
                }
            }
            Verb::Drain => {
                foreign(delay_ms.is_some(), Field::DelayMs, verb)?;
                foreign(key.is_some(), Field::Key, verb)?;
                Op::Drain
            }
        };
        Ok(Line { at_ms, op })
    }
}

/// Stores the value of a field that may come once.
fn once<T, E: Error>(place: &mut Option<T>, field: Field, value: T) -> Result<(), E> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::custom(format_args!(
            "field `{}` is given twice",
            field.name()
        ))),
    }
}

/// The value of a field that must be there.
fn given<T, E: Error>(value: Option<T>, field: Field) -> Result<T, E> {
    value.ok_or_else(|| E::custom(format_args!("field `{}` is missing", field.name())))
}

/// Refuses a field of another operation.
fn foreign<E: Error>(there: bool, field: Field, verb: Verb) -> Result<(), E> {
    if there {
        let (field, verb) = (field.name(), verb.name());
        return Err(E::custom(format_args!(
            "field `{field}` does not belong to op `{verb}`"
        )));
    }
    Ok(())
}

/// A closed set of names: what they are, and each with its meaning.
struct Names<T: 'static>(&'static (&'static str, &'static str, &'static [(&'static str, T)]));

const FIELDS: &(&str, &str, &[(&str, Field)]) = &(
    "field",
    "at_ms, op, key, delay_ms or value",
    &[
        ("at_ms", Field::AtMs),
        ("op", Field::Op),
        ("key", Field::Key),
        ("delay_ms", Field::DelayMs),
        ("value", Field::Value),
    ],
);

const VERBS: &(&str, &str, &[(&str, Verb)]) = &(
    "op",
    "set, move, remove or drain",
    &[
        ("set", Verb::Set),
        ("move", Verb::Move),
        ("remove", Verb::Remove),
        ("drain", Verb::Drain),
    ],
);

impl<'de, T: Copy> DeserializeSeed<'de> for Names<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<T, D::Error> {
        json.deserialize_str(self)
    }
}

impl<T: Copy> Visitor<'_> for Names<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, all, _) = self.0;
        write!(f, "{what} to be {all}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let (what, all, names) = self.0;
        match names.iter().find(|(name, _)| *name == text) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let mut start: String = text.chars().take(LONGEST_QUOTE).collect();
                if start.len() < text.len() {
                    start.push('…');
                }
                Err(E::custom(format_args!(
                    "unknown {what} {start:?}, expected {all}"
                )))
            }
        }
    }
}

/// An integer in the range of `u64`, written without fraction or exponent.
struct Integer(Field);

impl<'de> DeserializeSeed<'de> for Integer {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<u64, D::Error> {
        json.deserialize_u64(self)
    }
}

impl Visitor<'_> for Integer {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to be an integer 0..={}", self.0.name(), u64::MAX)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }
}

/// A string, borrowed unless it has escapes.
struct Text(Field);

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` to be a string", self.0.name())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_strings_are_borrowed_and_escapes_resolved() {
        let line = br#"{"at_ms":1,"op":"set","key":"a","delay_ms":2,"value":"\u0078"}"#;
        let Op::Set { key, value, .. } = parse(line).unwrap().op else {
            panic!("not a set");
        };
        assert!(matches!(key, Cow::Borrowed("a")));
        assert_eq!(value.as_deref(), Some("x"));
    }

    #[test]
    fn fields_come_in_any_order_with_any_space() {
        let line = b" { \"delay_ms\" : 0 , \"key\":\"k\", \"\\u006fp\":\"mo\\u0076e\", \"at_ms\":18446744073709551615 }\r";
        let expected = Line {
            at_ms: u64::MAX,
            op: Op::Move {
                key: "k".into(),
                delay_ms: 0,
            },
        };
        assert_eq!(parse(line), Ok(expected));
    }

    #[test]
    fn a_message_does_not_repeat_a_long_line() {
        let long = "x".repeat(10_000);
        for line in [
            format!(r#"{{"{long}":1}}"#),
            format!(r#"{{"op":"{long}"}}"#),
            format!(r#"{{"at_ms":"{long}"}}"#),
            format!(r#""{long}""#),
        ] {
            assert!(parse(line.as_bytes()).unwrap_err().len() < 200);
        }
    }
}
