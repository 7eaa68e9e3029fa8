//! The comparison with the peers: `cargo bench -p wheelhouse-benches --bench versus -- wheel`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    wheelhouse_benches::versus(Path::new(env!("CARGO_BIN_EXE_versus-counted")))
}
