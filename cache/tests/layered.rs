//! Two levels: what one has the other gets, and no change is undone behind it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use wheelhouse_cache::{
    AsyncSecondLevel, Cache, Layered, Loaded, SecondLevel, SetError, TakeError,
};
use wheelhouse_wheel::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

type Hook = Box<dyn Fn() + Send + Sync>;

/// A map that can be told to fail, and to call somebody at each side of a write.
#[derive(Default)]
struct Store {
    map: Mutex<HashMap<u32, (u32, Option<Duration>)>>,
    fails: AtomicBool,
    gets: AtomicUsize,
    before_put: OnceLock<Hook>,
    after_put: OnceLock<Hook>,
}

#[derive(Debug, PartialEq)]
struct Down;

impl Store {
    fn of(&self, key: u32) -> Option<u32> {
        Some(self.map.lock().unwrap().get(&key)?.0)
    }

    fn check(&self) -> Result<(), Down> {
        match self.fails.load(Ordering::Relaxed) {
            true => Err(Down),
            false => Ok(()),
        }
    }
}

impl SecondLevel<u32, u32> for Store {
    type Error = Down;

    fn get(&self, key: &u32) -> Result<Option<Loaded<u32>>, Down> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.check()?;
        let found = self.map.lock().unwrap().get(key).copied();
        Ok(found.map(|(value, lifetime)| match lifetime {
            Some(lifetime) => Loaded::with_ttl(value, lifetime),
            None => Loaded::new(value),
        }))
    }

    fn put(&self, key: &u32, value: &u32, lifetime: Option<Duration>) -> Result<(), Down> {
        self.before_put.get().inspect(|hook| hook());
        self.check()?;
        self.map.lock().unwrap().insert(*key, (*value, lifetime));
        self.after_put.get().inspect(|hook| hook());
        Ok(())
    }

    fn del(&self, key: &u32) -> Result<(), Down> {
        self.check()?;
        self.map.lock().unwrap().remove(key);
        Ok(())
    }
}

impl AsyncSecondLevel<u32, u32> for Store {
    type Error = Down;

    async fn get(&self, key: &u32) -> Result<Option<Loaded<u32>>, Down> {
        tokio::task::yield_now().await;
        SecondLevel::get(self, key)
    }

    async fn put(&self, key: &u32, value: &u32, lifetime: Option<Duration>) -> Result<(), Down> {
        tokio::task::yield_now().await;
        SecondLevel::put(self, key, value, lifetime)
    }

    async fn del(&self, key: &u32) -> Result<(), Down> {
        tokio::task::yield_now().await;
        SecondLevel::del(self, key)
    }
}

fn layered() -> (Layered<u32, u32, Store>, ManualClock) {
    let clock = ManualClock::new();
    let cache = Cache::builder()
        .capacity(100)
        .time_to_live(10 * SECOND)
        .jitter(0.0)
        .clock(clock.clone())
        .build()
        .unwrap();
    (cache.layered(Store::default()), clock)
}

#[test]
fn loads_ask_the_second_level_first_and_fill_it() {
    let (layered, _) = layered();
    assert_eq!(layered.take(1, |_| 10), Ok(10));
    assert_eq!(
        layered.second().map.lock().unwrap()[&1],
        (10, Some(10 * SECOND))
    );
    assert_eq!(layered.take(1, |_| 11), Ok(10));
    assert_eq!(
        layered.second().gets.load(Ordering::Relaxed),
        1,
        "memory has it"
    );
    layered.cache().clear();
    assert_eq!(layered.take(1, |_| 12), Ok(10), "from behind");
    layered.cache().clear();
    assert_eq!(layered.get(&1), Ok(Some(10)));
    assert_eq!(layered.cache().peek(&1), Some(10));
    assert_eq!(layered.get(&2), Ok(None));
    let failed = layered.try_take(3, |_| Err::<u32, _>("no")).unwrap_err();
    assert!(matches!(failed, TakeError::Failed(error) if *error == "no"));
    assert_eq!((layered.second().of(3), layered.failures()), (None, 0));
}

