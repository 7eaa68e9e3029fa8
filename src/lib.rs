//! Facade.
#[cfg(feature = "wheel")]
pub use wheelhouse_wheel as wheel;
