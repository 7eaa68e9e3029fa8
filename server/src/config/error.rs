//! What is wrong with a configuration.

use std::path::Path;

use super::{SETTINGS, Setting};

/// Characters of a value that a message shows.
const SHOWN: usize = 64;

/// A configuration was refused: nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("{path}: {cause}")]
    #[non_exhaustive]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// A setting that does not exist.
    #[error("{place}: no such setting{meant}; `wheelhouse serve --help` lists them")]
    #[non_exhaustive]
    Unknown {
        /// Where it is: a file and a key, a variable, a flag.
        place: String,
        /// Which one may be meant.
        meant: String,
    },
    /// A value that is not allowed.
    #[error("{place}: {value} is not {allowed}")]
    #[non_exhaustive]
    Value {
        /// Where it is: a file and a key, a variable, a flag.
        place: String,
        /// The value, shortened to 64 characters; of a secret nothing.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// A secret where others may see it.
    #[error("{place}: a secret has no place here; give {instead}")]
    #[non_exhaustive]
    Misplaced {
        /// Where it is: a file and a key, a flag.
        place: String,
        /// Where it may be.
        instead: String,
    },
}

impl ConfigError {
    pub(super) fn unreadable(path: &Path, cause: impl ToString) -> Self {
        ConfigError::Unreadable {
            path: path.display().to_string(),
            cause: cause.to_string(),
        }
    }

    pub(super) fn unknown(place: &str) -> Self {
        let key = place.rsplit(": ").next().unwrap_or(place);
        let meant = nearest(key).map_or_else(String::new, |name| format!(" (is it {name}?)"));
        ConfigError::Unknown {
            place: place.to_owned(),
            meant,
        }
    }

    pub(super) fn misplaced(place: &str, setting: &Setting) -> Self {
        ConfigError::Misplaced {
            place: place.to_owned(),
            instead: format!("{}, or a file by token_file", setting.variable()),
        }
    }
}

/// A value as messages have it.
pub(super) fn shown(value: &str) -> String {
    let mut shown: String = value.chars().take(SHOWN).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// The name of a setting, written as the given one is, that differs in two letters at most.
fn nearest(name: &str) -> Option<String> {
    let as_variable = name.starts_with(super::PREFIX);
    let names = SETTINGS.iter().map(|setting| match as_variable {
        true => setting.variable(),
        false => setting.key.to_owned(),
    });
    let ranked = names.map(|known| (distance(name, &known), known));
    let (distance, known) = ranked.min()?;
    (distance <= 2).then_some(known)
}

/// Letters to insert, to leave out or to change (Wagner and Fischer), with one row of their table.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        for (from, to, letters) in [
            ("", "", 0),
            ("", "ab", 2),
            ("adress", "address", 1),
            ("kitten", "sitting", 3),
            ("tokne", "token", 2),
        ] {
            assert_eq!(distance(from, to), letters, "{from} {to}");
            assert_eq!(distance(to, from), letters, "{to} {from}");
        }
    }
}
