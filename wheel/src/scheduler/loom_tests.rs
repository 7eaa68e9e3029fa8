//! Models of the hand-shakes between callers, driver, runs and the end of a scheduler, on the shipped
//! code. tokio is the real one: its part here is to keep what it is given, and nothing runs on it.
//!
//! Each names the guarantee or invariant that it checks and a mutation that makes it fail.

use std::future::{pending, ready};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::SeqCst;
use loom::thread;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::drive::alarm::{Alarm, Bell};
use crate::drive::ticks::{NEVER, Ticks};

use super::control::Cancel;
use super::error::TaskError;
use super::gate::Gate;
use super::handle::TaskHandle;
use super::inner::{Inner, Parts};
use super::options::Options;
use super::plan::{MissedTick, Plan};
use super::shard::Timed;
use super::task::{First, schedule};
use super::work::{Async, Shared};

/// Every task below is due at tick 1, and again at 2 if it recurs.
const S: Duration = Duration::from_secs(1);
const NOW: u64 = 1;
const LATER: u64 = 9;

/// Checks every order in which at most four threads' turns are cut short: the faults of the mutations
/// below take three.
fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(test);
}

/// A clock that stands still.
struct Still(Instant);

impl Clock for Still {
    fn now(&self) -> Instant {
        self.0
    }
}

/// What a model is about. The runtime is kept to the end of it.
#[derive(Clone)]
struct World {
    inner: Arc<Inner>,
    _runtime: Arc<Runtime>,
}

impl World {
    fn new(places: Option<usize>) -> Self {
        let runtime = Builder::new_current_thread().build().unwrap();
        let start = Instant::now();
        let inner = Inner::new(Parts {
            name: "loom".to_owned(),
            ticks: Ticks::new(start, S),
            clock: Arc::new(Still(start)),
            runtime: runtime.handle().clone(),
            shards: 1,
            alarm: Alarm::new(Bell::Task(Arc::new(Notify::new()))),
            defaults: Options::new(),
            max_running: places,
            max_pending: usize::MAX,
            events: 1,
            seed: Some(1),
        });
        World {
            inner: Arc::new(inner),
            _runtime: Arc::new(runtime),
        }
    }

    fn options(&self, key: Option<&str>) -> Options {
        Options {
            key: key.map(Arc::from),
            ..(*self.inner.defaults).clone()
        }
    }

    /// A task that counts its runs; none if the scheduler is closed.
    fn task(&self, key: Option<&str>, recurs: bool, runs: &Arc<AtomicUsize>) -> Option<TaskHandle> {
        let plan = recurs.then(|| Plan::Every {
            period: S,
            missed: MissedTick::Burst,
            due: self.inner.clock.now() + S,
        });
        let runs = runs.clone();
        let work = Async(move || {
            // One run at a time, in every model.
            assert_eq!(runs.fetch_add(1, SeqCst) % 2, 0, "two at once");
            runs.fetch_add(1, SeqCst);
            ready(())
        });
        let options = Some(Arc::new(self.options(key)));
        schedule(&self.inner, options, First::After(S), plan, work).ok()
    }

    /// A task that recurs, whose runs may overlap, and that counts them.
    fn overlapping(&self, runs: &Arc<AtomicUsize>) -> Option<TaskHandle> {
        let plan = Plan::Every {
            period: S,
            missed: MissedTick::Burst,
            due: self.inner.clock.now() + S,
        };
        let runs = runs.clone();
        let work = Shared::new(Async(move || {
            runs.fetch_add(2, SeqCst);
            ready(())
        }));
        let options = Options {
            max_concurrent: Some(2),
            ..self.options(None)
        };
        let options = Some(Arc::new(options));
        schedule(&self.inner, options, First::After(S), Some(plan), work).ok()
    }

    /// What the driver and a runner do: take out what is due, and begin it.
    fn drive(&self, tick: u64) {
        let mut due = Vec::new();
        for shard in &self.inner.shards {
            while !shard.fire(&mut shard.lock(), tick, 8, &mut due) {}
        }
        for (tick, timed) in due {
            let Timed::Task(entry) = timed else {
                unreachable!("no run has a timeout");
            };
            if let Some(claim) = self.inner.come_due(entry, tick) {
                claim.begin(&self.inner);
            }
        }
        // Those that others have given their places to.
        for claim in self.inner.ready.drain() {
            claim.begin(&self.inner);
        }
    }

    /// Nothing waits, is due or runs.
    fn assert_empty(&self) {
        assert_eq!((self.inner.live(), self.inner.in_progress()), (0, 0));
    }
}

/// The outcome of a task that has ended.
fn outcome(handle: Option<TaskHandle>) -> Option<Result<(), TaskError>> {
    let mut handle = std::pin::pin!(handle?);
    let mut nobody = Context::from_waker(Waker::noop());
    match handle.as_mut().poll(&mut nobody) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => panic!("its handle has not heard of the end"),
    }
}

