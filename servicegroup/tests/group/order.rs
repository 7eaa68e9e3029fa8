//! The order in which things are started and stopped.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use wheelhouse_servicegroup::{
    BuildError, Member, Outcome, Reason, ServiceContext, ServiceGroup, State,
};

use crate::support::{Log, builder, ms, ready, run_and_stop};

#[tokio::test(start_paused = true)]
async fn s22_levels_stop_in_reverse() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().build()?;
    for number in 1..=5 {
        // The first to stop takes longest, so that a stop side by side would show.
        group.add(
            number.to_string(),
            log.service(&number.to_string(), ms(number * 10)),
        )?;
    }
    group.handle().stop();
    let report = group.run().await;
    assert_eq!(report.outcome(), Outcome::StoppedBeforeStart);
    assert_eq!(log.lines(), [""; 0]);

    let mut group = builder().build()?;
    for number in 1..=5 {
        group.add(
            number.to_string(),
            log.service(&number.to_string(), ms(number * 10)),
        )?;
    }
    let handle = group.handle();
    group.add("last", async move |ctx: ServiceContext| {
        ctx.ready();
        handle.stop();
        ctx.stopping().await;
        Ok(())
    })?;
    let report = group.run().await;
    let up = (1..=5).map(|n| format!("{n} up"));
    let down = (1..=5).rev().map(|n| format!("{n} down"));
    assert_eq!(log.lines(), up.chain(down).collect::<Vec<_>>());
    assert_eq!(
        (report.outcome(), report.exit_code()),
        (Outcome::Stopped, 0)
    );
    assert_eq!(report.reason(), &Reason::Handle);
    Ok(())
}

