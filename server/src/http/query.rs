//! What stands in paths and queries.

use std::borrow::Cow;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

use super::problem::Problem;
use crate::task::Key;

/// The key in `/v1/tasks/{key}`. What is encoded in it is part of it, slashes too.
pub(super) fn key(uri: &Uri) -> Result<Key, Problem> {
    let raw = uri.path().strip_prefix("/v1/tasks/").unwrap_or_default();
    let key = decode(raw).ok_or_else(|| {
        Problem::bad_path(
            "a key is percent-encoded UTF-8, with two hexadecimal digits after each %",
        )
    })?;
    Ok(Key::new(key.into_owned())?)
}

/// The number in `/v1/dead/{number}…`.
pub(super) fn number(uri: &Uri) -> Result<u64, Problem> {
    let raw = uri.path().strip_prefix("/v1/dead/").unwrap_or_default();
    let number = raw.split('/').next().unwrap_or_default();
    whole(number).ok_or_else(|| Problem::bad_path("a dead letter has a number"))
}

/// The values of these parameters. Others are refused, and so are those that are there twice.
pub(super) fn parameters<const N: usize>(
    uri: &Uri,
    names: [&str; N],
) -> Result<[Option<String>; N], Problem> {
    let mut values = [const { None }; N];
    let query = uri.query().unwrap_or_default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = names.iter().position(|it| *it == name);
        let place = place.ok_or_else(|| {
            let known = names.join(", ");
            Problem::bad_query(format!("{} is not among {known}", shortened(name)))
        })?;
        let value = value.replace('+', " ");
        let value = decode(&value)
            .ok_or_else(|| Problem::bad_query(format!("{name} is not percent-encoded UTF-8")))?;
        if values[place].replace(value.into_owned()).is_some() {
            return Err(Problem::bad_query(format!("{name} is there twice")));
        }
    }
    Ok(values)
}

/// A limit of a page.
pub(super) fn limit(text: Option<&str>, default: usize, most: usize) -> Result<usize, Problem> {
    let Some(text) = text else {
        return Ok(default);
    };
    let limit = whole(text).and_then(|it| usize::try_from(it).ok());
    limit.filter(|it| (1..=most).contains(it)).ok_or_else(|| {
        let text = shortened(text);
        Problem::bad_query(format!("limit is {text}; allowed are 1 to {most}"))
    })
}

/// A whole number of digits alone.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let mut rest = raw.as_bytes();
    while let Some(place) = rest.iter().position(|b| *b == b'%') {
        let digits = rest.get(place + 1..place + 3)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rest = &rest[place + 3..];
    }
    percent_decode_str(raw).decode_utf8().ok()
}

fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(64).collect();
    format!("{shown:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_part_of_the_key() {
        let key = |path: &str| key(&path.parse().unwrap()).map(|key| key.to_string());
        assert_eq!(key("/v1/tasks/a").unwrap(), "a");
        assert_eq!(key("/v1/tasks/a%2Fb%20c+%C3%BC").unwrap(), "a/b c+ü");
        assert_eq!(key("/v1/tasks/..").unwrap(), "..");
        assert_eq!(key("/v1/tasks/%25").unwrap(), "%");
        for path in [
            "/v1/tasks/%",
            "/v1/tasks/%2",
            "/v1/tasks/%zz",
            "/v1/tasks/%ff",
        ] {
            assert!(key(path).is_err(), "{path}");
        }
    }

    #[test]
    fn parameters_are_known_and_there_once() {
        let ask = |query: &str| {
            let uri: Uri = format!("/v1/tasks?{query}").parse().unwrap();
            parameters(&uri, ["a", "b"])
        };
        assert_eq!(ask("").unwrap(), [None, None]);
        assert_eq!(
            ask("b=1%262&a=x+y").unwrap(),
            [Some("x y".to_owned()), Some("1&2".to_owned())]
        );
        for query in ["c=1", "a=1&a=2", "a=%", "a=%ff", "a&a"] {
            assert!(ask(query).is_err(), "{query}");
        }
    }
}