/// Runs who has a place and then who takes it over, and asserts that there are at most `places`.
fn work(gate: &Gate<u8>, who: Option<u8>, places: usize, inside: &AtomicUsize, done: &AtomicUsize) {
    let mut who = who;
    while who.is_some() {
        assert!(inside.fetch_add(1, SeqCst) < places, "more than {places}");
        inside.fetch_sub(1, SeqCst);
        done.fetch_add(1, SeqCst);
        who = gate.leave();
    }
}

/// S3: a place is given to one at a time, and nobody waits for one for ever.
/// Fails if `leave` looks at the queue under one lock and gives the place up under another.
#[test]
fn a_place_is_handed_on_once() {
    model(|| {
        let shared = Arc::new((Gate::new(1), AtomicUsize::new(0), AtomicUsize::new(0)));
        let enter = |who, shared: &(Gate<u8>, AtomicUsize, AtomicUsize)| {
            let (gate, inside, done) = shared;
            work(gate, gate.enter(0, 0, who), 1, inside, done);
        };
        let threads = [1, 2].map(|who| {
            let shared = shared.clone();
            thread::spawn(move || enter(who, &shared))
        });
        enter(0, &shared);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(shared.2.load(SeqCst), 3);
        assert!(shared.0.is_idle());
    });
}

/// Gate: nobody waits while a place is free.
/// Fails if `resize` changes the limit and lets nobody in.
#[test]
fn more_places_let_in_who_waits() {
    model(|| {
        let gate = Arc::new(Gate::new(1));
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        assert_eq!(gate.enter(0, 0, 0), Some(0));
        let enters = {
            let gate = gate.clone();
            thread::spawn(move || gate.enter(0, 0, 1))
        };
        for who in gate.resize(2) {
            work(&gate, Some(who), 2, &inside, &done);
        }
        let entered = enters.join().unwrap();
        work(&gate, entered, 2, &inside, &done);
        assert_eq!(done.load(SeqCst), 1, "one waits, and there is a place");
        assert_eq!(gate.leave(), None);
        assert!(gate.is_idle());
    });
}

/// S4, I1: of a cancellation and a run that comes due and begins exactly one wins.
/// Fails if `begin` does not look at the phase again under the task's lock.
#[test]
fn a_task_runs_or_is_cancelled() {
    model(|| {
        let (world, runs) = (World::new(None), Arc::new(AtomicUsize::new(0)));
        let task = world.task(None, false, &runs);
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(NOW))
        };
        let won = task.as_ref().unwrap().cancel();
        driver.join().unwrap();
        let (begun, outcome) = (runs.load(SeqCst) / 2, outcome(task).unwrap());
        match won {
            Cancel::Cancelled => assert_eq!((begun, outcome), (0, Err(TaskError::Cancelled))),
            Cancel::Running | Cancel::Ended => assert_eq!((begun, outcome), (1, Ok(()))),
        }
        world.assert_empty();
    });
}

/// S4: no run begins after a cancellation, also when it comes in the middle of a run.
/// Fails if `file_again` does not look at `cancelled`.
#[test]
fn a_recurring_task_is_cancelled_for_good() {
    model(|| {
        let (world, runs) = (World::new(None), Arc::new(AtomicUsize::new(0)));
        let task = world.task(None, true, &runs);
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(NOW))
        };
        assert_ne!(task.as_ref().unwrap().cancel(), Cancel::Ended);
        driver.join().unwrap();
        let begun = runs.load(SeqCst);
        world.drive(LATER);
        assert_eq!(runs.load(SeqCst), begun);
        outcome(task);
        world.assert_empty();
    });
}

/// A task that is held back and let go runs once, wherever that meets it.
/// Fails if `begin` does not file a paused task again.
#[test]
fn a_task_that_was_paused_for_a_while_runs_once() {
    model(|| {
        let (world, runs) = (World::new(None), Arc::new(AtomicUsize::new(0)));
        let task = world.task(None, false, &runs);
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(NOW))
        };
        let _ = task.as_ref().map(|task| (task.pause(), task.resume()));
        driver.join().unwrap();
        world.drive(LATER);
        assert_eq!((runs.load(SeqCst) / 2, outcome(task)), (1, Some(Ok(()))));
        world.assert_empty();
    });
}

/// S3: runs of one key are one at a time, while tasks of it are replaced and end.
/// Fails if `let_go` forgets a key whose gate is not idle.
#[test]
fn a_key_has_one_gate() {
    model(|| {
        let (world, runs) = (World::new(None), Arc::new(AtomicUsize::new(0)));
        let first = world.task(Some("key"), false, &runs);
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(NOW))
        };
        // The second leaves while a run of the first may hold the place, and the third comes then.
        let second = world.task(Some("key"), false, &runs);
        let _ = second.as_ref().map(|task| task.cancel());
        let third = world.task(Some("key"), false, &runs);
        world.drive(NOW);
        driver.join().unwrap();
        world.drive(LATER);
        assert_eq!(outcome(third), Some(Ok(())));
        for replaced in [first, second] {
            let outcome = outcome(replaced).unwrap();
            assert!(matches!(outcome, Ok(()) | Err(TaskError::Cancelled)));
        }
        assert!(world.inner.keys.task("key").is_none());
        world.assert_empty();
    });
}

