//! User code that panics, where nothing may: under a delivery, or in the drop of a permit.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `user` returns; `None` when it panics. State that it has left half changed is its own.
pub(super) fn contained<T>(user: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(user)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // The payload is the user's too, and its drop may panic in turn.
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(another);
            }
            None
        }
    }
}

/// Says which code of the user's has panicked.
pub(super) fn report(what: &'static str, name: &str) {
    #[cfg(feature = "tracing")]
    let _ = contained(|| tracing::error!(name, "a {what} panicked"));
    #[cfg(not(feature = "tracing"))]
    let _ = (what, name);
}

#[cfg(all(test, not(wheelhouse_loom)))]
mod tests {
    use super::*;

    struct Spiteful;

    impl Drop for Spiteful {
        fn drop(&mut self) {
            panic!("in the drop of a payload");
        }
    }

    #[test]
    fn a_payload_that_panics_is_contained_too() {
        assert_eq!(contained(|| std::panic::panic_any(Spiteful)), None::<()>);
        assert_eq!(contained(|| 7), Some(7));
    }
}
