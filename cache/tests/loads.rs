//! Loads: one at a time, never stored behind the back of a change, handed over and never hung.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use wheelhouse_cache::{Cache, Computed, Loaded, Op, TakeError};
use wheelhouse_wheel::ManualClock;

fn cache() -> Cache<u32, u32> {
    Cache::builder().capacity(100).build().unwrap()
}

/// Runs `change` while a load of key 1 that gives 10 is under way, beside `waiters` callers.
fn overtaken(cache: &Cache<u32, u32>, waiters: usize, change: impl FnOnce()) -> Vec<u32> {
    let (begun, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let leader = scope.spawn(move || {
            let load = |_: &u32| {
                begun.send(()).unwrap();
                goes_on.recv().unwrap();
                10
            };
            cache.take(1, load).unwrap()
        });
        begins.recv().unwrap();
        let others: Vec<_> = (0..waiters)
            .map(|_| scope.spawn(|| cache.take(1, |_| 11).unwrap()))
            .collect();
        // They have missed, and wait: the misses are counted before they board.
        while cache.stats().misses < 1 + waiters as u64 {
            thread::yield_now();
        }
        change();
        go_on.send(()).unwrap();
        let first = leader.join().unwrap();
        let others = others.into_iter().map(|other| other.join().unwrap());
        std::iter::once(first).chain(others).collect()
    })
}

#[test]
fn c42_c62_c80_a_load_behind_a_removal_is_not_stored() {
    let cache = cache();
    let got = overtaken(&cache, 8, || assert_eq!(cache.remove(&1), None));
    assert_eq!(got, [10; 9], "all who asked before get it");
    assert_eq!(cache.peek(&1), None);
    assert_eq!(cache.take(1, |_| 20), Ok(20), "afresh");
}

#[test]
fn c69_c83_c84_a_load_behind_a_set_is_not_stored() {
    let cache = cache();
    let got = overtaken(&cache, 0, || cache.set(1, 99).unwrap());
    assert_eq!(got, [10]);
    assert_eq!(cache.get(&1), Some(99));
}

#[test]
fn c10_c41_a_load_behind_a_clear_is_not_stored() {
    let cache = cache();
    overtaken(&cache, 0, || cache.clear());
    assert!(cache.is_empty());
    cache.set(1, 1).unwrap();
    cache.clear();
    assert_eq!(cache.get(&1), None);
}

#[test]
fn c80_one_begun_after_the_removal_does_not_join() {
    let cache = cache();
    let got = overtaken(&cache, 0, || {
        cache.remove(&1);
        assert_eq!(cache.take(1, |_| 30), Ok(30));
    });
    assert_eq!(got, [10]);
    assert_eq!(cache.peek(&1), Some(30));
}

#[test]
fn c7_c39_a_panic_is_its_callers_own() {
    let cache = cache();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        cache.take(1, |_| -> u32 { panic!("as planned") })
    }));
    assert!(panicked.is_err());
    assert_eq!(cache.take(1, |_| 2), Ok(2));
}

/// Interleaving 7: those who wait for a load that panics load themselves.
#[test]
fn a_panicking_leader_hands_over() {
    let cache = cache();
    let (begun, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let cache = &cache;
    thread::scope(|scope| {
        let leader = scope.spawn(move || {
            let take = || {
                cache.take(1, |_| -> u32 {
                    begun.send(()).unwrap();
                    goes_on.recv().unwrap();
                    panic!("as planned")
                })
            };
            catch_unwind(AssertUnwindSafe(take)).is_err()
        });
        begins.recv().unwrap();
        let waiter = scope.spawn(|| cache.take(1, |_| 5));
        while cache.stats().misses < 2 {
            thread::yield_now();
        }
        go_on.send(()).unwrap();
        assert!(leader.join().unwrap());
        assert_eq!(waiter.join().unwrap(), Ok(5));
    });
    assert_eq!(cache.get(&1), Some(5));
}

#[test]
fn c49_a_load_of_itself_is_an_error() {
    let cache = cache();
    let outer = cache.try_take(1, |_| {
        let inner = cache.take(1, |_| 1);
        assert_eq!(inner, Err(TakeError::Recursive));
        inner
    });
    let TakeError::Failed(error) = outer.unwrap_err() else {
        panic!("the load failed");
    };
    assert_eq!(*error, TakeError::Recursive);
}

#[test]
fn c53_a_failure_is_not_kept() {
    let cache = cache();
    let failed = cache.try_take(1, |_| Err::<u32, _>("no"));
    assert_eq!(failed.unwrap_err().to_string(), "no");
    assert_eq!(cache.try_take(1, |_| Ok::<_, &str>(3)), Ok(3));
    let stats = cache.stats();
    assert_eq!((stats.loads_ok, stats.loads_failed), (1, 1));
}

#[test]
fn c63_one_load_per_round() {
    let cache = cache();
    let loads = AtomicUsize::new(0);
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for round in 0..200 {
                    barrier.wait();
                    let value = cache.take(round, |_| {
                        loads.fetch_add(1, Ordering::Relaxed);
                        round * 2
                    });
                    assert_eq!(value, Ok(round * 2));
                }
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 200);
}