/// S5: a task that is accepted while the scheduler closes runs or is cancelled, and is not forgotten.
/// Fails if `file` does not look at `closed` under the shard's lock.
#[test]
fn what_is_accepted_is_not_forgotten() {
    model(|| {
        let (world, runs) = (World::new(None), Arc::new(AtomicUsize::new(0)));
        let first = world.task(None, false, &runs);
        let caller = {
            let (world, runs) = (world.clone(), Arc::new(AtomicUsize::new(0)));
            thread::spawn(move || world.task(None, false, &runs))
        };
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(NOW))
        };
        world.inner.close();
        let second = caller.join().unwrap();
        driver.join().unwrap();
        assert!(outcome(first).is_some());
        outcome(second);
        world.assert_empty();
    });
}

/// S5: however many end a scheduler at once, each task ends once and is counted once.
/// Fails if `end` does not look at the phase under the task's lock.
#[test]
fn two_that_close_end_each_task_once() {
    model(|| {
        let (world, runs) = (World::new(None), Arc::new(AtomicUsize::new(0)));
        let task = world.task(None, false, &runs);
        world.inner.tally.opens();
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(NOW))
        };
        let other = {
            let world = world.clone();
            thread::spawn(move || world.inner.close())
        };
        world.inner.close();
        other.join().unwrap();
        driver.join().unwrap();
        let endings = world.inner.tally.so_far().all;
        assert_eq!(endings.total(), 1, "{endings:?}");
        assert_eq!(endings.completed, runs.load(SeqCst) as u64 / 2);
        assert!(outcome(task).is_some());
        world.assert_empty();
    });
}

/// S4, S5: a task in the hands of its run goes on or ends, whatever becomes of the run.
/// Fails if `child_ended` does not go on with the task that the run had in hand.
#[test]
fn a_task_in_the_hands_of_its_run_is_not_forgotten() {
    model(|| {
        let (world, runs) = (World::new(None), Arc::new(AtomicUsize::new(0)));
        let task = world.overlapping(&runs);
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(NOW))
        };
        world.inner.close();
        driver.join().unwrap();
        let begun = runs.load(SeqCst);
        world.drive(LATER);
        assert_eq!(runs.load(SeqCst), begun);
        assert!(outcome(task).is_some());
        world.assert_empty();
    });
}

/// S6: nobody is left in a queue that was emptied by the end.
/// Fails if `advance` does not look for that after it has put a claim into a queue.
#[test]
fn nobody_enters_a_queue_after_the_end() {
    model(|| {
        let (world, runs) = (World::new(Some(1)), Arc::new(AtomicUsize::new(0)));
        // Has the place, and keeps it.
        let holds = schedule(
            &world.inner,
            None,
            First::After(S),
            None,
            Async(pending::<()>),
        );
        world.drive(NOW);
        let second = world.task(None, false, &runs);
        let driver = {
            let world = world.clone();
            thread::spawn(move || world.drive(LATER))
        };
        world.inner.close();
        driver.join().unwrap();
        assert_eq!(outcome(second), Some(Err(TaskError::Cancelled)));
        assert_eq!(runs.load(SeqCst), 0);
        assert_eq!((world.inner.live(), world.inner.in_progress()), (1, 1));
        drop(holds);
    });
}

/// An earlier deadline wakes a driver that is a task and sleeps, or is about to.
/// Fails if `ring` comes before the shard shows the deadline, or `publish` after it was looked at.
#[test]
fn an_earlier_deadline_rings_the_bell_of_a_task() {
    model(|| {
        let bell = Arc::new(Notify::new());
        let alarm = Alarm::new(Bell::Task(bell.clone()));
        let shared = Arc::new((alarm, World::new(None)));
        let driver = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (alarm, world) = &*shared;
                alarm.publish(NEVER);
                world.inner.earliest() < NEVER
            })
        };
        let (alarm, world) = &*shared;
        let runs = Arc::new(AtomicUsize::new(0));
        let task = world.task(None, false, &runs);
        alarm.ring(NOW);
        let stays_awake = driver.join().unwrap();
        let mut rung = std::pin::pin!(bell.notified());
        let mut nobody = Context::from_waker(Waker::noop());
        let rung = rung.as_mut().poll(&mut nobody).is_ready();
        assert!(stays_awake || rung, "the driver sleeps past a deadline");
        let _ = task.unwrap().cancel();
    });
}