#[test]
fn lifetimes_reach_both_levels() {
    let (layered, clock) = layered();
    layered.set_with_ttl(1, 10, SECOND).unwrap();
    assert_eq!(layered.second().map.lock().unwrap()[&1].1, Some(SECOND));
    layered.set_with_ttl(1, 11, Duration::ZERO).unwrap();
    assert_eq!(
        (layered.second().of(1), layered.cache().peek(&1)),
        (None, None)
    );
    let brief = |_: &u32| Loaded::with_ttl(20, Duration::ZERO);
    assert_eq!(layered.take(2, brief), Ok(20));
    assert_eq!(layered.second().of(2), None);
    // What the second level says of the rest of a life counts.
    layered
        .second()
        .map
        .lock()
        .unwrap()
        .insert(3, (30, Some(SECOND)));
    assert_eq!(layered.get(&3), Ok(Some(30)));
    clock.advance(SECOND);
    assert_eq!(layered.cache().peek(&3), None);
}

#[test]
fn changes_reach_both_levels() {
    let (layered, _) = layered();
    layered.set(1, 10).unwrap();
    assert_eq!(
        (layered.second().of(1), layered.cache().peek(&1)),
        (Some(10), Some(10))
    );
    assert_eq!(layered.remove(&1), Ok(Some(10)));
    assert_eq!(
        (layered.second().of(1), layered.cache().peek(&1)),
        (None, None)
    );
    layered.second().map.lock().unwrap().insert(2, (20, None));
    assert_eq!(layered.remove(&2), Ok(None), "it was not in memory");
    assert_eq!(layered.second().of(2), None);
}

#[test]
fn a_second_level_that_fails_holds_up_no_load_and_is_named_by_changes() {
    let (layered, _) = layered();
    layered.set(1, 10).unwrap();
    layered.set(2, 20).unwrap();
    let second = layered.second();
    second.fails.store(true, Ordering::Relaxed);
    assert_eq!(layered.take(3, |_| 30), Ok(30));
    assert_eq!(layered.failures(), 2, "the question and the answer");
    assert_eq!(layered.get(&3), Ok(Some(30)), "memory has it");
    assert_eq!(layered.get(&4), Err(Down));
    let error = layered.set(1, 11).unwrap_err();
    assert_eq!(error, SetError::Second(Down));
    assert_eq!(layered.cache().peek(&1), Some(11));
    assert_eq!(layered.remove(&2), Err(Down));
    assert_eq!(layered.cache().peek(&2), None);
    layered.cache().close();
    let SetError::Closed(closed) = layered.set(5, 50).unwrap_err() else {
        panic!("closed, and nothing else");
    };
    assert_eq!((closed.value, second.of(5)), (50, None));
    assert!(matches!(layered.take(5, |_| 50), Err(TakeError::Closed)));
}

/// Wherever a removal or a set falls in a load, the second level does not keep the older value.
#[test]
fn no_load_undoes_a_change_behind_the_memory() {
    for sets in [false, true] {
        for moment in ["load", "before the write", "after the write"] {
            let (layered, _) = layered();
            let changes = layered.clone();
            let done = AtomicBool::new(false);
            let change = move || {
                if done.swap(true, Ordering::Relaxed) {
                    return;
                }
                if sets {
                    changes.set(1, 99).unwrap();
                } else {
                    changes.remove(&1).unwrap();
                }
            };
            let second = layered.second();
            let taken = match moment {
                "load" => layered.take(1, move |_| {
                    change();
                    10
                }),
                "before the write" => {
                    let _ = second.before_put.set(Box::new(change));
                    layered.take(1, |_| 10)
                }
                _ => {
                    let _ = second.after_put.set(Box::new(change));
                    layered.take(1, |_| 10)
                }
            };
            assert_eq!(taken, Ok(10), "{moment}");
            let behind = second.of(1);
            assert_ne!(behind, Some(10), "{moment}, sets: {sets}");
            assert_eq!(layered.cache().peek(&1), sets.then_some(99), "{moment}");
        }
    }
}

/// Of two sets at once both levels keep the later one, or none.
#[test]
fn no_set_undoes_a_later_one_behind_the_memory() {
    let (layered, _) = layered();
    let sets = layered.clone();
    let done = AtomicBool::new(false);
    let later = move || {
        if !done.swap(true, Ordering::Relaxed) {
            sets.set(1, 11).unwrap();
        }
    };
    assert!(layered.second().before_put.set(Box::new(later)).is_ok());
    layered.set(1, 10).unwrap();
    assert_ne!(layered.cache().peek(&1), Some(10));
    assert_eq!(layered.second().of(1), layered.cache().peek(&1));
}