#[test]
fn c79_everybody_gets_the_error() {
    let cache = cache();
    let (begun, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel::<()>();
    let cache = &cache;
    thread::scope(|scope| {
        let leader = scope.spawn(move || {
            cache.try_take(1, |_| {
                begun.send(()).unwrap();
                goes_on.recv().unwrap();
                Err::<u32, _>("down")
            })
        });
        begins.recv().unwrap();
        let others: Vec<_> = (0..10)
            .map(|_| scope.spawn(move || cache.try_take(1, |_| Ok::<u32, &str>(1))))
            .collect();
        while cache.stats().misses < 11 {
            thread::yield_now();
        }
        // Each boards within moments of its miss; one that came too late would load by itself.
        thread::sleep(Duration::from_millis(200));
        go_on.send(()).unwrap();
        let down = |result: Result<u32, TakeError<&str>>| {
            assert_eq!(result.unwrap_err().to_string(), "down");
        };
        down(leader.join().unwrap());
        for other in others {
            down(other.join().unwrap());
        }
    });
    assert_eq!(cache.stats().coalesced, 10);
}

#[test]
fn c85_a_load_may_say_how_long_its_value_lives() {
    let clock = ManualClock::new();
    let cache = Cache::<u32, u32>::builder()
        .capacity(10)
        .jitter(0.0)
        .time_to_live(Duration::from_secs(100))
        .clock(clock.clone())
        .build()
        .unwrap();
    let second = Duration::from_secs(1);
    assert_eq!(cache.take(1, |_| Loaded::with_ttl(1, second)), Ok(1));
    let none = cache.take(2, |_| Loaded::with_ttl(2, Duration::ZERO));
    assert_eq!(none, Ok(2), "its caller gets it");
    assert_eq!(cache.peek(&2), None, "and nobody else");
    clock.advance(second);
    assert_eq!(cache.take(1, |_| 7), Ok(7));
}

#[test]
fn c87_closed_means_closed() {
    let cache = cache();
    cache.set(1, 1).unwrap();
    cache.close();
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.set(2, 5).unwrap_err().value, 5);
    assert_eq!(cache.remove(&1), None);
    assert_eq!(cache.take(1, |_| 1), Err(TakeError::Closed));
    let computed = cache.compute(1, |_| Op::Put(9));
    assert_eq!(computed.unwrap_err().value, 9);
    assert!(cache.is_empty());
}

#[test]
fn c4_computations_do_not_lose_each_other() {
    let cache = Cache::<u32, u32>::builder()
        .capacity(1_000)
        .build()
        .unwrap();
    thread::scope(|scope| {
        for thread in 0..8 {
            let cache = &cache;
            scope.spawn(move || {
                for k in 0..500 {
                    let count = |value: Option<&u32>| Op::Put(value.map_or(1, |sum| sum + 1));
                    cache.compute(0, count).unwrap();
                    cache.set(1 + (k + thread * 50) % 400, k).unwrap();
                }
            });
        }
    });
    assert_eq!(cache.get(&0), Some(4_000));
}

#[test]
fn what_a_computation_did_is_in_its_answer() {
    let cache = cache();
    let keep = |_: Option<&u32>| Op::Keep;
    assert_eq!(cache.compute(1, keep), Ok(Computed::Nothing));
    assert_eq!(cache.compute(1, |_| Op::Put(4)), Ok(Computed::Inserted(4)));
    assert_eq!(cache.compute(1, keep), Ok(Computed::Kept(4)));
    assert_eq!(cache.compute(1, |_| Op::Remove), Ok(Computed::Removed(4)));
    assert_eq!(cache.compute(1, |_| Op::Remove), Ok(Computed::Nothing));
    for key in 0..50 {
        cache.set(key, key).unwrap();
    }
    cache.retain(|key, _| key % 2 == 0);
    assert_eq!(cache.len(), 25);
    assert_eq!(cache.remove_if(&2, |_, value| *value == 3), None);
    assert_eq!(cache.remove_if(&2, |_, value| *value == 2), Some(2));
}

