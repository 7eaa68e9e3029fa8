//! What is refused when a group is put together, and what a nested group fails with.

use crate::Report;

/// What a service or a hook fails with: any error.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// An argument was refused: nothing was added or built.
///
/// ```
/// use std::time::Duration;
/// use wheelhouse_servicegroup::ServiceGroup;
///
/// let refused = ServiceGroup::builder().total(Duration::ZERO).build().unwrap_err();
/// assert_eq!(refused.argument(), "total");
/// assert_eq!(refused.to_string(), "total is 0ns; allowed are more than 0ns");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argument} is {value}; allowed are {allowed}")]
#[non_exhaustive]
pub struct BuildError {
    argument: &'static str,
    value: String,
    allowed: String,
}

impl BuildError {
    pub(crate) fn new(
        argument: &'static str,
        value: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        BuildError {
            argument,
            value: value.into(),
            allowed: allowed.into(),
        }
    }

    /// The name of the argument that was refused.
    ///
    /// ```
    /// use wheelhouse_servicegroup::{ServiceContext, ServiceGroup};
    ///
    /// # fn main() -> Result<(), wheelhouse_servicegroup::BuildError> {
    /// let mut group = ServiceGroup::builder().build()?;
    /// let refused = group.add("two words", |_: ServiceContext| async { Ok(()) });
    /// assert_eq!(refused.unwrap_err().argument(), "name");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn argument(&self) -> &'static str {
        self.argument
    }
}

/// [`stopped`](crate::GroupHandle::stopped) was awaited by one of the group's own services, which
/// would wait for itself. Wait for [`stopping`](crate::ServiceContext::stopping) instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a service waits for the end of its own group; wait for `stopping()` instead")]
pub struct InsideService;

/// A nested group ended with an exit code other than 0.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the group ended with {report}")]
pub struct GroupFailed {
    report: Report,
}

impl GroupFailed {
    pub(crate) fn new(report: Report) -> Self {
        GroupFailed { report }
    }

    /// How the nested group ended.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }
}
