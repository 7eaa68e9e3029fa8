//! The events that a simulation prints: one JSON object a line, keys in a fixed order.

use std::io::{self, Write};

/// Writes events; buffering is the writer's own affair.
pub(super) struct Output<W> {
    out: W,
}

impl<W: Write> Output<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out }
    }

    /// A timer fired at the tick `at_ms`.
    pub(super) fn fired(&mut self, at_ms: u128, key: &str, value: Option<&str>) -> io::Result<()> {
        write!(self.out, r#"{{"at_ms":{at_ms},"event":"fired","key":"#)?;
        self.pair(key, value)?;
        self.out.write_all(b"}\n")
    }

    /// A timer was drained at `at_ms`.
    pub(super) fn drained(&mut self, at_ms: u64, key: &str, value: Option<&str>) -> io::Result<()> {
        write!(self.out, r#"{{"at_ms":{at_ms},"event":"drained","key":"#)?;
        self.pair(key, value)?;
        self.out.write_all(b"}\n")
    }

    /// The operation `op` at `at_ms` did not find its key.
    pub(super) fn missing(&mut self, at_ms: u64, op: &str, key: &str) -> io::Result<()> {
        write!(
            self.out,
            r#"{{"at_ms":{at_ms},"event":"missing","op":"{op}","key":"#
        )?;
        serde_json::to_writer(&mut self.out, key)?;
        self.out.write_all(b"}\n")
    }

    /// A timer due at `due_ms` is still pending at the end, `at_ms`.
    pub(super) fn pending(
        &mut self,
        at_ms: u64,
        key: &str,
        value: Option<&str>,
        due_ms: u128,
    ) -> io::Result<()> {
        write!(self.out, r#"{{"at_ms":{at_ms},"event":"pending","key":"#)?;
        self.pair(key, value)?;
        writeln!(self.out, r#","due_ms":{due_ms}}}"#)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn pair(&mut self, key: &str, value: Option<&str>) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, key)?;
        self.out.write_all(br#","value":"#)?;
        serde_json::to_writer(&mut self.out, &value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_json_and_otherwise_left_alone() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes);
        output.fired(7, "a\"\\\n\u{1}é\u{1f980}", None).unwrap();
        output.pending(u64::MAX, "", Some("/"), 1 << 64).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "{\"at_ms\":7,\"event\":\"fired\",\"key\":\"a\\\"\\\\\\n\\u0001é\u{1f980}\",\"value\":null}\n\
             {\"at_ms\":18446744073709551615,\"event\":\"pending\",\"key\":\"\",\"value\":\"/\",\"due_ms\":18446744073709551616}\n"
        );
    }
}
