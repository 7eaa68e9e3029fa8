//! What the workloads of the part `resilience` ask of a breaker.

/// A breaker with the settings of its adapter. A call goes through the subject's own one-line form,
/// with a closure that returns its number.
pub trait CallBreaker: Sync + Sized {
    /// A new one, closed.
    fn new() -> Self;

    /// Makes a call, which succeeds or fails, and gives what it returned; `None` when it was rejected.
    fn call(&self, number: u64, fails: bool) -> Option<u64>;

    /// Successes and failures that it has counted, where it tells.
    fn counted(&self) -> Option<(u64, u64)> {
        None
    }
}

/// A breaker that rejects every call for a while once it is open.
pub trait Opens: CallBreaker {
    /// A new one, open for an hour.
    fn opened() -> Self {
        let breaker = Self::new();
        let mut call = 0;
        while breaker.call(call, true).is_some() {
            call += 1;
            assert!(call < 1_000_000, "a million failures open no breaker");
        }
        breaker
    }
}
