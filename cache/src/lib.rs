//! Expiring cache: bounded, concurrent, reclaimed by a timing wheel.
//!
//! Values live for a while after they were stored or used, and go when there is no room: the ones that
//! are least likely to be asked for, as far as the traffic so far tells. Unlike a map with timestamps,
//! what has expired is not seen even if nobody has taken it out yet, and it is taken out in small
//! steps. Unlike most caches it is exact: never more entries than its capacity, at no instant.
//!
//! ```
//! use std::time::Duration;
//! use wheelhouse_cache::Cache;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let users = Cache::builder()
//!     .capacity(100_000)
//!     .time_to_live(Duration::from_secs(300))
//!     .build()?;
//!
//! let name = users.take(7, |id| format!("user {id}"))?; // loaded once, whoever asks
//! assert_eq!(name, "user 7");
//! assert_eq!(users.get(&7).as_deref(), Some("user 7"));
//! users.remove(&7); // a load under way now would not be stored
//! assert_eq!(users.stats().hits, 1);
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - G1, in time: no lookup gives a value past its deadline, whatever has been reclaimed. A value that
//!   is not replaced, removed or evicted is visible for 95 % of its lifetime at least, with the default
//!   jitter.
//! - G2, exact: the weight of all entries never exceeds the bound, and no entry that fits is refused.
//! - G3, once: each value leaves by exactly one of expiry, eviction, replacement, removal and
//!   clearing, and the listener hears of it once.
//! - G4, one load: callers that miss a key at the same time share one load. What a load gives is not
//!   stored if its key was set or removed, or the cache cleared, after it began.
//! - G5, small steps: one operation reclaims 128 entries at most.
//! - Listeners, loads, weighers, conditions and `Drop` of keys and values run outside every lock and
//!   may use the cache. `Hash`, `Eq`, `Clone` and the clock run under a shard's lock and must
//!   not; keep values
//!   that are costly to clone in an `Arc`.
//! - Nothing starts a thread but [`Driver::start`].
//!
//! # Trade-offs
//!
//! A lookup takes the lock of a shard for the time of a clone. The default policy tries settings on
//! shadow caches of hashes, up to 1 024 entries each: for caches so small that is most of the cost of
//! a lookup, and some 100 bytes an entry; for large ones it is a per cent. Choose
//! [`Policy::Sieve`] where that matters and the traffic is known.
//!
//! # How it works
//!
//! Entries lie densely in an array. Where a key is says an index of buckets of twelve tags and
//! positions in a cache line, so that a lookup touches two lines. An entry's position is its place in
//! the queue of the policy, which has no links: the first positions are the window, where newcomers
//! prove themselves; the others, the main part, are entered by those that were asked for more often
//! than the one they drive out. Frequencies are counted in the entry while it is there and in a sketch
//! while it is not (TinyLFU, Einziger and others, 2017).
//!
//! ```text
//!            bucket: │tag│tag│…│pos│pos│…│
//!                           │
//!  entries:  │ window ◄hand │ main part          ◄hand │   one array
//!            └── 64 entries: one timer ──┘ … ──► wheel
//! ```
#![warn(missing_docs)]

mod budget;
mod builder;
mod cache;
mod compute;
mod driver;
mod error;
mod event;
mod fence;
mod inner;
mod layered;
mod negative;
mod reclaim;
mod refresh;
mod report;
mod shard;
mod stats;
mod take;
mod time;
mod tuner;

pub use builder::{Builder, Reclaim};
pub use cache::Cache;
pub use compute::{Computed, Op};
pub use driver::Driver;
pub use error::{BuildError, Closed, TakeError};
pub use event::{Cause, Event};
pub use layered::{AsyncSecondLevel, Layered, SecondLevel, SetError};
pub use refresh::Reload;
pub use report::Report;
pub use shard::Policy;
pub use stats::Stats;
pub use take::Loaded;
