//! Guarded calls in one line, and what to do instead: [`Fallback`].

use std::future::Future;

use super::{Breaker, CallError, Rejected, Verdict};

impl Breaker {
    /// Runs `f` if the breaker lets it through: `Ok` is a success, `Err` a failure, and so is a panic,
    /// which goes on.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, CallError};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// assert_eq!(breaker.call(|| Ok::<_, String>(7)), Ok(7));
    /// assert_eq!(breaker.call(|| Err::<(), _>("no")), Err(CallError::Failed("no")));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`CallError::Rejected`] if it did not run, [`CallError::Failed`] with its error if it did.
    #[inline]
    pub fn call<T, E>(&self, f: impl FnOnce() -> Result<T, E>) -> Result<T, CallError<E>> {
        self.call_if(f, Verdict::of)
    }

    /// The same, with what is acceptable decided by `judge`: errors of the caller's own making are no
    /// failures, say, and some answers are.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Verdict};
    ///
    /// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// let status = breaker.call_if(|| Ok::<_, String>(503), |status| match status {
    ///     Ok(500..) | Err(_) => Verdict::Failure,
    ///     Ok(400..) => Verdict::Ignored,
    ///     Ok(_) => Verdict::Success,
    /// });
    /// assert_eq!(status, Ok(503));
    /// assert_eq!(breaker.stats().failures, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    #[inline]
    pub fn call_if<T, E>(
        &self,
        f: impl FnOnce() -> Result<T, E>,
        judge: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<T, CallError<E>> {
        let permit = self.try_acquire()?;
        let result = f();
        let verdict = judge(&result);
        let _ = permit.settle(verdict);
        result.map_err(CallError::Failed)
    }

    /// Awaits `future` if the breaker lets it through; it is dropped unpolled if not. When this future
    /// is dropped before its end, the call is cancelled.
    ///
    /// ```
    /// use wheelhouse_resilience::Breaker;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// assert_eq!(breaker.call_async(async { Ok::<_, String>(7) }).await, Ok(7));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_async<T, E>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, CallError<E>> {
        self.call_async_if(future, Verdict::of).await
    }

    /// [`call_async`](Self::call_async), with what is acceptable decided by `judge`.
    ///
    /// ```
    /// use wheelhouse_resilience::{Breaker, Verdict};
    ///
    /// # #[tokio::main] async fn main() -> Result<(), wheelhouse_resilience::BuildError> {
    /// let breaker = Breaker::builder().build()?;
    /// let not_found = async { Err::<(), _>(404) };
    /// let _ = breaker.call_async_if(not_found, |_| Verdict::Ignored).await;
    /// assert_eq!(breaker.stats().ignored, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_async_if<T, E>(
        &self,
        future: impl Future<Output = Result<T, E>>,
        judge: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<T, CallError<E>> {
        let permit = self.try_acquire()?;
        let result = future.await;
        let verdict = judge(&result);
        let _ = permit.settle(verdict);
        result.map_err(CallError::Failed)
    }
}

/// What to do instead, for what a guarded call returns: separately for calls that did not run and for
/// those that failed.
///
/// ```
/// use wheelhouse_resilience::{Breaker, Fallback};
///
/// # fn main() -> Result<(), wheelhouse_resilience::BuildError> {
/// let breaker = Breaker::builder().build()?;
/// breaker.force_open();
/// let price = breaker
///     .call(|| Err::<u32, _>("unreachable"))
///     .or_if_rejected(|_| Ok(100)) // the last known one
///     .or_if_failed(|_| Ok(0));
/// assert_eq!(price, Ok(100));
/// # Ok(()) }
/// ```
pub trait Fallback<T, E>: Sized {
    /// What `instead` gives, for a call that was not let through.
    ///
    /// # Errors
    ///
    /// Those of the call, if it ran, and of `instead`.
    fn or_if_rejected(
        self,
        instead: impl FnOnce(Rejected) -> Result<T, E>,
    ) -> Result<T, CallError<E>>;

    /// What `instead` gives, for a call that ran and failed.
    ///
    /// # Errors
    ///
    /// The rejection, and the errors of `instead`.
    fn or_if_failed(self, instead: impl FnOnce(E) -> Result<T, E>) -> Result<T, CallError<E>>;
}

impl<T, E> Fallback<T, E> for Result<T, CallError<E>> {
    fn or_if_rejected(
        self,
        instead: impl FnOnce(Rejected) -> Result<T, E>,
    ) -> Result<T, CallError<E>> {
        match self {
            Err(CallError::Rejected(rejected)) => instead(rejected).map_err(CallError::Failed),
            other => other,
        }
    }

    fn or_if_failed(self, instead: impl FnOnce(E) -> Result<T, E>) -> Result<T, CallError<E>> {
        match self {
            Err(CallError::Failed(error)) => instead(error).map_err(CallError::Failed),
            other => other,
        }
    }
}
