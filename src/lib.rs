#![doc = include_str!("../README.md")]

#[cfg(feature = "wheel")]
pub use wheelhouse_wheel as wheel;
