#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[cfg(feature = "cache")]
pub use wheelhouse_cache as cache;
#[cfg(feature = "collection")]
pub use wheelhouse_collection as collection;
#[cfg(feature = "resilience")]
pub use wheelhouse_resilience as resilience;
#[cfg(feature = "servicegroup")]
pub use wheelhouse_servicegroup as servicegroup;
#[cfg(feature = "wheel")]
pub use wheelhouse_wheel as wheel;
