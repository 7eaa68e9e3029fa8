//! Models of how the callers of a flight meet, on the shipped code.
//!
//! Each names the guarantee that it checks and a mutation that makes it fail. A caller that waits for
//! ever is found as a deadlock.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};

use loom::thread;

use super::SingleFlight;

type Group = Arc<SingleFlight<u8, u32>>;

/// A caller that is dropped after one look: while it leads, while it waits, or with a result.
fn come_and_go(group: &Group) {
    let call = pin!(group.run_async(7, pending()));
    let _ = call.poll(&mut Context::from_waker(Waker::noop()));
}

/// Ends with nothing in flight.
fn check_over(group: &Group) {
    assert_eq!(group.stats().in_flight, 0);
}

/// G5: a caller comes while another leads, and gets its value or computes its own, one at a time.
/// Fails when `land` does not wake those who wait.
#[test]
fn one_leads_and_the_other_joins_or_comes_later() {
    loom::model(|| {
        let group = Group::default();
        let running = Arc::new(AtomicUsize::new(0));
        let call = |group: &Group, running: &AtomicUsize, value| {
            group.run(7, || {
                assert_eq!(running.fetch_add(1, Relaxed), 0);
                thread::yield_now();
                running.fetch_sub(1, Relaxed);
                value
            })
        };
        let (others, theirs) = (group.clone(), running.clone());
        let other = thread::spawn(move || call(&others, &theirs, 1));
        let mine = call(&group, &running, 2).expect("no recursion");
        let other = other.join().expect("no panic").expect("no recursion");
        let stats = group.stats();
        assert_eq!(
            (stats.led, stats.joined),
            if mine == other { (1, 1) } else { (2, 0) }
        );
        check_over(&group);
    });
}

/// G5: the leader is dropped while another comes, which then computes itself. Fails when `abandon`
/// does not wake the next, and when it takes the flight out of the map after it has found nobody
/// waiting, instead of while it looks.
#[test]
fn cancelled_leader_hands_over() {
    loom::model(|| {
        let group = Group::default();
        let others = group.clone();
        let other = thread::spawn(move || come_and_go(&others));
        assert_eq!(group.run(7, || 2), Ok(2));
        other.join().expect("no panic");
        check_over(&group);
    });
}

/// G5: the leader goes, and so does the one that was promoted, before it noticed. Fails when a
/// promoted caller that is dropped gives up its seat without handing over.
#[test]
fn cancelled_heir_hands_over() {
    loom::model(|| {
        let group = Group::default();
        let (first, second) = (group.clone(), group.clone());
        let first = thread::spawn(move || come_and_go(&first));
        let second = thread::spawn(move || come_and_go(&second));
        assert_eq!(group.run(7, || 3), Ok(3));
        first.join().expect("no panic");
        second.join().expect("no panic");
        check_over(&group);
    });
}

/// A flight that is forgotten while a caller comes: the caller joins it or starts afresh, and the
/// leader of the old one does not take the new one away. Fails when `land` removes whatever flight it
/// finds under its key: then two compute the key at once.
#[test]
fn forgotten_flight_leaves_the_new_one_alone() {
    loom::model(|| {
        let group = Group::default();
        let others = group.clone();
        let other = thread::spawn(move || {
            others.run(7, || {
                others.forget(&7);
                1
            })
        });
        let running = group.run(7, || {
            thread::yield_now();
            u32::from(group.stats().in_flight == 1) * 2
        });
        assert_ne!(running, Ok(0), "the new flight was taken away");
        let other = other.join().expect("no panic");
        assert!(other == Ok(1) || other == running, "{other:?}");
        check_over(&group);
    });
}
