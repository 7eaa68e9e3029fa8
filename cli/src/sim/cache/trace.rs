//! Traces: the keys on the lines of the input, numbered in the order in which they appear.

use std::{collections::HashMap, io::Read};

use foldhash::fast::FixedState;

use crate::failure::Failure;

/// Reads the whole input.
pub(super) fn read(mut input: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    input
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::System(format!("standard input: {error}")))?;
    Ok(bytes)
}

/// The keys as numbers from 0: equal keys have equal numbers.
pub(super) fn number(input: &[u8]) -> Vec<u32> {
    let mut numbers: HashMap<&[u8], u32, FixedState> = HashMap::default();
    let lines = input.split(|byte| *byte == b'\n');
    let lines = lines.map(<[u8]>::trim_ascii).filter(|key| !key.is_empty());
    lines
        .map(|key| {
            let next = numbers.len() as u32;
            *numbers.entry(key).or_insert(next)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_any_text_without_the_blanks_around_it() {
        let keys = number(b"a\r\n\n b c \na\n\xff\nb c");
        assert_eq!(keys, [0, 1, 0, 2, 1]);
        assert_eq!(number(b""), [0_u32; 0]);
    }
}