/// A value that is not in memory when it is written lets readers bring the older one there.
#[test]
fn no_reader_brings_the_older_value_back_during_a_set() {
    for case in ["evicted", "too heavy", "expired"] {
        let cache = Cache::builder()
            .weight(100, |_, value| *value)
            .policy(wheelhouse_cache::Policy::Lru)
            .build()
            .unwrap();
        let layered = cache.layered(Store::default());
        layered.second().map.lock().unwrap().insert(1, (50, None));
        let reads = layered.clone();
        let done = AtomicBool::new(false);
        let read = move || {
            if !done.swap(true, Ordering::Relaxed) {
                if case == "evicted" {
                    reads.cache().set(2, 100).unwrap();
                    reads.cache().remove(&2);
                }
                assert_eq!(reads.get(&1), Ok(Some(50)), "{case}: not written yet");
            }
        };
        assert!(layered.second().before_put.set(Box::new(read)).is_ok());
        match case {
            "evicted" => layered.set(1, 60).unwrap(),
            "too heavy" => layered.set(1, 200).unwrap(),
            _ => layered
                .set_with_ttl(1, 60, Duration::from_nanos(1))
                .unwrap(),
        }
        assert_ne!(layered.get(&1), Ok(Some(50)), "{case}");
    }
}

#[test]
fn without_end_is_said_as_such() {
    let (layered, _) = layered();
    layered.set_with_ttl(1, 10, Duration::MAX).unwrap();
    assert_eq!(layered.second().map.lock().unwrap()[&1], (10, None));
}

/// A removal that comes while a value is on its way from behind into memory.
#[test]
fn what_was_read_before_a_removal_does_not_come_after_it() {
    struct Slow(Store, OnceLock<Hook>);
    impl SecondLevel<u32, u32> for Slow {
        type Error = Down;
        fn get(&self, key: &u32) -> Result<Option<Loaded<u32>>, Down> {
            let found = SecondLevel::get(&self.0, key);
            self.1.get().inspect(|hook| hook());
            found
        }
        fn put(&self, key: &u32, value: &u32, life: Option<Duration>) -> Result<(), Down> {
            SecondLevel::put(&self.0, key, value, life)
        }
        fn del(&self, key: &u32) -> Result<(), Down> {
            SecondLevel::del(&self.0, key)
        }
    }
    for takes in [false, true] {
        let cache = Cache::builder().capacity(10).build().unwrap();
        let layered = cache.layered(Slow(Store::default(), OnceLock::new()));
        layered.second().0.map.lock().unwrap().insert(1, (10, None));
        let removes = layered.clone();
        let hook: Hook = Box::new(move || {
            removes.remove(&1).unwrap();
        });
        assert!(layered.second().1.set(hook).is_ok());
        let read = if takes {
            layered.take(1, |_| 11).ok()
        } else {
            layered.get(&1).unwrap()
        };
        assert_eq!(read, Some(10));
        assert_eq!(layered.cache().peek(&1), None);
    }
}

#[tokio::test]
async fn the_same_with_a_store_that_is_waited_for() {
    let (layered, _) = layered();
    let take = |value: u32| layered.try_take_async(1, async move { Ok::<_, Down>(value) });
    let (one, other) = tokio::join!(take(10), take(11));
    assert_eq!((one, other), (Ok(10), Ok(10)), "one load");
    assert_eq!(layered.second().of(1), Some(10));
    layered.cache().clear();
    assert_eq!(layered.get_async(&1).await, Ok(Some(10)));
    layered.set_async(1, 12).await.unwrap();
    layered.set_with_ttl_async(2, 20, SECOND).await.unwrap();
    assert_eq!(layered.second().map.lock().unwrap()[&2], (20, Some(SECOND)));
    assert_eq!(layered.remove_async(&1).await, Ok(Some(12)));
    assert_eq!(layered.second().of(1), None);
    // A removal in the middle of a load.
    let load = async {
        layered.remove_async(&3).await.unwrap();
        Ok::<_, Down>(30)
    };
    assert_eq!(layered.try_take_async(3, load).await, Ok(30));
    assert_eq!(
        (layered.second().of(3), layered.cache().peek(&3)),
        (None, None)
    );
    layered.second().fails.store(true, Ordering::Relaxed);
    let error = layered.set_async(4, 40).await.unwrap_err();
    assert_eq!(error, SetError::Second(Down));
    assert_eq!(layered.remove_async(&4).await, Err(Down));
}
