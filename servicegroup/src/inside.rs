//! Which groups' services the present task or thread runs, so that none waits for its own end.

use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static INSIDE: Arc<Inside>;
}

/// A group and those that it is nested in.
#[derive(Debug)]
pub(crate) struct Inside {
    group: u64,
    outer: Option<Arc<Inside>>,
}

impl Inside {
    /// `group`, within what the caller is inside of.
    pub(crate) fn enter(group: u64) -> Arc<Inside> {
        Arc::new(Inside {
            group,
            outer: INSIDE.try_with(Arc::clone).ok(),
        })
    }

    pub(crate) fn scope<F: Future>(
        self: Arc<Self>,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        INSIDE.scope(self, future)
    }
}

/// Carries what the caller is inside of to a thread that `body` runs on.
pub(crate) fn carry<T>(body: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let inside = INSIDE.try_with(Arc::clone).ok();
    move || match inside {
        Some(inside) => INSIDE.sync_scope(inside, body),
        None => body(),
    }
}

pub(crate) fn is_inside(group: u64) -> bool {
    INSIDE
        .try_with(|inside| {
            let mut next = Some(inside);
            while let Some(inside) = next {
                if inside.group == group {
                    return true;
                }
                next = inside.outer.as_ref();
            }
            false
        })
        .unwrap_or(false)
}
