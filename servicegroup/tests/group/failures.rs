//! What fails, and what follows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::time::Instant;
use wheelhouse_servicegroup::{
    Blocking, BuildError, Error, Exit, GroupFailed, Member, Outcome, Policy, Reason, Restart,
    ServiceContext, Starter, State, Stopper, start_stop,
};

use crate::support::{Log, builder, ms, obedient, ready, run_and_stop};

fn broken() -> Error {
    io::Error::new(io::ErrorKind::AddrInUse, "port 80 is taken").into()
}

#[tokio::test(start_paused = true)]
async fn s19_the_report_names_the_service_and_keeps_its_error() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().build()?;
    group.add("db", log.service("db", ms(1)))?;
    group.add("api", async |ctx: ServiceContext| {
        ctx.ready();
        tokio::time::sleep(ms(30)).await;
        Err(broken())
    })?;
    let report = group.run().await;
    assert_eq!((report.outcome(), report.exit_code()), (Outcome::Failed, 1));
    assert_eq!(report.reason(), &Reason::Service("api".into()));
    let (name, exit) = &report.failed()[0];
    assert_eq!(name, "api");
    let Exit::Error(error) = exit else {
        panic!("{exit:?}");
    };
    let error: &io::Error = error.downcast_ref().expect("the error itself");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(
        report
            .to_string()
            .contains("reason=service:api failed=api abandoned=-")
    );
    assert_eq!(log.lines(), ["db up", "db down"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_caught_and_named() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    group.add("db", obedient)?;
    group.add("late", async |ctx: ServiceContext| {
        ctx.ready();
        tokio::time::sleep(ms(1)).await;
        panic!("at the bottom")
    })?;
    let report = group.run().await;
    let (name, exit) = &report.failed()[0];
    assert_eq!(
        (name.as_str(), exit.to_string().as_str()),
        ("late", "panicked: at the bottom")
    );
    assert_eq!(report.exit_code(), 1);

    // Before the first await, and in what makes the future.
    let mut group = builder().build()?;
    group.add("early", |_: ServiceContext| {
        if true {
            panic!("at the top");
        }
        std::future::ready(Ok(()))
    })?;
    let report = group.run().await;
    assert_eq!(report.failed()[0].1.to_string(), "panicked: at the top");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s23_a_one_shot_service_ends_and_the_group_goes_on() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    group.add("migrate", async |_: ServiceContext| Ok(()))?;
    group.add("api", obedient)?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        ready(&handle).await;
        tokio::time::sleep(ms(60_000)).await;
        assert!(handle.is_ready());
        let states: Vec<_> = handle.services().iter().map(|it| it.state).collect();
        assert_eq!(states, [Some(State::Exited), Some(State::Ready)]);
        handle.stop();
    });
    assert_eq!(report.exit_code(), 0);
    assert_eq!(report.service("migrate").unwrap().stopped_after, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_group_ends_when_all_its_services_have() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder()
        .drain(ms(300))
        .on_after_stop("last", log.hook("after-stop"))
        .build()?;
    group.add_level([
        Member::new("a", async |_: ServiceContext| {
            tokio::time::sleep(ms(40)).await;
            Ok(())
        }),
        Member::new("b", async |_: ServiceContext| Ok(())),
    ])?;
    let report = group.run().await;
    assert_eq!(report.reason(), &Reason::AllEnded);
    assert_eq!(report.exit_code(), 0);
    assert_eq!(
        report.total(),
        ms(0),
        "nobody is there that a drain would be for"
    );
    assert_eq!(log.lines(), ["after-stop"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn policies_decide_what_an_end_means() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    group.add_level(
        Member::new("leader", async |ctx: ServiceContext| {
            ctx.ready();
            tokio::time::sleep(ms(50)).await;
            Ok(())
        })
        .on_end(Policy::StopGroup),
    )?;
    group.add_level(
        Member::new("flaky", async |_: ServiceContext| Err(broken())).on_error(Policy::Ignore),
    )?;
    let report = group.run().await;
    assert_eq!(report.reason(), &Reason::Service("leader".into()));
    assert_eq!(report.service("flaky").unwrap().state, Some(State::Failed));
    assert_eq!(report.failed()[0].0, "flaky");
    assert_eq!(report.exit_code(), 0, "the error is one to be ignored");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn restarts_pause_longer_each_time_and_end() -> Result<(), BuildError> {
    let log = Log::default();
    let begun = Instant::now();
    let mut group = builder().build()?;
    let starts = log.clone();
    let make = move || {
        starts.add(format!("{}", begun.elapsed().as_millis()));
        async |ctx: ServiceContext| {
            ctx.ready();
            Err(broken())
        }
    };
    let policy = Policy::Restart(Restart::default());
    group.add_level(Member::restartable("mq", make).on_error(policy))?;
    group.add("api", obedient)?;
    let report = group.run().await;
    assert_eq!(log.lines(), ["0", "100", "300", "700", "1500", "3100"]);
    assert_eq!(report.reason(), &Reason::Service("mq".into()));
    let service = report.service("mq").unwrap();
    assert_eq!((service.restarts, service.state), (5, Some(State::Failed)));
    assert_eq!(report.exit_code(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_pause_before_a_restart() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    let pause = Restart::default().min_pause(ms(30_000));
    group.add_level(
        Member::restartable("mq", || {
            async |ctx: ServiceContext| {
                ctx.ready();
                Err(broken())
            }
        })
        .on_error(Policy::Restart(pause)),
    )?;
    group.add("api", obedient)?;
    let report = run_and_stop(group).await;
    assert_eq!(report.service("mq").unwrap().state, Some(State::Failed));
    assert!(report.total() < ms(10), "{:?}", report.total());
    Ok(())
}

#[test]
fn only_what_can_be_made_again_is_restarted() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    let once = Member::new("a", obedient).on_panic(Policy::Restart(Restart::default()));
    let refused = group.add_level(once).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "on_panic is Restart; allowed are restarts of what was added by `Member::restartable`"
    );
    let never = Policy::Restart(Restart::default().limit(0));
    let member = Member::restartable("a", || obedient).on_end(never);
    assert_eq!(group.add_level(member).unwrap_err().argument(), "limit");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s48_what_did_not_start_is_not_stopped() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().build()?;
    group.add("zero", log.service("zero", ms(1)))?;
    let first = log.clone();
    group.add(
        "first",
        start_stop(
            async || Err::<(), _>(broken()),
            async move |()| {
                first.add("first stopped");
                Ok(())
            },
        ),
    )?;
    let (second, stopped) = (log.clone(), log.clone());
    group.add(
        "second",
        start_stop(
            async move || {
                second.add("second started");
                Ok(())
            },
            async move |()| {
                stopped.add("second stopped");
                Ok(())
            },
        ),
    )?;
    let report = group.run().await;
    assert_eq!(log.lines(), ["zero up", "zero down"]);
    assert_eq!(report.exit_code(), 1);
    assert_eq!(report.failed()[0].0, "first");
    assert_eq!(report.service("second").unwrap().state, None);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_never_ready_fails_the_start() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().start_timeout(ms(400)).build()?;
    group.add("db", log.service("db", ms(1)))?;
    group.add("mute", async |ctx: ServiceContext| {
        ctx.stopping().await;
        Ok(())
    })?;
    group.add("api", log.service("api", ms(1)))?;
    let begun = Instant::now();
    let report = group.run().await;
    assert_eq!(begun.elapsed(), ms(401));
    assert_eq!(log.lines(), ["db up", "db down"]);
    let exit = report.service("mute").unwrap().exit.clone().unwrap();
    assert_eq!(
        exit.to_string(),
        "not ready within 400ms; call `ready()`, or give it a longer `start_timeout`"
    );
    assert_eq!(report.exit_code(), 1);
    Ok(())
}

/// A start that is cut off midway is no success: the one who waits hears of a failure.
#[tokio::test(start_paused = true)]
async fn s47_a_start_cancelled_midway_has_failed() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    group.add("db", obedient)?;
    group.add("never", async |_: ServiceContext| {
        std::future::pending::<()>().await;
        Ok(())
    })?;
    let handle = group.handle();
    let run = tokio::time::timeout(ms(100), group.run()).await;
    assert!(run.is_err(), "the run was dropped");
    let report = handle.stopped().await.unwrap();
    assert_eq!((report.outcome(), report.exit_code()), (Outcome::Failed, 1));
    assert_eq!(report.reason(), &Reason::Dropped);
    assert_eq!(report.problem(), Some("the run was dropped before its end"));
    let states: Vec<_> = report.services().iter().map(|it| it.state).collect();
    assert_eq!(states, [Some(State::Failed); 2]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stop_during_the_start_stops_what_has_begun() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().drain(ms(500)).build()?;
    group.add("db", log.service("db", ms(1)))?;
    group.add("slow", async |ctx: ServiceContext| {
        ctx.stopping().await;
        Ok(())
    })?;
    group.add("api", log.service("api", ms(1)))?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        tokio::time::sleep(ms(50)).await;
        handle.stop();
    });
    assert_eq!(log.lines(), ["db up", "db down"]);
    assert_eq!(report.outcome(), Outcome::Stopped);
    assert!(
        report.total() < ms(10),
        "it never was ready, so nothing drains"
    );
    Ok(())
}

/// A start that hangs is no service that hangs: it is given up, and what is below it is stopped.
#[tokio::test(start_paused = true)]
async fn a_stop_gives_up_a_start_that_hangs() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().build()?;
    group.add("db", log.service("db", ms(1)))?;
    let stopped = log.clone();
    group.add(
        "cache",
        start_stop(std::future::pending::<Result<(), Error>>, async move |()| {
            stopped.add("cache stopped");
            Ok(())
        }),
    )?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        tokio::time::sleep(ms(50)).await;
        handle.stop();
    });
    assert_eq!(log.lines(), ["db up", "db down"]);
    assert_eq!(report.outcome(), Outcome::Stopped, "{report}");
    Ok(())
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

