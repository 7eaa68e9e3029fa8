//! Code of others that must not end what calls it: [`contained`], and [`Contained`], which counts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs code of others (recorders of metrics, subscribers of traces, wakers, hooks) where a panic
/// would leave something half done, or end the process because another panic unwinds already, and
/// counts those that it has kept to itself.
#[derive(Debug, Default)]
pub(crate) struct Contained {
    /// Relaxed: only read as a figure.
    panics: AtomicU64,
}

impl Contained {
    /// What `code` returns, or `None` if it panicked. What it has been at is up to it.
    pub(crate) fn run<R>(&self, code: impl FnOnce() -> R) -> Option<R> {
        let value = contained(code);
        if value.is_none() {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
        value
    }

    /// How often something panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

/// What `code` returns, or `None` if it panicked.
pub(crate) fn contained<R>(code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // A payload is code of others too. One that panics when it is dropped is let be.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(second);
            }
            None
        }
    }
}

/// Says which code of the user's has panicked.
pub(crate) fn report(what: &'static str, name: &str) {
    #[cfg(feature = "tracing")]
    let _ = contained(|| tracing::error!(name, "a {what} panicked"));
    #[cfg(not(feature = "tracing"))]
    let _ = (what, name);
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("a payload that panics"));
        }
    }

    #[test]
    fn panics_end_here_and_are_counted() {
        let contained = Contained::default();
        assert_eq!(contained.run(|| 7), Some(7));
        assert_eq!(contained.panics(), 0);
        let nothing: Option<()> = contained.run(|| std::panic::resume_unwind(Box::new(Bomb)));
        assert_eq!((nothing, contained.panics()), (None, 1));
    }

    #[test]
    fn a_panic_during_another_is_kept_too() {
        struct Guard<'a>(&'a Contained);

        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.run(|| panic!("on purpose"));
            }
        }

        let contained = Contained::default();
        let outer = catch_unwind(AssertUnwindSafe(|| {
            let _guard = Guard(&contained);
            std::panic::resume_unwind(Box::new("the first"));
        }));
        assert!(outer.is_err());
        assert_eq!(contained.panics(), 1);
    }
}
