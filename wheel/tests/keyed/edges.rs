//! User code that misbehaves where nobody expects it: clocks, hashes, comparisons, wakers, and
//! wheels that move each other's clock.

use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::Stream;
use wheelhouse_wheel::{Clock, Executor, ManualClock, TimingWheel};

const MS: Duration = Duration::from_millis(1);

/// A pool's clock or a stream's waker that hangs would hang the test.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn two_wheels_that_advance_one_clock_do_not_wait_for_each_other() {
    let clock = ManualClock::new();
    let fired = Arc::new(AtomicU64::new(0));
    let wheels: Vec<_> = (0..2)
        .map(|_| {
            let (mine, fired) = (clock.clone(), fired.clone());
            TimingWheel::builder()
                .clock(clock.clone())
                .build(move |_: u32, ()| {
                    mine.advance(MS);
                    fired.fetch_add(1, SeqCst);
                })
                .unwrap()
        })
        .collect();
    for wheel in &wheels {
        wheel.set_timer(1, (), 5 * MS).unwrap();
    }
    clock.advance(10 * MS);
    assert_eq!(fired.load(SeqCst), 2);
}

#[test]
fn run_for_never_turns_time_back() {
    let clock = ManualClock::new();
    let start = clock.now();
    let mine = clock.clone();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .build(move |_: u32, ()| mine.advance(60_000 * MS))
        .unwrap();
    wheel.set_timer(1, (), MS).unwrap();
    clock.run_for(5 * MS);
    assert_eq!(clock.now() - start, 60_001 * MS);
}

/// Panics when told to.
struct Moody {
    clock: ManualClock,
    panics: Arc<AtomicBool>,
}

impl Clock for Moody {
    fn now(&self) -> Instant {
        assert!(!self.panics.load(SeqCst), "no time today");
        self.clock.now()
    }
}

#[test]
fn a_clock_that_panics_loses_nothing_and_hangs_nobody() {
    for executor in [Executor::Inline, Executor::Threads(2)] {
        let panics = Arc::new(AtomicBool::new(false));
        let clock = Moody {
            clock: ManualClock::new(),
            panics: panics.clone(),
        };
        let time = clock.clock.clone();
        let (fired, seen) = mpsc::channel();
        let moods = panics.clone();
        let wheel = TimingWheel::builder()
            .clock(clock)
            .executor(executor)
            .build(move |key: u32, ()| {
                // The clock is asked before the next callback.
                moods.store(key < 5, SeqCst);
                fired.send(key).unwrap();
            })
            .unwrap();
        for key in 0..10 {
            wheel.set_timer(key, (), MS).unwrap();
        }
        time.set(time.now() + 10 * MS);
        // Not registered with the clock behind the moody one: a set for the next tick wakes it.
        while wheel.stats().fired < 10 {
            panics.store(false, SeqCst);
            wheel.set_timer(99, (), Duration::ZERO).unwrap();
            wheel.take_timer(&99).unwrap();
            thread::yield_now();
        }
        panics.store(false, SeqCst);
        assert_eq!(wheel.stop(), []);
        let mut keys: Vec<u32> = seen.try_iter().collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..10).collect::<Vec<_>>());
    }
}

thread_local! {
    /// Whether this thread is the test's: keys panic elsewhere, on threads of the wheel.
    static AT_HOME: AtomicBool = const { AtomicBool::new(false) };
}

fn at_home() -> bool {
    AT_HOME.with(|home| home.load(SeqCst))
}

/// Number 7 panics when a thread of the wheel hashes it.
#[derive(Debug, PartialEq, Eq)]
struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(at_home() || self.0 != 7, "seven is not hashed here");
        self.0.hash(state);
    }
}

#[test]
fn a_hash_that_panics_while_firing_leaves_the_index_whole() {
    AT_HOME.with(|home| home.store(true, SeqCst));
    let clock = ManualClock::new();
    let fired = Arc::new(Mutex::new(Vec::new()));
    let log = fired.clone();
    let wheel = TimingWheel::builder()
        .clock(clock.clone())
        .shards(1)
        .build(move |key: Key, ()| log.lock().unwrap().push(key.0))
        .unwrap();
    for key in 0..20 {
        wheel.set_timer(Key(key), (), MS).unwrap();
    }
    clock.advance(MS);
    assert_eq!(*fired.lock().unwrap(), (0..20).collect::<Vec<_>>());
    assert_eq!((wheel.len(), wheel.contains(&Key(7))), (0, false));
    wheel.set_timer(Key(3), (), MS).unwrap();
    assert_eq!(wheel.take_timer(&Key(3)), Ok(Some(())));
    let stats = wheel.stats();
    assert_eq!((stats.set, stats.fired, stats.removed), (21, 20, 1));
    assert_eq!((stats.pending, stats.panicked), (0, 1));
}

