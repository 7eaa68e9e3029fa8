//! Values that are loaded anew in the background, and failures that are remembered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use wheelhouse_cache::{Builder, Cache, Cause, Loaded, Reload, TakeError};
use wheelhouse_wheel::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

/// Reloads that somebody is to run.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Vec<Reload>>>);

impl Waiting {
    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn take(&self) -> Vec<Reload> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn run(&self) {
        self.take().into_iter().for_each(Reload::run);
    }
}

/// Old after a second, gone after ten, whatever else is set.
fn refreshing(
    set: impl FnOnce(Builder<u32, u32>) -> Builder<u32, u32>,
) -> (Cache<u32, u32>, ManualClock, Waiting) {
    let (clock, waiting) = (ManualClock::new(), Waiting::default());
    let reloads = waiting.clone();
    let builder = Cache::builder()
        .capacity(10)
        .time_to_live(10 * SECOND)
        .jitter(0.0)
        .clock(clock.clone())
        .refresh_after(SECOND, move |reload| reloads.0.lock().unwrap().push(reload));
    (set(builder).build().unwrap(), clock, waiting)
}

fn fails(_: &u32) -> Result<u32, &'static str> {
    Err("no")
}

#[test]
fn c22_all_get_the_old_value_at_once_and_one_loads_anew() {
    let (cache, clock, waiting) = refreshing(|builder| builder);
    assert_eq!(cache.take_refreshing(1, |_| 10), Ok(10));
    clock.advance(SECOND - Duration::from_micros(1));
    assert_eq!(cache.take_refreshing(1, |_| 11), Ok(10));
    assert_eq!(waiting.len(), 0, "not old yet");
    clock.advance(SECOND);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..10)
            .map(|reader| {
                scope.spawn({
                    let cache = &cache;
                    move || cache.take_refreshing(1, move |_| 20 + reader)
                })
            })
            .collect();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Ok(10));
        }
    });
    assert_eq!((waiting.len(), cache.stats().reloads), (1, 1));
    waiting.run();
    let value = cache.take_refreshing(1, |_| 99).unwrap();
    assert!((20..30).contains(&value), "{value}");
    assert_eq!((waiting.len(), cache.stats().loads_ok), (0, 2));
    clock.advance(10 * SECOND);
    assert_eq!(cache.get(&1), None, "the deadline is the new value's");
}

#[test]
fn plain_callers_do_not_load_old_values() {
    let (cache, clock, waiting) = refreshing(|builder| builder);
    cache.set(1, 10).unwrap();
    clock.advance(5 * SECOND);
    assert_eq!(cache.get(&1), Some(10));
    assert_eq!(cache.take(1, |_| 11), Ok(10));
    assert_eq!(waiting.len(), 0);
}

#[test]
fn c44_a_load_that_hangs_holds_up_nobody() {
    let (cache, clock, waiting) = refreshing(|builder| builder.time_to_live(2 * SECOND));
    cache.set(1, 10).unwrap();
    clock.advance(SECOND);
    assert_eq!(cache.take_refreshing(1, |_| 11), Ok(10));
    let hanging = waiting.take();
    assert_eq!(hanging.len(), 1);
    clock.advance(2 * SECOND);
    assert_eq!(
        cache.take_refreshing(1, |_| 12),
        Ok(12),
        "in the foreground"
    );
    clock.advance(SECOND);
    assert_eq!(cache.take_refreshing(1, |_| 13), Ok(12));
    assert_eq!(waiting.len(), 1, "another load, although the first hangs");
    hanging.into_iter().for_each(Reload::run);
    assert_eq!(cache.peek(&1), Some(12), "too late to be stored");
    waiting.run();
    assert_eq!(cache.peek(&1), Some(13));
}

#[test]
fn c42_what_is_loaded_behind_a_removal_is_not_stored() {
    let (cache, clock, waiting) = refreshing(|builder| builder);
    for change in [0, 1, 2] {
        cache.set(1, 10).unwrap();
        clock.advance(2 * SECOND);
        assert_eq!(cache.take_refreshing(1, |_| 11), Ok(10));
        match change {
            0 => assert_eq!(cache.remove(&1), Some(10)),
            1 => cache.clear(),
            _ => cache.set(1, 12).unwrap(),
        }
        waiting.run();
        assert_eq!(cache.peek(&1), (change == 2).then_some(12));
    }
}

