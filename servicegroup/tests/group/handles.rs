//! Stopping from anywhere, and waiting for the end.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use wheelhouse_servicegroup::{
    BuildError, CtrlC, Error, InsideService, Listening, Outcome, Reason, ServiceContext,
    SignalSink, SignalSource,
};

use crate::support::{Log, builder, ms, obedient, ready, run_and_stop, stubborn};

#[tokio::test]
async fn s2_a_stop_without_a_signal_closes_the_port() -> Result<(), BuildError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut group = builder().build()?;
    group.add("api", async move |ctx: ServiceContext| {
        ctx.ready();
        ctx.stopping().await;
        drop(listener);
        Ok(())
    })?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        ready(&handle).await;
        assert!(TcpStream::connect(address).is_ok());
        assert!(handle.stop(), "the first who asks");
        assert!(!handle.stop());
    });
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(report.outcome(), Outcome::Stopped);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s15_a_hundred_threads_stop_and_all_get_the_same_report() -> Result<(), BuildError> {
    let stops = Arc::new(AtomicU32::new(0));
    let mut group = builder().total(ms(60_000)).build()?;
    for name in ["db", "api"] {
        let stops = stops.clone();
        group.add(name, async move |ctx: ServiceContext| {
            ctx.ready();
            ctx.stopping().await;
            stops.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })?;
    }
    let handle = group.handle();
    let running = tokio::spawn(group.run());
    let threads: Vec<_> = (0..100)
        .map(|_| {
            let handle = handle.clone();
            thread::spawn(move || (handle.stop(), handle.stopped_blocking().unwrap()))
        })
        .collect();
    let report = running.await.unwrap();
    let results: Vec<_> = threads.into_iter().map(|it| it.join().unwrap()).collect();
    assert_eq!(results.iter().filter(|(first, _)| *first).count(), 1);
    let line = report.to_string();
    assert!(results.iter().all(|(_, it)| it.to_string() == line));
    // All of them, or none if the threads were there before the start.
    let expected = match report.outcome() {
        Outcome::StoppedBeforeStart => 0,
        _ => report
            .services()
            .iter()
            .filter(|it| it.state.is_some())
            .count() as u32,
    };
    assert_eq!(stops.load(Ordering::SeqCst), expected);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s29_the_end_is_after_everything() -> Result<(), BuildError> {
    let flag = Arc::new(AtomicBool::new(false));
    let mut group = builder().build()?;
    let set = flag.clone();
    group.add("api", async move |ctx: ServiceContext| {
        ctx.ready();
        ctx.stopping().await;
        tokio::time::sleep(ms(500)).await;
        set.store(true, Ordering::SeqCst);
        Ok(())
    })?;
    let handle = group.handle();
    tokio::spawn(group.run());
    ready(&handle).await;
    handle.stop();
    let report = handle.stopped().await.unwrap();
    assert!(flag.load(Ordering::SeqCst));
    assert_eq!(report.total(), ms(500));
    // And again, long after.
    assert!(handle.stopped().await.is_ok());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s49_a_stop_before_the_start_starts_nothing() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder()
        .on_after_stop("last", log.hook("after-stop"))
        .build()?;
    group.add("api", log.service("api", ms(1)))?;
    let handle = group.handle();
    handle.stop();
    let report = group.run().await;
    assert_eq!(report.outcome(), Outcome::StoppedBeforeStart);
    assert_eq!(report.exit_code(), 0);
    assert!(
        report
            .to_string()
            .contains("outcome=stopped_before_start reason=handle")
    );
    assert_eq!(log.lines(), [""; 0]);
    assert!(handle.stopped().await.is_ok());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_dropped_unrun_has_ended() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    group.add("api", obedient)?;
    let handle = group.handle();
    drop(group);
    let report = handle.stopped().await.unwrap();
    assert_eq!(report.outcome(), Outcome::StoppedBeforeStart);
    assert_eq!(report.reason(), &Reason::Dropped);
    Ok(())
}

/// A service that waited for the end of its own group would keep it from ending.
#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_its_own_group_is_told_at_once() -> Result<(), BuildError> {
    let log = Log::default();
    let mut inner = builder().build()?;
    let mut outer = builder().build()?;
    let (inner_handle, outer_handle) = (inner.handle(), outer.handle());
    let seen = log.clone();
    inner.add("nosy", async move |ctx: ServiceContext| {
        for handle in [&inner_handle, &outer_handle] {
            assert!(matches!(handle.stopped().await, Err(InsideService)));
        }
        assert!(matches!(
            outer_handle.stopped_blocking(),
            Err(InsideService)
        ));
        ctx.ready();
        ctx.stopping().await;
        seen.add("stopping");
        Ok(())
    })?;
    outer.add("inner", inner)?;
    let report = run_and_stop(outer).await;
    assert_eq!(report.exit_code(), 0, "{report}");
    assert_eq!(log.lines(), ["stopping"]);
    Ok(())
}

/// Stands in for the system's signals.
struct Script(Log);

impl SignalSource for Script {
    fn listen(self: Box<Self>, sink: SignalSink) -> std::io::Result<Listening> {
        struct Until(Log);
        impl Drop for Until {
            fn drop(&mut self) {
                self.0.add("listens no more");
            }
        }
        let log = self.0.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ms(10)).await;
            sink.reload();
            tokio::time::sleep(ms(10)).await;
            log.add(format!("first={}", sink.stop(15)));
            log.add(format!("first={}", sink.stop(2)));
        });
        Ok(Listening::new(Until(self.0)))
    }
}