/// The default, and nothing written by hand: the order is that of the names.
#[tokio::test(start_paused = true)]
async fn s30_reverse_order_is_the_default() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = ServiceGroup::builder().log_to_stderr(false).build()?;
    group.add("db", log.service("db", ms(1)))?;
    group.add("api", log.service("api", ms(50)))?;
    let report = run_and_stop(group).await;
    assert_eq!(log.lines(), ["db up", "api up", "api down", "db down"]);
    assert_eq!(report.exit_code(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn services_of_a_level_start_and_stop_side_by_side() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().build()?;
    group.add_level([
        Member::new("slow", log.service("slow", ms(300))),
        Member::new("fast", log.service("fast", ms(100))),
    ])?;
    let handle = group.handle();
    let started = tokio::time::Instant::now();
    let (report, ()) = tokio::join!(group.run(), async {
        ready(&handle).await;
        handle.stop();
    });
    assert_eq!(
        log.lines(),
        ["slow up", "fast up", "fast down", "slow down"]
    );
    assert_eq!(started.elapsed(), ms(301));
    assert_eq!(report.service("fast").unwrap().stopped_after, Some(ms(100)));
    Ok(())
}

/// A ends when B's listener is gone: B is above A, so it is gone by then.
#[tokio::test(start_paused = true)]
async fn s1_a_service_may_wait_for_one_above_it() -> Result<(), BuildError> {
    let log = Log::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut group = builder().build()?;
    let a = log.clone();
    group.add("a", async move |ctx: ServiceContext| {
        ctx.ready();
        ctx.stopping().await;
        while TcpStream::connect(address).is_ok() {
            tokio::time::sleep(ms(1)).await;
        }
        a.add("a");
        Ok(())
    })?;
    let b = log.clone();
    group.add("b", async move |ctx: ServiceContext| {
        ctx.ready();
        ctx.stopping().await;
        drop(listener);
        b.add("b");
        Ok(())
    })?;
    let report = run_and_stop(group).await;
    assert_eq!(report.outcome(), Outcome::Stopped);
    assert_eq!(log.lines(), ["b", "a"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s3_phases_come_in_order() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder()
        .drain(ms(200))
        .on_wrap_up("flush", log.hook("wrap-up"))
        .on_after_stop("report", log.hook("after-stop"))
        .build()?;
    let in_drain = log.clone();
    group.add("api", async move |ctx: ServiceContext| {
        ctx.ready();
        ctx.draining().await;
        in_drain.add(format!("draining, ready={}", ctx.group().is_ready()));
        ctx.stopping().await;
        in_drain.add("stop");
        Ok(())
    })?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        ready(&handle).await;
        handle.stop();
        assert!(!handle.is_ready(), "readiness is false at once");
    });
    assert_eq!(
        log.lines(),
        ["draining, ready=false", "wrap-up", "stop", "after-stop"]
    );
    assert_eq!(report.total(), ms(200));
    assert_eq!(report.hooks().len(), 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s25_a_nested_group_is_stopped_before_what_is_below_it() -> Result<(), BuildError> {
    let log = Log::default();
    let mut inner = builder().build()?;
    inner.add("2", log.service("2", ms(50)))?;
    inner.add("3", log.service("3", ms(20)))?;
    let mut outer = builder().build()?;
    outer.add("1", log.service("1", ms(1)))?;
    outer.add("inner", inner)?;
    outer.add("4", log.service("4", ms(30)))?;
    outer.add("5", log.service("5", ms(10)))?;
    let report = run_and_stop(outer).await;
    let down: Vec<_> = log
        .lines()
        .into_iter()
        .filter(|it| it.ends_with("down"))
        .collect();
    assert_eq!(down, ["5 down", "4 down", "3 down", "2 down", "1 down"]);
    assert_eq!(report.exit_code(), 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_nested_group_drains_with_the_outer_one() -> Result<(), BuildError> {
    let mut inner = builder().build()?;
    let log = Log::default();
    let drained = log.clone();
    let inner_handle = inner.handle();
    inner.add("api", async move |ctx: ServiceContext| {
        ctx.ready();
        ctx.draining().await;
        drained.add(format!("ready={}", ctx.group().is_ready()));
        ctx.stopping().await;
        Ok(())
    })?;
    let mut outer = builder().drain(ms(100)).build()?;
    outer.add("inner", inner)?;
    let handle = outer.handle();
    let (_, ()) = tokio::join!(outer.run(), async {
        ready(&handle).await;
        ready(&inner_handle).await;
        handle.stop();
        tokio::time::sleep(ms(50)).await;
        let state = inner_handle.services()[0].state;
        assert_eq!(
            (state, inner_handle.is_stopping()),
            (Some(State::Draining), false)
        );
    });
    assert_eq!(log.lines(), ["ready=false"]);
    Ok(())
}

/// What a level is made of goes on for those above it, until they have ended.
#[tokio::test(start_paused = true)]
async fn s44_a_request_in_flight_has_its_client_until_it_is_done() -> Result<(), BuildError> {
    let open = Arc::new(AtomicBool::new(false));
    let status = Arc::new(std::sync::Mutex::new(0));
    let mut group = builder().build()?;
    let client = open.clone();
    group.add("client", async move |ctx: ServiceContext| {
        client.store(true, Ordering::SeqCst);
        ctx.ready();
        ctx.stopping().await;
        client.store(false, Ordering::SeqCst);
        Ok(())
    })?;
    let (answer, in_flight) = (status.clone(), Arc::new(Notify::new()));
    let begun = in_flight.clone();
    group.add("server", async move |ctx: ServiceContext| {
        ctx.ready();
        begun.notify_one();
        // The request is served while the group stops, and needs the client at its end.
        ctx.stopping().await;
        tokio::time::sleep(ms(100)).await;
        *answer.lock().unwrap() = if open.load(Ordering::SeqCst) {
            200
        } else {
            503
        };
        Ok(())
    })?;
    let handle = group.handle();
    tokio::join!(group.run(), async {
        in_flight.notified().await;
        handle.stop();
    });
    assert_eq!(*status.lock().unwrap(), 200);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_level_waits_for_readiness() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().start_timeout(ms(5000)).build()?;
    let slow = log.clone();
    group.add("slow", async move |ctx: ServiceContext| {
        tokio::time::sleep(ms(700)).await;
        slow.add("slow is ready");
        ctx.ready();
        ctx.stopping().await;
        Ok(())
    })?;
    group.add("next", log.service("next", ms(0)))?;
    let report = run_and_stop(group).await;
    assert_eq!(log.lines(), ["slow is ready", "next up", "next down"]);
    assert_eq!(report.service("slow").unwrap().ready_after, Some(ms(700)));
    Ok(())
}
