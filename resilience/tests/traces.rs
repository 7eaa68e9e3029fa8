//! What a breaker tells of itself is traced to whoever listens, and a listener that panics ends nothing.
//!
//! The only tests that listen, in a program of their own: whether anybody listens to an event is
//! kept for the whole process, by whichever thread comes to it first.
#![cfg(feature = "tracing")]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wheelhouse_resilience::{Breaker, State};

/// Listens to all threads, and keeps for each what it was told of there.
struct Heard;

thread_local! {
    static LEVELS: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
    static PANICS: RefCell<bool> = const { RefCell::new(false) };
}

impl Subscriber for Heard {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        LEVELS.with_borrow_mut(|levels| levels.push(*event.metadata().level()));
        assert!(
            !PANICS.with_borrow(|panics| *panics),
            "a subscriber's own fault"
        );
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// From here on this thread's events are heard.
fn listen(panics: bool) {
    static LISTENS: Once = Once::new();
    LISTENS.call_once(|| tracing::subscriber::set_global_default(Heard).unwrap());
    PANICS.set(panics);
}

#[test]
fn transitions_are_traced() {
    listen(false);
    let breaker = Breaker::consecutive().build().unwrap();
    (0..6).for_each(|_| breaker.try_acquire().unwrap().failure());
    breaker.reset();
    assert_eq!(LEVELS.take(), [Level::WARN, Level::INFO]);
}

#[test]
fn a_subscriber_that_panics_ends_no_events() {
    listen(true);
    let breaker = Breaker::consecutive().build().unwrap();
    let events = breaker.subscribe();
    for _ in 0..6 {
        let call = || breaker.call(|| -> Result<(), ()> { panic!("in the call") });
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    }
    breaker.reset();
    let told = std::iter::from_fn(|| events.try_next()).map(|event| event.to);
    assert_eq!(told.collect::<Vec<_>>(), [State::Open, State::Closed]);
    assert_eq!(breaker.stats().hook_panics, 2);
}
