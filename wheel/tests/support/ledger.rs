//! A ledger of values: each has a number, and leaves exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

/// How often the value of each number has left, that is, was dropped.
///
/// Relaxed throughout: the counts are read after the threads that wrote them were joined.
#[derive(Debug, Clone)]
pub(crate) struct Ledger(Arc<Pages>);

#[derive(Debug)]
struct Pages {
    issued: AtomicUsize,
    exits: Box<[AtomicU8]>,
}

impl Ledger {
    pub(crate) fn new(capacity: usize) -> Self {
        Ledger(Arc::new(Pages {
            issued: AtomicUsize::new(0),
            exits: (0..capacity).map(|_| AtomicU8::new(0)).collect(),
        }))
    }

    /// The next value; `None` when the pages are full.
    pub(crate) fn issue(&self) -> Option<Token> {
        let id = self.0.issued.fetch_add(1, Relaxed);
        (id < self.0.exits.len()).then(|| Token {
            id,
            ledger: self.clone(),
        })
    }

    /// The number of values issued, each of which must have left exactly once.
    pub(crate) fn close(&self) -> usize {
        let issued = self.0.issued.load(Relaxed).min(self.0.exits.len());
        for (id, exits) in self.0.exits[..issued].iter().enumerate() {
            assert_eq!(exits.load(Relaxed), 1, "value {id} of {issued}");
        }
        issued
    }
}

/// A value in a ledger.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) id: usize,
    ledger: Ledger,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.0.exits[self.id].fetch_add(1, Relaxed);
    }
}
