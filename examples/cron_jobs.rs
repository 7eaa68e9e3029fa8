//! Cron jobs over the weekend on which the clocks go forward, in a fraction of a second.
//!
//! ```console
//! cargo run --release --example cron_jobs
//! ```
//!
//! In Berlin the clocks went from 02:00 to 03:00 on 29 March 2026. The backup, at half past two,
//! runs in that night too: once, at the first instant after the gap. What runs every half hour goes
//! by the time that has passed, and nothing is made up for the gap. The scheduler lives on a
//! `ManualClock`, so that three days of schedule take no longer than the jobs do; without the clock
//! they would take three days.

use std::error::Error;
use std::sync::mpsc;
use std::time::Duration;

use wheelhouse::wheel::cron::{Cron, TimeZone, Timestamp};
use wheelhouse::wheel::scheduler::{Grace, Scheduler};
use wheelhouse::wheel::{Clock, ManualClock};

const ZONE: &str = "Europe/Berlin";

/// Name and expression of each job.
const JOBS: [(&str, &str); 3] = [
    ("backup", "30 2 * * *"),
    ("poll", "*/30 1-3 * * SUN"),
    ("report", "0 9 * * MON-FRI"),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Friday noon, until Monday noon.
    let start: Timestamp = "2026-03-27T12:00:00+01:00".parse()?;
    let end: Timestamp = "2026-03-30T12:00:00+02:00".parse()?;
    let zone = TimeZone::get(ZONE)?;
    let local = move |run: Timestamp| {
        let civil = run.to_zoned(zone.clone());
        civil.strftime("%a %d %b, %H:%M:%S %:z").to_string()
    };

    // What an expression means can be asked without a scheduler.
    let mut expected = Vec::new();
    for (name, expression) in JOBS {
        let cron = Cron::new(expression, ZONE)?;
        println!("{name}, {cron}:");
        for run in cron.after(start).take_while(|run| *run < end) {
            println!("  {}", local(run));
            expected.push((local(run), name));
        }
    }

    let clock = ManualClock::starting_at(start.into());
    let scheduler = Scheduler::builder().clock(clock.clone()).build()?;
    let (ran, runs) = mpsc::channel();
    for (name, expression) in JOBS {
        let (clock, ran) = (clock.clone(), ran.clone());
        let job = scheduler
            .task()
            .name(name)
            .cron(expression, ZONE, move || {
                let (now, ran) = (clock.system_now(), ran.clone());
                // Here a real job would do its work. An error ends the run, and not the job.
                async move {
                    let now = Timestamp::try_from(now).map_err(|error| error.to_string())?;
                    ran.send((now, name)).map_err(|error| error.to_string())
                }
            })?;
        // The job stays scheduled.
        drop(job);
    }

    let weekend = Duration::try_from(end.duration_since(start))?;
    scheduler.run_for(&clock, weekend).await;
    let report = scheduler.shutdown(Grace::cancel_pending()).await;

    println!("as they ran:");
    let mut seen = Vec::new();
    for (run, name) in runs.try_iter() {
        println!("  {}  {name}", local(run));
        seen.push((local(run), name));
    }
    println!("{} jobs cancelled at the end", report.all.cancelled);
    expected.sort();
    seen.sort();
    if seen != expected {
        return Err(format!("ran {seen:?} instead of {expected:?}").into());
    }
    Ok(())
}
