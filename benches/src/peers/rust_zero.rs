//! `rust_zero`: the rolling breaker of rust-zero-core, go-zero's in Rust, under a lock.
//!
//! Settings: its defaults, 5 s in 40 buckets. It rejects by chance and lets every hundredth through,
//! so it is never quite open.

use std::fmt;

use rust_zero_core::breaker::{
    CircuitBreaker, CircuitBreakerConfig, CircuitBreakerError, RollingCircuitBreakerConfig,
};

use super::CallBreaker;

/// The adapter.
pub struct RustZero(CircuitBreaker);

impl CallBreaker for RustZero {
    fn new() -> Self {
        let rolling = RollingCircuitBreakerConfig::new();
        Self(CircuitBreaker::new(CircuitBreakerConfig::rolling(rolling)))
    }

    #[inline]
    fn call(&self, number: u64, fails: bool) -> Option<u64> {
        let work = || if fails { Err(number) } else { Ok(number) };
        match self.0.execute(work) {
            Ok(number) | Err(CircuitBreakerError::Operation(number)) => Some(number),
            Err(_) => None,
        }
    }

    fn counted(&self) -> Option<(u64, u64)> {
        let snapshot = self.0.snapshot();
        Some((snapshot.successes, snapshot.failures))
    }
}

impl fmt::Debug for RustZero {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RustZero").field(&self.0.snapshot()).finish()
    }
}
