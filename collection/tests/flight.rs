//! `SingleFlight` through its public face: sharing, errors, panics, cancellation, recursion.

mod support {
    pub(crate) mod asleep;
    pub(crate) mod within;
}

use std::future::{Future, pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};

use wheelhouse_collection::{FlightError, SingleFlight};

use support::asleep::await_asleep;
use support::within::within_a_minute;

type Group = Arc<SingleFlight<&'static str, u32, &'static str>>;
type Answer = Result<u32, FlightError<&'static str>>;
/// What a leader is told to do.
type End = fn() -> Result<u32, &'static str>;

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A thread that leads "key" until it is told how to end.
fn lead(group: &Group) -> (mpsc::Sender<End>, JoinHandle<Answer>) {
    let (end, told) = mpsc::channel::<End>();
    let (begun, begins) = mpsc::channel();
    let group = group.clone();
    let leader = thread::spawn(move || {
        group.try_run("key", || {
            begun.send(()).unwrap();
            told.recv().unwrap()()
        })
    });
    begins.recv().unwrap();
    (end, leader)
}

/// Threads that wait for "key", each with a value of its own from 100.
fn wait(group: &Group, name: &str, count: u32) -> Vec<JoinHandle<Answer>> {
    let spawn = |value| {
        let group = group.clone();
        let body = move || group.run("key", || 100 + value);
        thread::Builder::new()
            .name(name.into())
            .spawn(body)
            .unwrap()
    };
    let waiters = (0..count).map(spawn).collect();
    await_asleep(name, count as usize);
    waiters
}

fn join(waiters: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    waiters
        .into_iter()
        .map(|waiter| waiter.join().unwrap())
        .collect()
}

#[test]
fn all_who_wait_get_the_value_of_the_one_who_leads() {
    within_a_minute(|| {
        let group = Group::default();
        let (end, leader) = lead(&group);
        let waiters = wait(&group, "all-who-wait", 8);
        assert_eq!(group.stats().in_flight, 1);
        end.send(|| Ok(1)).unwrap();
        assert_eq!(leader.join().unwrap(), Ok(1));
        assert_eq!(join(waiters), [Ok(1); 8]);

        let stats = group.stats();
        assert_eq!((stats.led, stats.joined), (1, 8));
        assert_eq!((stats.handed_over, stats.in_flight), (0, 0));
        // Nothing is kept.
        assert_eq!(group.run("key", || 2), Ok(2));
    });
}

/// An error is everybody's, and not kept either.
#[test]
fn all_who_wait_get_the_error_of_the_one_who_leads() {
    within_a_minute(|| {
        let group = Group::default();
        let (end, leader) = lead(&group);
        let waiters = wait(&group, "all-who-fail", 4);
        end.send(|| Err("down")).unwrap();
        let failed = Err(FlightError::Failed("down"));
        assert_eq!(leader.join().unwrap(), failed);
        assert_eq!(join(waiters), [failed; 4]);
        assert_eq!(group.run("key", || 2), Ok(2));
    });
}

/// The panic is the leader's; the first who waits computes, and the others get that value.
#[test]
fn panic_hands_over() {
    within_a_minute(|| {
        let group = Group::default();
        let (end, leader) = lead(&group);
        let waiters = wait(&group, "panic-hands", 3);
        end.send(|| panic!("the leader's own")).unwrap();
        let payload = leader.join().unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"the leader's own"));

        let answers = join(waiters);
        let stats = group.stats();
        assert_eq!(stats.in_flight, 0);
        assert_eq!(stats.led + stats.joined, 4);
        assert!(stats.handed_over >= 1);
        for answer in &answers {
            assert!(
                answer.is_ok_and(|value| (100..103).contains(&value)),
                "{answers:?}"
            );
        }
    });
}

/// With nobody waiting, a panic leaves nothing behind.
#[test]
fn panic_of_a_lone_leader_leaves_nothing() {
    let group = Group::default();
    let call = || group.run("key", || panic!("alone"));
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    assert_eq!(group.stats().in_flight, 0);
    assert_eq!(group.run("key", || 1), Ok(1));

    let call = pin!(group.run_async("key", async { panic!("alone, too") }));
    assert!(catch_unwind(AssertUnwindSafe(|| poll(call))).is_err());
    assert_eq!(group.run("key", || 2), Ok(2));
    assert_eq!(group.stats().in_flight, 0);
}

#[test]
fn cancelled_leader_hands_over_to_the_next_in_line() {
    let group = Group::default();
    let mut leader = Box::pin(group.run_async("key", pending()));
    let mut second = pin!(group.run_async("key", ready(2)));
    let mut third = pin!(group.run_async("key", ready(3)));
    assert_eq!(poll(leader.as_mut()), Poll::Pending);
    assert_eq!(poll(second.as_mut()), Poll::Pending);
    assert_eq!(poll(third.as_mut()), Poll::Pending);
    drop(leader);
    // Not the third's turn yet, although it is asked first.
    assert_eq!(poll(third.as_mut()), Poll::Pending);
    assert_eq!(poll(second.as_mut()), Poll::Ready(Ok(2)));
    assert_eq!(poll(third.as_mut()), Poll::Ready(Ok(2)));
    let stats = group.stats();
    assert_eq!((stats.led, stats.joined, stats.handed_over), (2, 1, 1));
    assert_eq!(stats.in_flight, 0);
}

