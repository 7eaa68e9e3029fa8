//! Models of each hand-shake between callers, driver, workers and stop, on the shipped code.
//!
//! Each names the guarantee that it checks and a mutation that makes it fail.

use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};

use loom::thread;

use crate::clock::{Clock, Driven};
use crate::drive::alarm::{Alarm, Bell};
use crate::drive::ticks::NEVER;
use crate::sync::{Condvar, Mutex, Parker};
use crate::wheel::Wheel;

use super::driver::Driver;
use super::executor::{Callback, Outlet};
use super::ready::Ready;
use super::shard::{Command, Pair, Shard};
use super::shared::{Parts, Shared};

/// Every timer below is due at tick 1, or far from due at tick 9.
const NOW: u64 = 5;
const DUE: u64 = 1;
const FAR: u64 = 9;

/// Stands at tick [`NOW`] of a wheel that asked it first when it was built.
struct Late {
    start: Instant,
    built: std::sync::atomic::AtomicBool,
}

impl Clock for Late {
    fn now(&self) -> Instant {
        match self.built.swap(true, std::sync::atomic::Ordering::Relaxed) {
            false => self.start,
            true => self.start + Duration::from_secs(NOW),
        }
    }
}

/// What has fired, and a way to wait for it.
struct Fired {
    keys: Mutex<Vec<u8>>,
    changed: Condvar,
}

impl Fired {
    fn new() -> Arc<Self> {
        Arc::new(Fired {
            keys: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        })
    }

    fn push(&self, key: u8) {
        self.keys.lock().push(key);
        self.changed.notify_all();
    }

    fn wait_for(&self, count: usize) -> Vec<u8> {
        let mut keys = self.keys.lock();
        while keys.len() < count {
            self.changed.wait(&mut keys);
        }
        keys.sort_unstable();
        keys.clone()
    }
}

type Wheelhouse = Arc<Shared<u8, u8>>;

/// A wheel of one shard whose channel holds `channel` commands, with the parker of its driver.
fn wheel(channel: usize) -> (Wheelhouse, Parker) {
    let parker = Parker::new();
    let clock = Late {
        start: Instant::now(),
        built: false.into(),
    };
    let shared = Shared::new(Parts {
        name: "loom".into(),
        shards: vec![Shard::new(channel, Wheel::new())],
        channel,
        lanes: 1,
        alarm: Alarm::new(Bell::Thread(parker.unparker().clone())),
        interval: Duration::from_secs(1),
        clock: Arc::new(clock),
        max_pending: usize::MAX,
    });
    (Arc::new(shared), parker)
}

/// A running driver that fires into `fired`.
fn drive(shared: &Wheelhouse, parker: Parker, fired: &Arc<Fired>) -> thread::JoinHandle<()> {
    start(shared, parker, fired, false)
}

/// The same on a clock that stands still until it is moved.
fn drive_virtually(
    shared: &Wheelhouse,
    parker: Parker,
    fired: &Arc<Fired>,
) -> thread::JoinHandle<()> {
    start(shared, parker, fired, true)
}

fn start(
    shared: &Wheelhouse,
    parker: Parker,
    fired: &Arc<Fired>,
    virtual_time: bool,
) -> thread::JoinHandle<()> {
    let fired = fired.clone();
    let callback: Callback<u8, u8> = Arc::new(move |key, _| fired.push(key));
    shared.life.driver_starts();
    let driver = Driver::new(
        shared.clone(),
        parker,
        Outlet::Inline(callback),
        virtual_time,
    );
    thread::spawn(move || driver.run())
}

fn set(shared: &Wheelhouse, key: u8, tick: u64) -> Result<(), u8> {
    let (shard, hash) = shared.place(&key);
    let command = Command::Set {
        hash,
        tick,
        key,
        value: key,
    };
    shared
        .submit(shard, command, tick)
        .map_err(Command::into_key)
}

fn take(shared: &Wheelhouse, key: u8) -> bool {
    let (shard, hash) = shared.place(&key);
    let Some(mut state) = shared.open(shard) else {
        return false;
    };
    let taken = state.take(hash, |k| *k == key);
    shared.finish(shard, state);
    taken.is_some()
}

/// What a stop gets, as it gets it.
fn collect(shared: &Wheelhouse) -> Vec<u8> {
    let Some(pairs) = shared.collect() else {
        return Vec::new();
    };
    shared.life.end_collection();
    pairs.into_iter().map(|(key, _)| key).collect()
}

/// Wake-up: a driver that sleeps, or is about to, fires a timer that is set for earlier. A lost
/// wake-up leaves both threads waiting, which loom reports.
/// Fails without the `ring` in `submit`, and without `stay_awake` in `Alarm::sleep`.
#[test]
fn an_earlier_deadline_wakes_a_sleeping_driver() {
    loom::model(|| {
        let (shared, parker) = wheel(2);
        let fired = Fired::new();
        let driver = drive(&shared, parker, &fired);
        assert_eq!(set(&shared, 1, DUE), Ok(()));
        assert_eq!(fired.wait_for(1), [1]);
        shared.close();
        driver.join().unwrap();
    });
}

