//! Stops and restarts under load: real processes, real signals, real sockets.
//!
//! 64 clients ask a server, whose answers take 50 ms, over HTTP/1, HTTP/2 and gRPC. It gets a SIGTERM
//! and is to lose no request that it has accepted; and it is to be replaced, by the same program on
//! the same sockets, without that any request fails. The server is this program, called again.
//!
//! `WHEELHOUSE_LONG=1` stops each server 20 times instead of 3, after the drain of five seconds that
//! is the default.

#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod trials;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    trials::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {}
