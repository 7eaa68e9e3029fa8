//! Ten thousand services, in real time: side by side, and each on a level of its own.

use std::time::{Duration, Instant};

use wheelhouse_servicegroup::{BuildError, Level, Member, Report, ServiceGroup};

use crate::support::{builder, obedient};

const SERVICES: usize = 10_000;

fn members() -> impl Iterator<Item = Member> {
    (0..SERVICES).map(|number| Member::new(format!("s{number}"), obedient))
}

/// Runs the group until it is ready, stops it, and holds both together to two seconds.
fn start_and_stop(group: ServiceGroup) -> Report {
    let handle = group.handle();
    let begun = Instant::now();
    let run = std::thread::spawn(|| group.run_blocking());
    while !handle.is_ready() {
        std::thread::yield_now();
    }
    handle.stop();
    let report = run.join().unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(report.exit_code(), 0, "{report}");
    assert_eq!(report.services().len(), SERVICES);
    report
}

#[test]
fn ten_thousand_services_side_by_side() -> Result<(), BuildError> {
    let mut group = builder().total(Duration::from_secs(60)).build()?;
    group.add_level(members().collect::<Level>())?;
    start_and_stop(group);
    Ok(())
}

#[test]
fn ten_thousand_services_one_after_the_other() -> Result<(), BuildError> {
    let mut group = builder().total(Duration::from_secs(60)).build()?;
    for member in members() {
        group.add_level(member)?;
    }
    let report = start_and_stop(group);
    let ends: Vec<_> = report
        .services()
        .iter()
        .map(|it| it.stopped_after)
        .collect();
    assert!(ends.iter().rev().is_sorted(), "the last first");
    Ok(())
}