/// Wake-up and I2: the same when another caller takes the command out of the channel and applies it.
/// Fails if `apply` does not lower `next`.
#[test]
fn a_deadline_applied_by_another_caller_wakes_a_sleeping_driver() {
    loom::model(|| {
        let (shared, parker) = wheel(2);
        let fired = Fired::new();
        let driver = drive(&shared, parker, &fired);
        let helper = {
            let shared = shared.clone();
            thread::spawn(move || shared.flush())
        };
        assert_eq!(set(&shared, 1, DUE), Ok(()));
        assert_eq!(fired.wait_for(1), [1]);
        helper.join().unwrap();
        shared.close();
        driver.join().unwrap();
    });
}

/// Wake-up and I3: a driver about to sleep sees the deadline of a command that was sent while
/// another caller emptied the channel. The removal that is there first has no deadline, so nothing
/// else can keep the driver awake.
/// Fails if `apply_channel` raises `queued` after it has taken the commands.
#[test]
fn a_command_sent_while_the_channel_is_emptied_keeps_its_deadline() {
    loom::model(|| {
        let (shared, parker) = wheel(2);
        let (shard, hash) = shared.place(&7);
        assert!(shard.send(Command::Remove { hash, key: 7 }, NEVER).is_ok());
        let helper = {
            let shared = shared.clone();
            thread::spawn(move || shared.flush())
        };
        let driver = {
            let shared = shared.clone();
            thread::spawn(move || {
                let earlier = || shared.shards[0].earliest() < NEVER;
                shared.alarm.sleep(&parker, NEVER, None, earlier)
            })
        };
        assert_eq!(set(&shared, 1, DUE), Ok(()));
        driver.join().unwrap();
        helper.join().unwrap();
    });
}

/// I4: a set that returned Ok before or while the wheel is stopped is returned by the stop; one
/// that did not comes back.
/// Fails if `close` leaves room in the channel (no second round).
#[test]
fn stop_against_set() {
    loom::model(|| {
        let (shared, _parker) = wheel(1);
        let setter = {
            let shared = shared.clone();
            thread::spawn(move || set(&shared, 1, FAR))
        };
        shared.close();
        let left = collect(&shared);
        match setter.join().unwrap() {
            Ok(()) => assert_eq!(left, [1]),
            Err(key) => assert_eq!((key, left), (1, vec![])),
        }
    });
}

/// I4 with a caller that finds the channel full and applies the batch while the wheel is stopped.
/// Fails if `open` does not look at `closed`.
#[test]
fn a_caller_with_a_full_batch_against_stop() {
    loom::model(|| {
        let (shared, _parker) = wheel(1);
        let setter = {
            let shared = shared.clone();
            thread::spawn(move || (set(&shared, 1, FAR), set(&shared, 2, FAR)))
        };
        shared.close();
        let left = collect(&shared);
        let (first, second) = setter.join().unwrap();
        let accepted: Vec<u8> = [(1, first), (2, second)]
            .into_iter()
            .filter_map(|(k, r)| r.ok().map(|()| k))
            .collect();
        assert_eq!(left, accepted);
    });
}

/// Two stops at once: one gets every pair, wherever they wait, and the other none.
/// Fails if `begin_collection` lets two callers through.
#[test]
fn stop_against_stop() {
    loom::model(|| {
        let (shared, _parker) = wheel(1);
        let due = Pair {
            tick: DUE,
            key: 1,
            value: 1,
        };
        assert!(shared.lanes[0].push([due]).is_none());
        assert_eq!(set(&shared, 2, FAR), Ok(()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.close();
                collect(&shared)
            })
        };
        shared.close();
        let mut left = [collect(&shared), other.join().unwrap()];
        left.sort();
        assert_eq!(left, [vec![], vec![1, 2]]);
    });
}

/// A stop ends a driver that sleeps or is about to, and returns what the driver has not begun.
/// Fails without the `wake` in `close`.
#[test]
fn stop_against_a_running_driver() {
    loom::model(|| {
        let (shared, parker) = wheel(2);
        let fired = Fired::new();
        assert_eq!(set(&shared, 1, DUE), Ok(()));
        let driver = drive(&shared, parker, &fired);
        shared.close();
        let mut seen = collect(&shared);
        driver.join().unwrap();
        seen.extend(fired.wait_for(0));
        assert_eq!(seen, [1]);
    });
}

/// Who won: a timer is taken or fires, never both, never neither.
/// Fails if `fire` leaves the key in the index.
#[test]
fn remove_against_fire() {
    loom::model(|| {
        let (shared, parker) = wheel(2);
        let fired = Fired::new();
        assert_eq!(set(&shared, 1, DUE), Ok(()));
        let driver = drive(&shared, parker, &fired);
        let taken = take(&shared, 1);
        let fired = if taken {
            fired.wait_for(0)
        } else {
            fired.wait_for(1)
        };
        assert_eq!(fired.len() + usize::from(taken), 1);
        shared.close();
        driver.join().unwrap();
    });
}

