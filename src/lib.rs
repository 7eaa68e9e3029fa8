#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

#[cfg(feature = "wheel")]
pub use wheelhouse_wheel as wheel;
