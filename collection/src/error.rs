//! The error of everything here that is built with arguments.

/// An argument was refused: nothing was built.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_collection::{ErrorCount, RollingWindow};
///
/// let refused = RollingWindow::<ErrorCount>::new(0, Duration::from_secs(1)).unwrap_err();
/// assert_eq!(refused.argument(), "buckets");
/// assert_eq!(refused.to_string(), "buckets is 0; allowed are 1 to 1048576");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {value}; allowed are {allowed}")]
#[non_exhaustive]
pub struct BuildError {
    argument: &'static str,
    value: String,
    allowed: &'static str,
}

impl BuildError {
    pub(crate) fn new(argument: &'static str, value: String, allowed: &'static str) -> Self {
        BuildError {
            argument,
            value,
            allowed,
        }
    }

    /// The name of the argument that was refused.
    ///
    /// ```
    /// use wheelhouse_collection::Ring;
    ///
    /// assert_eq!(Ring::<u8>::new(0).unwrap_err().argument(), "capacity");
    /// ```
    #[must_use]
    pub fn argument(&self) -> &'static str {
        self.argument
    }
}