/// Exactly once: a caller that finds the channel full applies the batch while the driver does the
/// same, and all timers fire once.
/// Fails if `apply_channel` takes commands without the lock, or if `help` forgets its own.
#[test]
fn a_caller_with_a_full_batch_against_the_driver() {
    loom::model(|| {
        let (shared, parker) = wheel(1);
        let fired = Fired::new();
        let driver = drive(&shared, parker, &fired);
        assert_eq!(set(&shared, 1, DUE), Ok(()));
        assert_eq!(set(&shared, 2, DUE), Ok(()));
        assert_eq!(fired.wait_for(2), [1, 2]);
        shared.close();
        driver.join().unwrap();
    });
}

/// Flush: what was sent before is in the wheel when it returns, also when another caller had taken
/// it out of the channel and was applying it.
/// Fails if `flush` passes by a shard whose channel is empty.
#[test]
fn flush_waits_for_a_batch_that_another_applies() {
    loom::model(|| {
        let (shared, _parker) = wheel(2);
        assert_eq!(set(&shared, 1, FAR), Ok(()));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.flush())
        };
        shared.flush();
        // Read without the lock, which would wait for the other thread by itself.
        assert_eq!(shared.shards[0].earliest(), FAR);
        other.join().unwrap();
    });
}

/// A jump: whoever moved the clock returns when what was due has fired.
/// Fails if the driver settles the request that it finds when it is done instead of the one that it
/// found before it read the clock, and if `catch_up` does not wake the driver.
#[test]
fn a_jump_of_the_clock_waits_for_the_driver() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (shared, parker) = wheel(2);
        let fired = Fired::new();
        let driver = drive_virtually(&shared, parker, &fired);
        assert_eq!(set(&shared, 1, DUE), Ok(()));
        shared.catch_up();
        assert_eq!(fired.wait_for(0), [1]);
        shared.close();
        driver.join().unwrap();
    });
}

/// Drain: a set that returned Ok is drained, or pending afterwards.
/// Fails if `apply_first`, which `drain` calls, takes commands out that it does not apply.
#[test]
fn drain_against_set() {
    loom::model(|| {
        let (shared, _parker) = wheel(1);
        let setter = {
            let shared = shared.clone();
            thread::spawn(move || set(&shared, 1, FAR))
        };
        let mut seen = Vec::new();
        shared.drain(|key, _| seen.push(key)).unwrap();
        setter.join().unwrap().unwrap();
        shared.close();
        seen.extend(collect(&shared));
        assert_eq!(seen, [1]);
    });
}

/// Stream: a reader that waits is woken by the pair that comes, or by the end.
/// Fails if `poll_next` keeps the waker after it has let go of the lock.
#[test]
fn a_reader_is_woken_by_a_pair() {
    loom::model(|| {
        let ready = Arc::new(Ready::new());
        let pusher = {
            let ready = ready.clone();
            thread::spawn(move || {
                let due = Pair {
                    tick: 1,
                    key: 1,
                    value: (),
                };
                if let Some(waker) = ready.push([due]) {
                    waker.wake();
                }
            })
        };
        let woken = Arc::new(Woken {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        });
        let waker = woken.clone().into();
        let mut context = Context::from_waker(&waker);
        let pair = loop {
            match ready.poll_next(&mut context) {
                Poll::Ready(pair) => break pair.map(|(pair, _)| pair.key),
                Poll::Pending => woken.wait(),
            }
        };
        assert_eq!(pair, Some(1));
        pusher.join().unwrap();
    });
}

/// A waker that can be waited for.
struct Woken {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Woken {
    fn wait(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            self.changed.wait(&mut rung);
        }
        *rung = false;
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }
}

/// Ready queue: a pair begins or is returned by stop, never both, and stop waits for a callback
/// that has begun.
/// Fails if `take_rest` does not wait.
#[test]
fn stop_returns_what_has_not_begun() {
    loom::model(|| {
        let ready = Arc::new(Ready::new());
        assert!(
            ready
                .push([
                    Pair {
                        tick: 1,
                        key: 1,
                        value: 1,
                    },
                    Pair {
                        tick: 1,
                        key: 2,
                        value: 2,
                    },
                ])
                .is_none()
        );
        let fired = Fired::new();
        let worker = {
            let (ready, fired) = (ready.clone(), fired.clone());
            thread::spawn(move || {
                while let Some(pair) = ready.begin_waiting() {
                    fired.push(pair.key);
                    ready.end();
                }
            })
        };
        assert!(ready.close().is_none());
        let rest: Vec<u8> = ready.take_rest().into_iter().map(|pair| pair.key).collect();
        let mut seen = fired.wait_for(0);
        seen.extend(rest);
        assert_eq!(seen, [1, 2]);
        worker.join().unwrap();
    });
}
