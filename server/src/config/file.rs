//! A file in YAML as keys and values.

use std::path::Path;

use serde_json::Value;

use super::ConfigError;

/// No configuration is larger; a file that is was named by mistake.
const LARGEST: u64 = 1 << 20;

/// The file's settings in its order: keys of nested maps joined by dots, scalars as text.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let unreadable = |cause: String| ConfigError::unreadable(path, cause);
    let about = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if about.len() > LARGEST {
        return Err(unreadable(format!(
            "{} bytes are no configuration; at most {LARGEST} are allowed",
            about.len()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    // Comments alone are a configuration too.
    let bare = |line: &str| line.trim_start().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(bare) {
        return Ok(Vec::new());
    }
    let root: Value =
        serde_saphyr::from_str(&text).map_err(|error| unreadable(one_line(&error.to_string())))?;
    let mut settings = Vec::new();
    match root {
        Value::Null => {}
        Value::Object(_) => flatten(path, String::new(), root, &mut settings)?,
        other => return Err(unreadable(format!("{other} is not a map of settings"))),
    }
    Ok(settings)
}

fn flatten(
    path: &Path,
    key: String,
    value: Value,
    settings: &mut Vec<(String, String)>,
) -> Result<(), ConfigError> {
    let text = match value {
        Value::Object(map) => {
            for (name, value) in map {
                let key = match key.is_empty() {
                    true => name,
                    false => format!("{key}.{name}"),
                };
                flatten(path, key, value, settings)?;
            }
            return Ok(());
        }
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        // A key without a value is there to be filled in.
        Value::Null => return Ok(()),
        Value::Array(_) => {
            return Err(ConfigError::Value {
                place: format!("{}: {key}", path.display()),
                value: "a list".to_owned(),
                allowed: "a single value".to_owned(),
            });
        }
    };
    settings.push((key, text));
    Ok(())
}

/// The first line of a message about a file: what follows shows the place in the text, which may hold
/// what is not for logs.
fn one_line(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_owned()
}
