//! Settings from text: configuration files and command lines.

use std::str::FromStr;
use std::time::Duration;

use crate::BuildError;

/// A duration, which has to have a unit: "10" could be seconds or nanoseconds.
pub(crate) fn duration(option: &str, value: &str) -> Result<Duration, BuildError> {
    humantime::parse_duration(value).map_err(|_| {
        let allowed = "a duration with its unit, as in 10s or 200ms";
        BuildError::new(option, value, allowed)
    })
}

/// A number of the kind that `kind` says: "a whole number".
pub(crate) fn number<T: FromStr>(option: &str, value: &str, kind: &str) -> Result<T, BuildError> {
    value
        .parse()
        .map_err(|_| BuildError::new(option, value, kind))
}

/// What `parse` makes of the text, or nothing where it is "none".
#[cfg(feature = "tokio")]
pub(crate) fn optional<T>(
    value: &str,
    parse: impl FnOnce() -> Result<T, BuildError>,
) -> Result<Option<T>, BuildError> {
    match value {
        "none" => Ok(None),
        _ => parse().map(Some),
    }
}