/// Dropped while queued, while promoted, and while leading a flight that nobody else is in.
#[test]
fn callers_may_be_dropped_at_any_point() {
    let group = Group::default();
    let mut calls: Vec<_> = (0..5)
        .map(|_| Some(Box::pin(group.run_async("key", pending()))))
        .collect();
    for call in calls.iter_mut().flatten() {
        assert_eq!(poll(call.as_mut()), Poll::Pending);
    }
    calls[2] = None; // queued
    calls[0] = None; // leading
    calls[1] = None; // promoted, not polled since
    let mut last = pin!(group.run_async("key", ready(9)));
    assert_eq!(poll(last.as_mut()), Poll::Pending);
    let mut heir = calls[3].take().unwrap();
    assert_eq!(poll(heir.as_mut()), Poll::Pending); // leads now
    calls[4] = None; // queued
    drop(heir);
    assert_eq!(poll(last.as_mut()), Poll::Ready(Ok(9)));
    assert_eq!(group.stats().in_flight, 0);

    // A future that is never polled takes no part.
    drop(group.run_async("key", pending()));
    assert_eq!(group.stats().led, 3);
}

/// A cancelled future wakes a thread that waits, and a thread's result reaches a future.
#[test]
fn threads_and_futures_share_flights() {
    within_a_minute(|| {
        let group = Group::default();
        let mut leader = Box::pin(group.run_async("key", pending()));
        assert_eq!(poll(leader.as_mut()), Poll::Pending);
        let waiters = wait(&group, "threads-and", 1);
        drop(leader);
        assert_eq!(join(waiters), [Ok(100)]);

        let (end, leader) = lead(&group);
        let mut waiter = pin!(group.run_async("key", ready(5)));
        assert_eq!(poll(waiter.as_mut()), Poll::Pending);
        end.send(|| Ok(4)).unwrap();
        assert_eq!(leader.join().unwrap(), Ok(4));
        assert_eq!(poll(waiter), Poll::Ready(Ok(4)));
    });
}

#[test]
fn recursion_is_an_error_and_no_hang() {
    within_a_minute(|| {
        let group = Group::default();
        let answer = group.try_run("key", || {
            assert_eq!(group.run("key", || 1), Err(FlightError::Recursive));
            // Through another key, too.
            let inner = group.try_run("other", || match group.run("key", || 1) {
                Err(FlightError::Recursive) => Err("recursive"),
                other => panic!("{other:?}"),
            });
            assert_eq!(inner, Err(FlightError::Failed("recursive")));
            // And the other way round a thread may go on with what is its own.
            group.run("third", || 3).map_err(|_| "no recursion here")
        });
        assert_eq!(answer, Ok(3));
        assert_eq!(group.stats().recursive, 2);
        assert_eq!(group.stats().in_flight, 0);
        assert_eq!(group.run("key", || 4), Ok(4));
    });
}

/// Time is virtual: a hang is found at once.
#[tokio::test(start_paused = true)]
async fn recursion_of_a_future_is_an_error_and_no_hang() {
    let within = tokio::time::timeout(std::time::Duration::from_secs(60), recursion_of_a_future());
    within.await.expect("it hangs");
}

async fn recursion_of_a_future() {
    let group = Group::default();
    let answer = group.run_async("key", async {
        tokio::task::yield_now().await;
        let inner = group.run_async("key", pending()).await;
        assert_eq!(inner, Err(FlightError::Recursive));
        let inner = tokio::join!(group.run_async("key", pending()), ready(())).0;
        assert_eq!(inner, Err(FlightError::Recursive));
        7
    });
    assert_eq!(answer.await, Ok(7));

    // One that sat down before, and is waited for by the leader it waits for.
    let (send, receive) = tokio::sync::oneshot::channel();
    let mut leader = Box::pin(group.run_async("key", async {
        let waiter: Pin<Box<dyn Future<Output = Answer>>> = receive.await.unwrap();
        match waiter.await {
            Err(FlightError::Recursive) => 8,
            other => panic!("{other:?}"),
        }
    }));
    assert_eq!(poll(leader.as_mut()), Poll::Pending);
    let mut waiter: Pin<Box<dyn Future<Output = Answer>>> =
        Box::pin(group.run_async("key", pending()));
    assert_eq!(poll(waiter.as_mut()), Poll::Pending);
    assert!(send.send(waiter).is_ok());
    assert_eq!(leader.await, Ok(8));
    assert_eq!(group.stats().in_flight, 0);
}

