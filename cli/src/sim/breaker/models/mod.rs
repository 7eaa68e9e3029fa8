//! Models of other libraries' breakers, to compare with.
//!
//! Each is written from what its library documents and does in public, with the library's
//! defaults, as plain sequential code: no locks, and the time is an argument. They reproduce which
//! calls are let through, not the interfaces. What a library leaves to its user (which errors
//! count, say) is set as it is when the user says nothing; each file names what that means for
//! calls that are cancelled.

pub(crate) mod failsafe;
pub(crate) mod go_zero;
pub(crate) mod gobreaker;
pub(crate) mod hystrix;
pub(crate) mod polly;
pub(crate) mod recloser;
pub(crate) mod resilience4j;
mod ring;

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;
