//! Models of how those who take, give back, wait, leave and resize meet, on the shipped code.
//!
//! Each names the guarantee that it checks and a mutation that makes it fail. Somebody who waits for
//! ever is found as a deadlock.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use loom::future::block_on;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

use super::Bulkhead;

/// Waits for a permit and gives it back.
fn wait(bulkhead: &Bulkhead) {
    let permit = block_on(bulkhead.acquire()).expect("the queue has places for all");
    drop(permit);
}

/// Somebody who is dropped after one look: with a permit, in the queue, or granted one meanwhile.
fn come_and_go(bulkhead: &Bulkhead) {
    let acquire = pin!(bulkhead.acquire());
    let _ = acquire.poll(&mut Context::from_waker(Waker::noop()));
}

/// Ends with every permit back and nobody in the queue.
fn check_over(bulkhead: &Bulkhead) {
    assert_eq!((bulkhead.in_use(), bulkhead.queued()), (0, 0));
    let permits = bulkhead.permits();
    let all: Vec<_> = (0..permits).map(|_| bulkhead.try_acquire()).collect();
    assert!(all.iter().all(Result::is_ok), "queued was left set");
    assert!(bulkhead.try_acquire().is_err());
}

/// B1: holders of the only permit follow each other, and each sees what the one before did. Fails
/// when `exchange` takes with Relaxed, and when `put_back` gives back with Relaxed.
#[test]
fn holders_follow_each_other() {
    loom::model(|| {
        let bulkhead = Bulkhead::builder(1).queue(1).build().unwrap();
        let count = Arc::new(AtomicU32::new(0));
        let hold = |bulkhead: &Bulkhead, count: &AtomicU32| {
            let permit = block_on(bulkhead.acquire()).expect("the queue has a place");
            // Not an addition: without the order, one of the two would be lost.
            count.store(count.load(Relaxed) + 1, Relaxed);
            drop(permit);
        };
        let (others, theirs) = (bulkhead.clone(), count.clone());
        let other = thread::spawn(move || hold(&others, &theirs));
        hold(&bulkhead, &count);
        other.join().expect("no panic");
        assert_eq!(count.load(Relaxed), 2);
        check_over(&bulkhead);
    });
}

/// B3: the permit comes back while somebody sits down, and reaches them. Fails when `put_back` does
/// not hand over, and when `take_or_queue` sets queued without looking for room in the same word.
#[test]
fn freed_permit_reaches_who_sits_down() {
    loom::model(|| {
        let bulkhead = Bulkhead::builder(1).queue(1).build().unwrap();
        let held = bulkhead.try_acquire_owned().expect("it is free");
        let others = bulkhead.clone();
        let other = thread::spawn(move || wait(&others));
        drop(held);
        other.join().expect("no panic");
        check_over(&bulkhead);
    });
}

/// B3: the permit comes back while the first in the queue leaves, and reaches the other. Fails when a
/// future that is dropped does not give back the permit that it was granted, and when `leave` clears
/// queued while others wait.
#[test]
fn freed_permit_passes_who_leaves() {
    loom::model(|| {
        let bulkhead = Bulkhead::builder(1).queue(2).build().unwrap();
        let held = bulkhead.try_acquire_owned().expect("it is free");
        let (first, second) = (bulkhead.clone(), bulkhead.clone());
        let first = thread::spawn(move || come_and_go(&first));
        let second = thread::spawn(move || wait(&second));
        drop(held);
        first.join().expect("no panic");
        second.join().expect("no panic");
        check_over(&bulkhead);
    });
}

/// B1, B3: the number of permits goes to 0 and back while the only one comes back: who waits gets it
/// in the end. Fails when `resize` does not hand over.
#[test]
fn resize_meets_release() {
    loom::model(|| {
        let bulkhead = Bulkhead::builder(1).queue(1).build().unwrap();
        let held = bulkhead.try_acquire_owned().expect("it is free");
        let (waiting, resized) = (bulkhead.clone(), bulkhead.clone());
        let waiter = thread::spawn(move || wait(&waiting));
        let resizer = thread::spawn(move || {
            resized.resize(0).unwrap();
            resized.resize(1).unwrap();
        });
        drop(held);
        waiter.join().expect("no panic");
        resizer.join().expect("no panic");
        check_over(&bulkhead);
    });
}