/// A leader that is between polls is not on this thread: who comes then waits as usual.
#[test]
fn same_thread_may_wait_for_a_future_that_is_not_being_polled() {
    let group = Group::default();
    let mut polls = 0;
    let work = std::future::poll_fn(|_| {
        polls += 1;
        if polls < 3 {
            Poll::Pending
        } else {
            Poll::Ready(6)
        }
    });
    let mut leader = pin!(group.run_async("key", work));
    let mut waiter = pin!(group.run_async("key", pending()));
    assert_eq!(poll(leader.as_mut()), Poll::Pending);
    assert_eq!(poll(waiter.as_mut()), Poll::Pending);
    assert_eq!(poll(leader.as_mut()), Poll::Pending);
    assert_eq!(poll(waiter.as_mut()), Poll::Pending);
    assert_eq!(poll(leader.as_mut()), Poll::Ready(Ok(6)));
    assert_eq!(poll(waiter.as_mut()), Poll::Ready(Ok(6)));
}

/// Those who wait for a forgotten flight get its result; who comes later starts afresh at once.
#[test]
fn forgotten_flight_ends_with_those_who_are_in_it() {
    let group = Group::default();
    let (send, receive) = tokio::sync::oneshot::channel();
    let mut old = pin!(group.run_async("key", async { receive.await.unwrap() }));
    let mut old_waiter = pin!(group.run_async("key", pending()));
    assert_eq!(poll(old.as_mut()), Poll::Pending);
    assert_eq!(poll(old_waiter.as_mut()), Poll::Pending);
    assert!(group.forget(&"key"));
    assert!(!group.forget(&"key"));

    let mut new = Box::pin(group.run_async("key", pending()));
    let mut new_waiter = pin!(group.run_async("key", ready(3)));
    assert_eq!(poll(new.as_mut()), Poll::Pending);
    assert_eq!(poll(new_waiter.as_mut()), Poll::Pending);
    send.send(1).unwrap();
    assert_eq!(poll(old.as_mut()), Poll::Ready(Ok(1)));
    assert_eq!(poll(old_waiter.as_mut()), Poll::Ready(Ok(1)));

    // The old one has not taken the new one away.
    assert_eq!(group.stats().in_flight, 1);
    drop(new);
    assert_eq!(poll(new_waiter.as_mut()), Poll::Ready(Ok(3)));

    // A forgotten leader hands over among its own.
    let mut old = Box::pin(group.run_async("key", pending()));
    let mut heir = pin!(group.run_async("key", ready(4)));
    assert_eq!(poll(old.as_mut()), Poll::Pending);
    assert_eq!(poll(heir.as_mut()), Poll::Pending);
    group.forget(&"key");
    drop(old);
    assert_eq!(poll(heir.as_mut()), Poll::Ready(Ok(4)));
    assert_eq!(group.stats().in_flight, 0);
}

/// 100 callers, many rounds: one computation in each, since all have come before it ends.
#[test]
fn one_computation_a_round() {
    let group = Group::default();
    let calls = AtomicU32::new(0);
    for round in 0..1000 {
        let work = || async {
            let ready = calls.fetch_add(1, SeqCst);
            tokio::task::yield_now().await;
            ready
        };
        let mut callers: Vec<_> = (0..100)
            .map(|_| Box::pin(group.run_async("key", work())))
            .collect();
        assert!(
            callers
                .iter_mut()
                .all(|call| poll(call.as_mut()).is_pending())
        );
        for call in &mut callers {
            assert_eq!(poll(call.as_mut()), Poll::Ready(Ok(round)));
        }
    }
    assert_eq!(calls.into_inner(), 1000);
}

/// A clone that panics is the trouble of who asked for it.
#[test]
fn panic_of_a_clone_is_its_callers_own() {
    struct Fragile(AtomicU32);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert_ne!(self.0.fetch_add(1, SeqCst), 0, "the first clone");
            Fragile(AtomicU32::new(10))
        }
    }

    let group = SingleFlight::<u8, Fragile>::new();
    let (send, receive) = tokio::sync::oneshot::channel();
    let mut leader = pin!(group.run_async(1, async { receive.await.unwrap() }));
    let mut second = pin!(group.run_async(1, pending()));
    let mut third = pin!(group.run_async(1, pending()));
    assert!(poll(leader.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    assert!(poll(third.as_mut()).is_pending());
    assert!(send.send(Fragile(AtomicU32::new(0))).is_ok());
    // The leader needs a clone, since others wait for the same.
    assert!(catch_unwind(AssertUnwindSafe(|| poll(leader.as_mut()))).is_err());
    assert!(matches!(poll(second.as_mut()), Poll::Ready(Ok(_))));
    assert!(matches!(poll(third.as_mut()), Poll::Ready(Ok(_))));
    assert_eq!(group.stats().in_flight, 0);
}

/// Keys are computed side by side, each by one.
#[test]
fn keys_do_not_wait_for_each_other() {
    let group = Group::default();
    let mut one = pin!(group.run_async("one", pending()));
    assert_eq!(poll(one.as_mut()), Poll::Pending);
    assert_eq!(group.run("two", || 2), Ok(2));
    assert_eq!(group.stats().in_flight, 1);
}

#[test]
fn futures_are_send() {
    fn check<T: Send>(_: &T) {}
    let group = SingleFlight::<String, Vec<u8>, String>::new();
    check(&group.run_async("key".into(), async { Vec::new() }));
    check(&group.try_run_async("key".into(), async { Err("no".to_string()) }));
}