#[tokio::test(flavor = "current_thread")]
async fn c8_a_cancelled_load_leaves_nothing_behind() {
    let cache = cache();
    for key in 0..1_000 {
        let load = cache.take_async(key, std::future::pending::<u32>());
        let polled = tokio::time::timeout(Duration::ZERO, load).await;
        assert!(polled.is_err());
    }
    assert!(cache.is_empty());
    let slow = async {
        tokio::task::yield_now().await;
        7
    };
    let (one, other) = tokio::join!(cache.take_async(1, slow), cache.take_async(1, async { 8 }));
    assert_eq!((one, other), (Ok(7), Ok(7)));
    let failed = cache
        .try_take_async(2, async { Err::<u32, &str>("no") })
        .await;
    assert!(matches!(failed, Err(TakeError::Failed(_))));
    let fine: Result<u32, TakeError<Infallible>> = cache.take_async(2, async { 4 }).await;
    assert_eq!(fine, Ok(4));
}

#[test]
fn many_keys_are_loaded_at_once_and_fenced_one_by_one() {
    let cache = cache();
    cache.set(2, 20).unwrap();
    let values = cache.take_many([1, 2, 3, 1, 4], |missing| {
        assert_eq!(missing, [1, 3, 4]);
        cache.set(3, 99).unwrap();
        [(1, 10), (3, 30), (5, 50)]
    });
    let values = values.unwrap();
    assert_eq!(values, [Some(10), Some(20), Some(30), Some(10), None]);
    assert_eq!(cache.peek(&1), Some(10));
    assert_eq!(cache.peek(&3), Some(99), "it was set meanwhile");
    assert_eq!((cache.peek(&4), cache.peek(&5)), (None, None));
    assert_eq!(cache.stats().loads_ok, 1);
    let none: [(u32, u32); 0] = [];
    let values = cache.take_many([1, 2], |_| -> [(u32, u32); 0] {
        panic!("nothing is missing")
    });
    assert_eq!(values.unwrap(), [Some(10), Some(20)]);
    assert_eq!(cache.take_many([], |_| none).unwrap(), []);
}

#[test]
fn many_keys_fail_together() {
    let cache: Cache<u32, u32> = Cache::builder()
        .capacity(100)
        .negative_ttl(Duration::from_secs(1))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let failing = |_: &[u32]| Err::<[(u32, u32); 0], _>("no");
    let error = cache.try_take_many([1, 2], failing).unwrap_err();
    assert!(matches!(error, TakeError::Failed(error) if *error == "no"));
    let one = cache.try_take(2, |_| Ok::<u32, &str>(1));
    assert!(
        matches!(one, Err(TakeError::Failed(_))),
        "remembered for each"
    );
    let caught = catch_unwind(AssertUnwindSafe(|| {
        cache.take_many([7], |_| -> [(u32, u32); 0] { panic!("on purpose") })
    }));
    assert!(caught.is_err());
    assert_eq!(cache.take(7, |_| 70), Ok(70));
    cache.close();
    let closed = cache.take_many([1], |_| [(1, 1)]).unwrap_err();
    assert_eq!(closed, TakeError::Closed);
}

#[tokio::test]
async fn many_keys_are_loaded_by_a_future() {
    let cache = cache();
    cache.set(2, 20).unwrap();
    let load = |missing: Vec<u32>| async move {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(missing.into_iter().map(|key| (key, key * 10)))
    };
    let values = cache.try_take_many_async([1, 2, 3], load).await.unwrap();
    assert_eq!(values, [Some(10), Some(20), Some(30)]);
    // Dropped half way, it leaves nothing behind.
    let never = |_: Vec<u32>| std::future::pending::<Result<Vec<(u32, u32)>, Infallible>>();
    let asked = cache.try_take_many_async([4], never);
    tokio::time::timeout(Duration::from_millis(1), asked)
        .await
        .unwrap_err();
    assert_eq!(cache.take(4, |_| 40), Ok(40));
    assert_eq!(cache.peek(&4), Some(40));
}
