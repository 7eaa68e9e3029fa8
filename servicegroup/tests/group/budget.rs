//! One budget: who overruns takes nobody else's time and is named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::time::Instant;
use wheelhouse_servicegroup::{
    BuildError, Level, Member, Outcome, ServiceContext, State, start_stop,
};

use crate::support::{Log, builder, ms, obedient, run_and_stop, stubborn};

#[tokio::test(start_paused = true)]
async fn s4_a_hook_that_never_returns_ends_with_its_time() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder()
        .total(ms(10_000))
        .on_wrap_up("stuck", std::future::pending)
        .on_wrap_up("fine", log.hook("wrap-up"))
        .on_after_stop("last", log.hook("after-stop"))
        .build()?;
    group.add("api", log.service("api", ms(100)))?;
    let report = run_and_stop(group).await;
    assert_eq!(log.lines(), ["api up", "wrap-up", "api down", "after-stop"]);
    assert_eq!(report.total(), ms(1100));
    assert_eq!(report.abandoned(), ["hook:stuck"]);
    assert_eq!(report.exit_code(), 75);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s24_who_ignores_the_stop_is_left_behind_at_the_deadline() -> Result<(), BuildError> {
    let mut group = builder().total(ms(3000)).build()?;
    group.add("actor", stubborn)?;
    let report = run_and_stop(group).await;
    assert_eq!(report.total(), ms(3000));
    assert_eq!(report.outcome(), Outcome::DeadlineMissed);
    assert_eq!(report.exit_code(), 75);
    assert_eq!(
        report.service("actor").unwrap().state,
        Some(State::Abandoned)
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s27_all_that_hang_are_named() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().total(ms(4000)).build()?;
    group.add("db", log.service("db", ms(900)))?;
    group.add("one", stubborn)?;
    group.add("two", stubborn)?;
    group.add("api", log.service("api", ms(900)))?;
    let report = run_and_stop(group).await;
    assert_eq!(report.abandoned(), ["one", "two"]);
    // Neither took the time of another: a level has 1 s.
    assert_eq!(log.lines(), ["db up", "api up", "api down", "db down"]);
    assert_eq!(report.service("db").unwrap().state, Some(State::Exited));
    let line = report.to_string();
    assert!(
        line.starts_with(
            "report exit_code=75 outcome=deadline_missed reason=handle failed=- abandoned=one,two total_ms="
        ),
        "{line}"
    );
    // Level 1 had until 3 s, level 0 then took 900 ms.
    assert_eq!(report.total(), ms(3900));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s36_a_cap_of_its_own_ends_one_service_and_no_other() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().total(ms(10_000)).build()?;
    group.add_level([
        Member::new("hour", stubborn).cap(ms(500)),
        Member::new("slow", log.service("slow", ms(2000))),
        Member::new("other", stubborn).cap(ms(100)),
    ])?;
    let handle = group.handle();
    let (report, ()) = tokio::join!(group.run(), async {
        tokio::time::sleep(ms(1)).await;
        let begun = Instant::now();
        handle.stop();
        let state = |name: &str| {
            let services = handle.services();
            services.iter().find(|it| it.name == name).unwrap().state
        };
        tokio::time::sleep_until(begun + ms(102)).await;
        assert_eq!(state("other"), Some(State::Abandoned));
        assert_eq!(state("hour"), Some(State::Stopping));
        tokio::time::sleep_until(begun + ms(502)).await;
        assert_eq!(state("hour"), Some(State::Abandoned));
        assert_eq!(state("slow"), Some(State::Stopping));
    });
    assert_eq!(report.abandoned(), ["hour", "other"]);
    assert_eq!(report.total(), ms(2000));
    assert_eq!(report.exit_code(), 75, "abandoned, though before the total");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s18_the_drain_takes_its_length_or_ends_when_idle() -> Result<(), BuildError> {
    for (ends_when_idle, expected) in [(false, 200), (true, 70)] {
        let mut group = builder()
            .drain(ms(200))
            .drain_ends_when_idle(ends_when_idle)
            .build()?;
        group.add("api", async |ctx: ServiceContext| {
            let client = ctx.busy();
            ctx.ready();
            ctx.draining().await;
            // A client that is served 70 ms into the drain.
            tokio::time::sleep(ms(70)).await;
            drop(client);
            ctx.stopping().await;
            Ok(())
        })?;
        let report = run_and_stop(group).await;
        assert_eq!(report.total(), ms(expected));
        assert_eq!(report.exit_code(), 0);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn s6_a_service_that_ends_in_the_drain_changes_nothing_for_hooks() -> Result<(), BuildError> {
    let log = Log::default();
    let stops = Arc::new(AtomicU32::new(0));
    let mut group = builder()
        .drain(ms(200))
        .on_wrap_up("w", log.hook("wrap-up"))
        .on_after_stop("a", log.hook("after-stop"))
        .build()?;
    group.add("short", async |ctx: ServiceContext| {
        ctx.ready();
        ctx.draining().await;
        Ok(())
    })?;
    let counted = stops.clone();
    group.add(
        "pair",
        start_stop(
            async || Ok(()),
            async move |()| {
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(())
            },
        ),
    )?;
    let report = run_and_stop(group).await;
    assert_eq!(log.lines(), ["wrap-up", "after-stop"]);
    assert_eq!(stops.load(Ordering::SeqCst), 1);
    assert_eq!(report.total(), ms(200));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_when_nothing_is_left_that_serves() -> Result<(), BuildError> {
    let mut group = builder().drain(ms(500)).build()?;
    group.add("short", async |ctx: ServiceContext| {
        ctx.ready();
        ctx.draining().await;
        tokio::time::sleep(ms(20)).await;
        Ok(())
    })?;
    assert_eq!(run_and_stop(group).await.total(), ms(20));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn deadlines_are_known_from_the_stop_request_on() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().total(ms(10_000)).drain(ms(2000)).build()?;
    for (name, cap) in [("low", None), ("high", Some(ms(300)))] {
        let log = log.clone();
        let service = async move |ctx: ServiceContext| {
            assert_eq!(ctx.deadline(), None);
            ctx.ready();
            ctx.draining().await;
            let begun = Instant::now();
            tokio::time::sleep(ms(1)).await;
            log.add(format!("{name} {:?}", ctx.deadline().unwrap() - begun));
            ctx.stopping().await;
            let now = Instant::now();
            log.add(format!("{name} {:?}", ctx.deadline().unwrap() - now));
            Ok(())
        };
        let member = Member::new(name, service);
        group.add_level(match cap {
            Some(cap) => member.cap(cap),
            None => member,
        })?;
    }
    run_and_stop(group).await;
    let mut known = log.lines();
    known.sort();
    assert_eq!(known, ["high 300ms", "high 6s", "low 10s", "low 8s"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reserve_is_left_by_the_levels_above() -> Result<(), BuildError> {
    let log = Log::default();
    let mut group = builder().total(ms(1000)).build()?;
    let db = Member::new("db", log.service("db", ms(750)));
    group.add_level(Level::from(db).reserve(ms(800)))?;
    group.add("api", stubborn)?;
    let report = run_and_stop(group).await;
    assert_eq!(report.abandoned(), ["api"]);
    assert_eq!(report.total(), ms(950));
    assert_eq!(log.lines(), ["db up", "db down"]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_nested_group_keeps_within_the_outer_deadline_and_names_what_it_left()
-> Result<(), BuildError> {
    let mut inner = builder().total(ms(60_000)).build()?;
    inner.add("fine", obedient)?;
    inner.add("stuck", stubborn)?;
    let mut outer = builder().total(ms(2000)).build()?;
    outer.add("db", obedient)?;
    outer.add("inner", inner)?;
    let report = run_and_stop(outer).await;
    assert_eq!(report.abandoned(), ["inner/stuck"]);
    assert_eq!(report.exit_code(), 75);
    assert!(report.total() <= ms(1000), "{:?}", report.total());
    Ok(())
}

#[test]
fn plans_that_do_not_fit_are_refused() -> Result<(), BuildError> {
    let refused = builder().drain(ms(1000)).build().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "drain is 1s; allowed are less than 1s, which is left of the total of 1s"
    );
    let mut group = builder().build()?;
    group.add_level(Level::from([("a", obedient)]).reserve(ms(700)))?;
    let level = Level::from([("b", obedient)]).reserve(ms(301));
    assert_eq!(group.add_level(level).unwrap_err().argument(), "reserve");
    // What was refused is not there.
    group.add_level(Level::from([("b", obedient)]).reserve(ms(200)))?;
    let none_left = Level::from([("c", obedient)]).reserve(ms(100));
    group.add_level(none_left)?;
    assert_eq!(group.add("d", obedient).unwrap_err().argument(), "reserve");
    Ok(())
}

#[test]
fn names_and_options_are_checked() -> Result<(), BuildError> {
    let mut group = builder().build()?;
    group.add("a", obedient)?;
    for name in ["a", "", "a b", "a=b", "a,b", "hook:a", "a\n"] {
        let refused = group.add(name, obedient).unwrap_err();
        assert_eq!(refused.argument(), "name", "{name:?}");
    }
    let twice = group.add_level([("b", obedient), ("b", obedient)]);
    assert_eq!(twice.unwrap_err().argument(), "name");
    let member = Member::new("c", obedient).cap(ms(0));
    assert_eq!(group.add_level(member).unwrap_err().argument(), "cap");
    let member = Member::new("c", obedient).start_timeout(ms(0));
    let refused = group.add_level(member).unwrap_err();
    assert_eq!(refused.argument(), "start_timeout");
    for code in [0, 256] {
        let refused = builder().deadline_exit_code(code).build().unwrap_err();
        assert_eq!(refused.argument(), "deadline_exit_code");
    }
    Ok(())
}