#[tokio::test(start_paused = true)]
async fn s12_any_source_of_signals_has_the_same_order() -> Result<(), BuildError> {
    let log = Log::default();
    let reloads = log.clone();
    let mut group = builder()
        .signals(Script(log.clone()))
        .on_reload("config", move || {
            reloads.add("reload");
            std::future::ready(Ok(()))
        })
        .build()?;
    group.add("db", log.service("db", ms(5)))?;
    group.add("api", log.service("api", ms(10)))?;
    let report = group.run().await;
    assert_eq!(report.reason(), &Reason::Signal(15));
    assert!(report.to_string().contains("reason=sigterm"));
    assert_eq!(
        log.lines(),
        [
            "db up",
            "api up",
            "reload",
            "first=true",
            "first=false",
            "api down",
            "db down",
            "listens no more"
        ]
    );

    // The portable source, and a handle beside it.
    let mut group = builder().signals(CtrlC).build()?;
    group.add("api", obedient)?;
    assert_eq!(run_and_stop(group).await.reason(), &Reason::Handle);
    Ok(())
}

/// A source that cannot listen.
struct Deaf;

impl SignalSource for Deaf {
    fn listen(self: Box<Self>, _: SignalSink) -> std::io::Result<Listening> {
        Err(std::io::Error::other("no ears"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_listen_starts_nothing() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().signals(Deaf).build()?;
    group.add("api", log.service("api", ms(1)))?;
    let report = group.run().await;
    assert_eq!(report.exit_code(), 1);
    assert_eq!(report.problem(), Some("cannot listen or watch: no ears"));
    assert_eq!(log.lines(), [""; 0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reload_hooks_run_in_order_and_contain_their_panics() -> Result<(), BuildError> {
    let log = Log::default();
    let (first, second) = (log.clone(), log.clone());
    let mut group = builder()
        .on_reload("first", move || {
            first.add("first");
            async { panic!("cannot") }
        })
        .on_reload("second", move || {
            second.add("second");
            async { Err::<(), Error>("will not".into()) }
        })
        .build()?;
    group.add("api", obedient)?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        ready(&handle).await;
        for _ in 0..2 {
            handle.reload();
            tokio::time::sleep(ms(1)).await;
        }
        handle.stop();
        handle.reload();
    });
    assert_eq!(log.lines(), ["first", "second", "first", "second"]);
    assert_eq!(report.exit_code(), 0);
    Ok(())
}

/// The driver goes on beside a hook that hangs, and beside one that blocks its thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_a_reload() -> Result<(), BuildError> {
    let gate = Arc::new(std::sync::Barrier::new(2));
    let (begun, mut reloading) = tokio::sync::mpsc::unbounded_channel();
    for blocks in [false, true] {
        let (gate_of_hook, begun) = (gate.clone(), begun.clone());
        let mut group = builder()
            .total(ms(60_000))
            .on_reload("slow", move || {
                let (gate, begun) = (gate_of_hook.clone(), begun.clone());
                async move {
                    begun.send(())?;
                    if blocks {
                        gate.wait();
                    }
                    std::future::pending().await
                }
            })
            .build()?;
        group.add("api", obedient)?;
        let handle = group.handle();
        let run = tokio::spawn(group.run());
        ready(&handle).await;
        handle.reload();
        reloading.recv().await;
        handle.stop();
        let report = run.await.unwrap();
        assert_eq!(report.outcome(), Outcome::Stopped, "{report}");
        assert!(report.total() < ms(5000), "{report}");
        if blocks {
            gate.wait();
        }
    }
    Ok(())
}

/// Runtimes that go away in the middle of a start, of serving and of a stop.
#[test]
fn s53_dropping_the_runtime_panics_nowhere() -> Result<(), BuildError> {
    for moment in ["start", "serve", "stop"] {
        let mut group = builder()
            .total(ms(60_000))
            .on_wrap_up("hook", async || Ok(()))
            .build()?;
        group.add("db", obedient)?;
        if moment == "start" {
            group.add("never", async |_: ServiceContext| {
                std::future::pending::<()>().await;
                Ok(())
            })?;
        }
        group.add("api", stubborn)?;
        let handle = group.handle();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let running = runtime.spawn(group.run());
        let at_the_moment = || match moment {
            "start" => handle.services()[1].state.is_some(),
            "serve" => handle.is_ready(),
            _ => handle.services()[1].state == Some(wheelhouse_servicegroup::State::Stopping),
        };
        while !at_the_moment() {
            if moment == "stop" && handle.is_ready() {
                handle.stop();
            }
            thread::yield_now();
        }
        drop(runtime);
        assert!(matches!(
            futures_util::FutureExt::now_or_never(running),
            Some(Err(error)) if error.is_cancelled()
        ));
        let report = handle.stopped_blocking().unwrap();
        assert_eq!((moment, report.exit_code()), (moment, 1));
        assert!(
            report
                .failed()
                .iter()
                .all(|(_, exit)| !exit.to_string().contains("panicked"))
        );
    }
    Ok(())
}
