//! Threads do everything at once, for as many seconds as `WHEELHOUSE_STRESS_SECONDS` says (2 without
//! it), while a listener calls back into the cache and panics now and then: nobody waits for ever, the
//! cache never holds more than it may, and each value that was stored leaves once and is freed.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use wheelhouse_cache::{Cache, Cause, Driver, Loaded, Op, Policy, TakeError};

const THREADS: u64 = 8;
const CAPACITY: u64 = 500;
const KEYS: u64 = 2000;

/// Values alive: those in the cache, and those that threads hold.
type Alive = Arc<AtomicU64>;

/// Its clones are one value: it is told of once.
#[derive(Clone)]
struct Value(Arc<Inside>);

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "value of {}", self.0.key)
    }
}

struct Inside {
    key: u64,
    told: AtomicBool,
    alive: Alive,
}

impl Value {
    fn new(key: u64, alive: &Alive) -> Self {
        alive.fetch_add(1, Relaxed);
        let (told, alive) = (AtomicBool::new(false), alive.clone());
        Value(Arc::new(Inside { key, told, alive }))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

/// What the listener has heard.
#[derive(Default)]
struct Heard {
    total: AtomicU64,
    twice: AtomicU64,
    panics: AtomicU64,
    causes: Mutex<HashMap<Cause, u64>>,
}

#[test]
fn stress_default_policy_loses_nothing() {
    everything_at_once(Policy::Adaptive);
}

#[test]
fn stress_strict_lru_loses_nothing() {
    everything_at_once(Policy::Lru);
}

fn everything_at_once(policy: Policy) {
    let seconds = std::env::var("WHEELHOUSE_STRESS_SECONDS").ok();
    let seconds = seconds.map_or(2, |text| text.parse().expect("a number of seconds"));
    let until = Instant::now() + Duration::from_secs(seconds);

    let alive = Alive::default();
    let heard = Arc::new(Heard::default());
    // Emptied at the end: the cache holds the listener, and the listener the cache.
    let entrance = Arc::new(Mutex::new(None::<Cache<u64, Value>>));
    let cache = {
        let (heard, entrance, alive) = (heard.clone(), entrance.clone(), alive.clone());
        Cache::builder()
            .capacity(CAPACITY)
            .policy(policy)
            .time_to_live(Duration::from_millis(50))
            .listener(move |event: wheelhouse_cache::Event<u64, Value>| {
                assert_eq!(event.key, event.value.0.key);
                if event.value.0.told.swap(true, Relaxed) {
                    heard.twice.fetch_add(1, Relaxed);
                }
                *heard.causes.lock().unwrap().entry(event.cause).or_default() += 1;
                let number = heard.total.fetch_add(1, Relaxed);
                let cache = entrance.lock().unwrap().clone();
                if let Some(cache) = cache.filter(|_| number.is_multiple_of(16)) {
                    let key = (event.key + 1) % KEYS;
                    match number / 16 % 3 {
                        0 => drop(cache.get(&key)),
                        1 => drop(cache.remove(&key)),
                        _ => drop(cache.set(key, Value::new(key, &alive))),
                    }
                }
                if number % 1000 == 999 {
                    heard.panics.fetch_add(1, Relaxed);
                    // Past the hook, which would print each.
                    resume_unwind(Box::new("as planned"));
                }
            })
            .build()
            .unwrap()
    };
    *entrance.lock().unwrap() = Some(cache.clone());
    let driver = Driver::start().unwrap();
    driver.drive(&cache);

    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, alive) = (&cache, &alive);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while Instant::now() < until {
                    for _ in 0..100 {
                        operation(cache, alive, &mut random);
                    }
                    let stats = cache.stats();
                    assert!(stats.len <= CAPACITY, "{} entries", stats.len);
                }
            });
        }
    });

    *entrance.lock().unwrap() = None;
    cache.close();
    let stats = cache.stats();
    drop((cache, driver));

    let total = heard.total.load(Relaxed);
    assert!(stats.stored > CAPACITY, "{stats:?}");
    assert_eq!((stats.len, total), (0, stats.stored), "{stats:?}");
    assert_eq!(heard.twice.load(Relaxed), 0);
    assert_eq!(stats.listener_panics, heard.panics.load(Relaxed));
    let causes = heard.causes.lock().unwrap();
    for (cause, counted) in [
        (Cause::Expired, stats.expired),
        (Cause::Evicted, stats.evicted),
        (Cause::Replaced, stats.replaced),
        (Cause::Removed, stats.removed),
        (Cause::Cleared, stats.cleared),
    ] {
        let told = causes.get(&cause).copied().unwrap_or(0);
        assert!(told > 0, "none was {cause:?}: {stats:?}");
        assert_eq!(told, counted, "{cause:?}: {stats:?}");
    }
    assert_eq!(alive.load(Relaxed), 0);
}

fn operation(cache: &Cache<u64, Value>, alive: &Alive, random: &mut fastrand::Rng) {
    let key = random.u64(0..KEYS);
    let new = || Value::new(key, alive);
    match random.u32(0..1000) {
        0 => cache.clear(),
        1 => cache.retain(|key, _| !key.is_multiple_of(7)),
        2 => assert!(cache.iter().all(|(key, value)| key == value.0.key)),
        3..50 => drop(cache.run_pending(10)),
        50..150 => drop(cache.remove(&key)),
        150..250 => cache.set(key, new()).map_err(drop).unwrap(),
        250..350 => {
            let lifetime = Duration::from_micros(random.u64(1..5000));
            cache
                .set_with_ttl(key, new(), lifetime)
                .map_err(drop)
                .unwrap();
        }
        350..400 => drop(cache.compute(key, |value| match value {
            Some(_) if key.is_multiple_of(2) => Op::Remove,
            Some(_) => Op::Keep,
            None => Op::Put(new()),
        })),
        400..700 => match cache.take(key, |_| new()) {
            Ok(value) => assert_eq!(value.0.key, key),
            // It waited for the load below.
            Err(error) => assert_eq!(error, TakeError::Other),
        },
        700..750 => match cache.try_take(key, |_| Err::<Loaded<Value>, _>("as planned")) {
            Ok(value) => assert_eq!(value.0.key, key),
            Err(error) => assert_eq!(error, TakeError::Failed(Arc::new("as planned"))),
        },
        _ => assert!(cache.get(&key).is_none_or(|value| value.0.key == key)),
    }
}
