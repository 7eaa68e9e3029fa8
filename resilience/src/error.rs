//! The error of everything here that is built with arguments.

/// An argument was refused: nothing was built.
///
/// ```
/// use wheelhouse_resilience::{Breaker, ErrorRate};
///
/// let refused = Breaker::builder().trip_on(ErrorRate::above(1.5)).build().unwrap_err();
/// assert_eq!(refused.argument(), "error_rate");
/// assert_eq!(refused.to_string(), "error_rate is 1.5; allowed are more than 0, to 1");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {value}; allowed are {allowed}")]
#[non_exhaustive]
pub struct BuildError {
    argument: String,
    value: String,
    allowed: String,
}

impl BuildError {
    pub(crate) fn new(
        argument: impl Into<String>,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        BuildError {
            argument: argument.into(),
            value: value.into(),
            allowed: allowed.into(),
        }
    }

    /// The name of the argument that was refused.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// let refused = Breaker::builder().max_probes(0).build().unwrap_err();
    /// assert_eq!(refused.argument(), "max_probes");
    /// ```
    #[must_use]
    pub fn argument(&self) -> &str {
        &self.argument
    }
}