#[test]
fn a_load_that_is_dropped_is_made_by_the_next() {
    let (cache, clock, waiting) = refreshing(|builder| builder);
    cache.set(1, 10).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(cache.take_refreshing(1, |_| 11), Ok(10));
    drop(waiting.take());
    assert_eq!(cache.take_refreshing(1, |_| 12), Ok(10));
    waiting.run();
    assert_eq!(cache.peek(&1), Some(12));
    // One that panics is over too, and so is one that nobody could be given.
    clock.advance(2 * SECOND);
    assert_eq!(
        cache.take_refreshing(1, |_| -> u32 { panic!("on purpose") }),
        Ok(12)
    );
    let run = catch_unwind(AssertUnwindSafe(|| waiting.run()));
    assert!(run.is_err());
    assert_eq!(cache.take_refreshing(1, |_| 13), Ok(12));
    waiting.run();
    assert_eq!(cache.peek(&1), Some(13));
}

#[test]
fn a_spawn_that_panics_is_counted() {
    let clock = ManualClock::new();
    let cache = Cache::builder()
        .capacity(10)
        .time_to_live(10 * SECOND)
        .jitter(0.0)
        .clock(clock.clone())
        .refresh_after(SECOND, |_| panic!("on purpose"))
        .build()
        .unwrap();
    cache.set(1, 10).unwrap();
    clock.advance(2 * SECOND);
    for panics in 1..=3 {
        assert_eq!(cache.take_refreshing(1, |_| 11), Ok(10));
        assert_eq!(cache.stats().listener_panics, panics);
    }
}