/// Number 7 is never equal, but panics.
#[derive(Debug)]
struct Unequal(u32);

impl Hash for Unequal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Unequal {
    fn eq(&self, other: &Self) -> bool {
        assert_ne!(self.0, 7, "seven is not compared");
        self.0 == other.0
    }
}

impl Eq for Unequal {}

#[test]
fn an_eq_that_panics_loses_its_own_command_alone() {
    let mut wheel = TimingWheel::builder()
        .clock(ManualClock::new())
        .manual(|_: Unequal, _: u32| {})
        .unwrap();
    for (key, value) in [(7, 0), (1, 1), (7, 2), (2, 3), (1, 4)] {
        wheel.set_timer(Unequal(key), value, MS).unwrap();
    }
    wheel.flush().unwrap();
    assert_eq!(wheel.len(), 3);
    let stats = wheel.stats();
    assert_eq!((stats.set, stats.replaced, stats.dropped), (5, 1, 1));
    assert_eq!((stats.pending, stats.panicked), (3, 1));
    assert_eq!(wheel.turn(Instant::now() + PATIENCE), 3);
}

#[test]
fn a_stop_waits_for_the_turn_of_a_manual_wheel() {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let over = Arc::new(AtomicBool::new(false));
    let clock = ManualClock::new();
    let mut wheel = {
        let over = over.clone();
        TimingWheel::builder()
            .clock(clock.clone())
            .manual(move |_: u32, ()| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                over.store(true, SeqCst);
            })
            .unwrap()
    };
    wheel.set_timer(1, (), MS).unwrap();
    wheel.set_timer(2, (), 2 * MS).unwrap();
    let handle = TimingWheel::clone(&wheel);
    let stopper = {
        let over = over.clone();
        thread::spawn(move || {
            has_begun.recv().unwrap();
            let (calling, called) = mpsc::channel();
            let stopping = thread::spawn(move || {
                calling.send(()).unwrap();
                let left = handle.stop();
                (left, over.load(SeqCst))
            });
            called.recv().unwrap();
            go_on.send(()).unwrap();
            // A second callback may have begun before the stop.
            let _ = go_on.send(());
            stopping.join().unwrap()
        })
    };
    let fired = wheel.turn(clock.now() + PATIENCE);
    let (left, was_over) = stopper.join().unwrap();
    assert!(was_over, "stop returned while the callback ran");
    assert_eq!(fired + left.len(), 2);
}

#[test]
fn values_of_half_a_megabyte_fire() {
    let (fired, seen) = mpsc::channel();
    let wheel = TimingWheel::builder()
        .shards(1)
        .build(move |_: u32, value: [u8; 512 << 10]| fired.send(value[9]).unwrap())
        .unwrap();
    thread::Builder::new()
        .stack_size(64 << 20)
        .spawn(move || {
            wheel.set_timer(1, [7; 512 << 10], Duration::ZERO).unwrap();
            assert_eq!(seen.recv_timeout(PATIENCE), Ok(7));
        })
        .unwrap()
        .join()
        .unwrap();
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("not to be woken");
    }
}

#[test]
fn a_waker_that_panics_ends_nothing() {
    let clock = ManualClock::new();
    let (wheel, stream) = TimingWheel::builder()
        .clock(clock.clone())
        .stream::<u32, ()>(4)
        .unwrap();
    let mut stream = pin!(stream);
    let waker = Arc::new(Bomb).into();
    let mut context = Context::from_waker(&waker);
    assert!(stream.as_mut().poll_next(&mut context).is_pending());
    wheel.set_timer(1, (), MS).unwrap();
    clock.advance(MS);
    assert!(stream.as_mut().poll_next(&mut context).is_ready());
    assert!(stream.as_mut().poll_next(&mut context).is_pending());
    assert_eq!(wheel.stop(), []);
    assert_eq!(wheel.stats().panicked, 2);
}