/// In a service that is told to stop, in what it leaves, in what was never started, in what a panic
/// carries, in hooks that are not called: nowhere does a panic keep the others from their end.
#[tokio::test(start_paused = true)]
async fn panics_in_a_stop_end_nothing_else() -> Result<(), BuildError> {
    let log = Log::default();
    let bomb = Bomb;
    let mut group = builder()
        .on_reload("never", move || {
            let _held = &bomb;
            std::future::ready(Ok(()))
        })
        .on_wrap_up("flush", async || std::panic::panic_any(Bomb))
        .build()?;
    group.add("db", log.service("db", ms(1)))?;
    group.add("stuck", async |ctx: ServiceContext| {
        let _left = Bomb;
        ctx.ready();
        std::future::pending().await
    })?;
    group.add("stops", async |ctx: ServiceContext| {
        ctx.ready();
        ctx.stopping().await;
        panic!("in the stop")
    })?;
    group.add("carries", async |ctx: ServiceContext| {
        ctx.ready();
        ctx.stopping().await;
        std::panic::panic_any(Bomb)
    })?;
    group.add("fails", async |_: ServiceContext| {
        tokio::time::sleep(ms(10)).await;
        Err(broken())
    })?;
    let bomb = Bomb;
    group.add("never", async move |_: ServiceContext| {
        let _held = bomb;
        Ok(())
    })?;
    let report = group.run().await;
    assert_eq!(log.lines(), ["db up", "db down"]);
    let names: Vec<_> = report.failed().into_iter().map(|it| it.0).collect();
    assert_eq!(names, ["stops", "carries", "fails", "hook:flush"]);
    assert_eq!(report.abandoned(), ["stuck"]);
    assert_eq!(report.service("never").unwrap().state, None);
    assert_eq!(report.exit_code(), 75);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s51_two_failures_in_the_stop_are_both_reported() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    for name in ["one", "two"] {
        group.add(name, async |ctx: ServiceContext| {
            ctx.ready();
            ctx.stopping().await;
            Err(broken())
        })?;
    }
    let report = run_and_stop(group).await;
    let names: Vec<_> = report.failed().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!((report.reason(), report.exit_code()), (&Reason::Handle, 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failure_in_a_nested_group_is_named_by_its_path() -> Result<(), BuildError> {
    let mut inner = builder().build()?;
    inner.add("db", async |ctx: ServiceContext| {
        ctx.ready();
        Err(broken())
    })?;
    let mut outer = builder().build()?;
    outer.add("inner", inner)?;
    let report = outer.run().await;
    assert_eq!(report.failed()[0].0, "inner/db");
    assert_eq!(report.reason(), &Reason::Service("inner".into()));
    let Some(Exit::Error(error)) = &report.service("inner").unwrap().exit else {
        panic!("it has an error");
    };
    assert!(error.is::<GroupFailed>());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn failing_hooks_are_reported() -> Result<(), BuildError> {
    let mut group = builder()
        .on_wrap_up("flush", async || Err(broken()))
        .on_after_stop("goodbye", async || panic!("no words"))
        .build()?;
    group.add("api", obedient)?;
    let report = run_and_stop(group).await;
    let failed = report.failed();
    assert_eq!(
        (failed[0].0.as_str(), failed[1].0.as_str()),
        ("hook:flush", "hook:goodbye")
    );
    assert_eq!(report.exit_code(), 1);
    Ok(())
}

/// Blocks in `start` until it is stopped.
#[derive(Default)]
struct Poller {
    stops: Arc<AtomicU32>,
    stop: std::sync::Mutex<bool>,
    stopped: std::sync::Condvar,
    fails: bool,
}

impl Starter for Poller {
    fn start(&self) -> Result<(), Error> {
        if self.fails {
            return Err(broken());
        }
        let stop = self.stop.lock().unwrap();
        drop(self.stopped.wait_while(stop, |stop| !*stop));
        Ok(())
    }
}

impl Stopper for Poller {
    fn stop(&self) -> Result<(), Error> {
        self.stops.fetch_add(1, Ordering::SeqCst);
        *self.stop.lock().unwrap() = true;
        self.stopped.notify_all();
        Ok(())
    }
}

#[tokio::test]
async fn blocking_pairs_are_stopped_once_unless_they_did_not_start() -> Result<(), BuildError> {
    for (fails, expected) in [(false, (0, 1)), (true, (1, 0))] {
        let stops = Arc::new(AtomicU32::new(0));
        let mut group = builder().total(ms(60_000)).build()?;
        let poller = Poller {
            stops: stops.clone(),
            fails,
            ..Poller::default()
        };
        group.add("poller", Blocking::new(poller))?;
        let report = run_and_stop(group).await;
        let seen = (report.exit_code(), stops.load(Ordering::SeqCst));
        assert_eq!(seen, expected, "{report}");
    }
    Ok(())
}
