//! What a response says about the health of the service: [`Classify`].

use crate::Verdict;

/// Judges how a call went by what it returned.
///
/// Closures do: `|result: Result<&Response, &Error>| …`.
///
/// ```
/// use wheelhouse_resilience::Verdict;
/// use wheelhouse_resilience::tower::{ByResult, Classify};
///
/// // Nothing found is an answer.
/// let classify = |result: Result<&u32, &std::io::Error>| match result {
///     Err(error) if error.kind() == std::io::ErrorKind::NotFound => Verdict::Success,
///     other => ByResult.classify(other),
/// };
/// let missing = std::io::ErrorKind::NotFound.into();
/// assert_eq!(classify.classify(Err(&missing)), Verdict::Success);
/// assert_eq!(classify.classify(Ok(&7)), Verdict::Success);
/// ```
pub trait Classify<Response, Error> {
    /// What this result says.
    fn classify(&self, result: Result<&Response, &Error>) -> Verdict;
}

/// `Ok` is a success, `Err` a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByResult;

impl<Response, Error> Classify<Response, Error> for ByResult {
    #[inline]
    fn classify(&self, result: Result<&Response, &Error>) -> Verdict {
        match result {
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::Failure,
        }
    }
}

impl<Response, Error, F> Classify<Response, Error> for F
where
    F: Fn(Result<&Response, &Error>) -> Verdict,
{
    #[inline]
    fn classify(&self, result: Result<&Response, &Error>) -> Verdict {
        self(result)
    }
}

/// Judges HTTP responses by their head, or if that does not say it, by the end of their body.
///
/// An error in place of a response, and a body that ends in an error, are failures. A body that is
/// dropped before its end is a cancelled call; one of known length has ended when that has come.
#[cfg(feature = "http")]
pub trait ClassifyResponse {
    /// What the head says; `None` if it depends on the body.
    fn head(&self, status: ::http::StatusCode, headers: &::http::HeaderMap) -> Option<Verdict>;

    /// What the end of the body says, with its trailers if there were any.
    fn end(&self, trailers: Option<&::http::HeaderMap>) -> Verdict;

    /// Whether a body that is dropped between its last byte and its trailers says nothing. Not so
    /// unless defined otherwise: then it has ended without trailers.
    fn needs_trailers(&self) -> bool {
        false
    }
}