#[test]
fn a_value_lives_longer_once_when_its_load_fails() {
    let (cache, clock, waiting) = refreshing(|builder| builder.stale_on_error(5 * SECOND));
    cache.set(1, 10).unwrap();
    clock.advance(9 * SECOND);
    for _ in 0..3 {
        // Each caller has it tried again, and the deadline is put off once.
        assert_eq!(cache.try_take_refreshing(1, fails), Ok(10));
        assert_eq!(waiting.len(), 1);
        waiting.run();
    }
    assert_eq!(cache.stats().loads_failed, 3);
    clock.advance(6 * SECOND - Duration::from_micros(1));
    assert_eq!(cache.get(&1), Some(10));
    clock.advance(Duration::from_micros(1));
    assert_eq!(cache.get(&1), None);
    let failed = cache.try_take_refreshing(1, fails).unwrap_err();
    assert_eq!(failed, TakeError::Failed(Arc::new("no")));
    // A load that succeeds begins anew.
    cache.set(1, 11).unwrap();
    clock.advance(9 * SECOND);
    assert_eq!(cache.try_take_refreshing(1, fails), Ok(11));
    waiting.run();
    clock.advance(5 * SECOND);
    assert_eq!(cache.try_take_refreshing(1, |_| Ok::<_, ()>(12)), Ok(11));
    waiting.run();
    clock.advance(10 * SECOND - Duration::from_micros(1));
    assert_eq!(cache.get(&1), Some(12));
    clock.advance(Duration::from_micros(1));
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_value_without_end_after_a_failure_is_still_loaded_anew() {
    let (cache, clock, waiting) = refreshing(|builder| builder.stale_on_error(Duration::MAX));
    cache.set(1, 10).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(cache.try_take_refreshing(1, fails), Ok(10));
    waiting.run();
    clock.advance(1000 * SECOND);
    let load = |_: &u32| Ok::<_, &str>(11);
    assert_eq!(cache.try_take_refreshing(1, load), Ok(10));
    waiting.run();
    assert_eq!(cache.get(&1), Some(11));
}

#[test]
fn values_that_deviate_are_not_old_when_they_come() {
    let (cache, clock, waiting) = refreshing(|builder| {
        builder
            .capacity(1000)
            .time_to_live(600 * SECOND)
            .jitter(0.05)
    });
    for key in 0..300 {
        cache.set(key, key).unwrap();
        assert_eq!(cache.take_refreshing(key, |_| 0), Ok(key));
    }
    clock.advance(SECOND / 2 - Duration::from_micros(1));
    (0..300).for_each(|key| assert_eq!(cache.take_refreshing(key, |_| 0), Ok(key)));
    assert_eq!(waiting.len(), 0);
    clock.advance(SECOND + Duration::from_micros(2));
    (0..300).for_each(|key| assert_eq!(cache.take_refreshing(key, |_| 0), Ok(key)));
    assert_eq!(waiting.len(), 300);
}

/// The thread's own token is not the only one that wakes.
#[test]
fn a_load_that_blocks_misses_no_wake() {
    let (cache, clock, waiting) = refreshing(|builder| builder);
    cache.set(1, 10).unwrap();
    clock.advance(2 * SECOND);
    let mut woken = false;
    let load = std::future::poll_fn(move |context| {
        if std::mem::replace(&mut woken, true) {
            return std::task::Poll::Ready(11);
        }
        let waker = context.waker().clone();
        thread::spawn(move || waker.wake()).join().unwrap();
        // Takes the token, if there is one.
        thread::park_timeout(Duration::ZERO);
        std::task::Poll::Pending
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(
        runtime.block_on(cache.take_refreshing_async(1, load)),
        Ok(10)
    );
    waiting.run();
    assert_eq!(cache.get(&1), Some(11));
}

#[test]
fn a_failure_does_not_make_an_unused_value_live_longer() {
    let (cache, clock, waiting) = refreshing(|builder| {
        builder
            .time_to_idle(4 * SECOND)
            .stale_on_error(100 * SECOND)
    });
    cache.set(1, 10).unwrap();
    for _ in 0..3 {
        clock.advance(3 * SECOND);
        assert_eq!(cache.get(&1), Some(10));
    }
    assert_eq!(cache.try_take_refreshing(1, fails), Ok(10));
    waiting.run();
    clock.advance(4 * SECOND - Duration::from_micros(1));
    assert!(cache.contains(&1), "idle until 13 s");
    clock.advance(Duration::from_micros(1));
    assert!(!cache.contains(&1));
}

/// The end that hits move stays where it is, and counts again once they have moved it.
#[test]
fn idle_values_live_longer_while_they_are_used() {
    let (cache, clock, waiting) =
        refreshing(|builder| builder.time_to_idle(4 * SECOND).stale_on_error(5 * SECOND));
    cache.set(1, 10).unwrap();
    for second in (2..=8).step_by(2) {
        clock.advance(2 * SECOND);
        let value = cache.try_take_refreshing(1, fails);
        assert_eq!(value, Ok(10), "after {second} s");
        waiting.run();
    }
    clock.advance(3 * SECOND);
    assert_eq!(cache.get(&1), Some(10), "after 11 s");
    clock.advance(4 * SECOND);
    assert_eq!(cache.get(&1), None, "idle for 4 s");
}

#[test]
fn failures_are_remembered_until_the_key_changes() {
    let clock = ManualClock::new();
    let cache: Cache<u32, u32> = Cache::builder()
        .capacity(10)
        .clock(clock.clone())
        .negative_ttl(SECOND)
        .build()
        .unwrap();
    let calls = AtomicUsize::new(0);
    let load = |_: &u32| {
        calls.fetch_add(1, Ordering::Relaxed);
        Err::<u32, _>("no")
    };
    let failed = || Err(TakeError::Failed(Arc::new("no")));
    for _ in 0..3 {
        assert_eq!(cache.try_take(1, load), failed());
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(cache.get(&1), None);
    assert_eq!(
        cache.take(1, |_| 10),
        Err(TakeError::Other),
        "errors of another type"
    );
    assert_eq!(cache.take(2, |_| 20), Ok(20), "another key");
    clock.advance(SECOND);
    assert_eq!(cache.try_take(1, load), failed());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    cache.remove(&1);
    assert_eq!(cache.try_take(1, load), failed());
    assert_eq!(calls.load(Ordering::Relaxed), 3, "afresh after a removal");
    cache.clear();
    assert_eq!(cache.try_take(1, load), failed());
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    cache.set(1, 10).unwrap();
    assert_eq!(cache.try_take(1, load), Ok(10));
    cache.remove(&1);
    assert_eq!(cache.take(1, |_| 11), Ok(11));
}

#[test]
fn c53_without_a_negative_ttl_the_next_caller_loads() {
    let cache: Cache<u32, u32> = Cache::builder().capacity(10).build().unwrap();
    assert!(cache.try_take(1, fails).is_err());
    assert_eq!(cache.take(1, |_| 10), Ok(10));
}

/// What is under way neither keeps the cache nor its values.
#[test]
fn c19_a_load_under_way_keeps_nothing() {
    let (clock, waiting) = (ManualClock::new(), Waiting::default());
    let reloads = waiting.clone();
    let cache = Cache::builder()
        .capacity(10)
        .time_to_live(10 * SECOND)
        .jitter(0.0)
        .clock(clock.clone())
        .refresh_after(SECOND, move |reload| reloads.0.lock().unwrap().push(reload))
        .build()
        .unwrap();
    let value = Arc::new(10);
    cache.set(1, value.clone()).unwrap();
    clock.advance(2 * SECOND);
    drop(cache.take_refreshing(1, |_| Arc::new(11)).unwrap());
    drop(cache);
    assert_eq!(Arc::strong_count(&value), 1);
    waiting.run();
}

#[test]
fn a_load_for_a_cache_that_was_closed_is_not_stored() {
    let (cache, clock, waiting) = refreshing(|builder| builder.negative_ttl(SECOND));
    cache.set(1, 10).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(cache.take_refreshing(1, |_| 11), Ok(10));
    cache.close();
    waiting.run();
    assert_eq!((cache.peek(&1), cache.len()), (None, 0));
    assert_eq!(cache.take_refreshing(1, |_| 12), Err(TakeError::Closed));
}

#[test]
fn values_leave_once_each() {
    let left = Arc::new(Mutex::new(Vec::new()));
    let told = left.clone();
    let (cache, clock, waiting) = refreshing(move |builder| {
        builder.listener(move |event| told.lock().unwrap().push((event.value, event.cause)))
    });
    cache.set(1, 10).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(cache.take_refreshing(1, |_| 11), Ok(10));
    waiting.run();
    clock.advance(2 * SECOND);
    let brief = |_: &u32| Loaded::with_ttl(12, Duration::ZERO);
    assert_eq!(cache.take_refreshing(1, brief), Ok(11));
    waiting.run();
    let left = left.lock().unwrap().clone();
    let expected = [
        (10, Cause::Replaced),
        (11, Cause::Replaced),
        (12, Cause::Expired),
    ];
    assert_eq!(left, expected);
}

#[tokio::test]
async fn futures_are_spawned_where_the_cache_was_told() {
    let clock = ManualClock::new();
    let cache = Cache::builder()
        .capacity(10)
        .time_to_live(10 * SECOND)
        .jitter(0.0)
        .clock(clock.clone())
        .refresh_after(SECOND, |reload| drop(tokio::spawn(reload)))
        .build()
        .unwrap();
    assert_eq!(cache.take_refreshing_async(1, async { 10 }).await, Ok(10));
    clock.advance(2 * SECOND);
    let slow = async {
        tokio::task::yield_now().await;
        11
    };
    assert_eq!(cache.take_refreshing_async(1, slow).await, Ok(10));
    while cache.peek(&1) == Some(10) {
        tokio::task::yield_now().await;
    }
    assert_eq!(cache.peek(&1), Some(11));
    clock.advance(2 * SECOND);
    let failing = async { Err::<u32, _>("no") };
    assert_eq!(cache.try_take_refreshing_async(1, failing).await, Ok(11));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let refused = |set: fn(Builder<u32, u32>) -> Builder<u32, u32>| {
        let error = set(Cache::builder().capacity(10)).build().unwrap_err();
        error.to_string()
    };
    let age = "allowed is more than zero and less than time_to_live";
    assert_eq!(
        refused(|builder| builder.refresh_after(SECOND, drop)),
        format!("refresh_after is 1s; {age}")
    );
    assert_eq!(
        refused(|builder| builder.time_to_live(SECOND).refresh_after(SECOND, drop)),
        format!("refresh_after is 1s; {age}")
    );
    assert_eq!(
        refused(|builder| builder
            .time_to_live(SECOND)
            .refresh_after(Duration::ZERO, drop)),
        format!("refresh_after is 0ns; {age}")
    );
    assert_eq!(
        refused(|builder| builder.stale_on_error(SECOND)),
        "stale_on_error is 1s; it wants refresh_after"
    );
    assert_eq!(
        refused(|builder| builder.negative_ttl(Duration::ZERO)),
        "negative_ttl is 0 s; allowed is more than zero"
    );
}
